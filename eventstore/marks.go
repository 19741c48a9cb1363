package eventstore

import (
	"context"
	"time"
)

// keepMarks is for how long the row of a committed batch is kept. It must
// outlive every attempt that may still be waiting for the lock: those end by
// lock_timeout or with their connection, within a minute.
const keepMarks = 5 * time.Minute

// lookForDead is how often rows are looked for that their writers will not
// delete any more: those of processes that are gone, and of transactions of
// callers.
const lookForDead = time.Hour

// marks remembers which batch number a writer had reached when, to know which
// rows are old enough to be deleted.
type marks struct {
	since  time.Time // when number was noted
	number int64
	dead   time.Time // when rows of others were looked for
}

// forget deletes the rows of batches that nothing can ask for any more, every
// few minutes, in the writer's own connection. Its failure is no batch's.
func (w *writer) forget(ctx context.Context) {
	if time.Since(w.marks.since) < keepMarks {
		return
	}
	before := w.marks.number
	w.marks.since, w.marks.number = time.Now(), w.number
	ctx, cancel := context.WithTimeout(ctx, w.store.cfg.Timeout)
	defer cancel()
	_, err := w.conn.Exec(ctx, w.store.sql.forget, w.id, before)
	if err == nil && time.Since(w.marks.dead) > lookForDead {
		w.marks.dead = time.Now()
		_, err = w.conn.Exec(ctx, w.store.sql.forgetDead)
	}
	if err != nil {
		w.store.cfg.Log.Warn("old batch marks not deleted", "error", err)
		if w.conn.Conn().IsClosed() {
			w.close()
		}
	}
}
