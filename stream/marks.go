package stream

import (
	"context"
	"time"
)

// keepMarks is for how long the mark of a committed batch is kept. It must
// outlive every attempt that may still be waiting for the lock: those end by
// lock_timeout or with their connection, within a minute.
const keepMarks = 5 * time.Minute

// marks remembers which batch number a writer had reached when, to know which
// marks are old enough to be deleted.
type marks struct {
	since  time.Time // when number was noted
	number int64
}

// forget deletes the marks that nothing can ask for any more, every few
// minutes, in the writer's own connection. Its failure is not the batch's.
func (w *Writer) forget(ctx context.Context) error {
	if time.Since(w.marks.since) < keepMarks {
		return nil
	}
	first, before := w.marks.since.IsZero(), w.marks.number
	w.marks = marks{since: time.Now(), number: w.number}
	var err error
	if first {
		_, err = w.conn.Exec(ctx, forgetDeadSQL)
	} else {
		_, err = w.conn.Exec(ctx, forgetSQL, w.id, before)
	}
	if err != nil {
		w.cfg.Log.Warn("old batch marks not deleted", "error", err)
		if w.conn.Conn().IsClosed() {
			w.Close()
		}
	}
	return nil
}
