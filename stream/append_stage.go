package stream

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"
)

const (
	// stagedBytes is the size from which a batch may be staged. A smaller batch
	// arrives over any line before another writer terminates the session that holds
	// the lock.
	stagedBytes = 64 << 10

	codeEnded = "57P01" // admin_shutdown: the session was terminated, for example by another writer
)

// line is what a batchWriter knows about its network line to PostgreSQL. Rows usually
// arrive while the lock is held, in one round trip. Over a slow line that takes longer
// than other writers wait, and they terminate the session, again and again. So a large
// batch whose session broke is staged.
type line struct {
	slow   bool // large batches are staged
	direct bool // staging is not possible
}

func (l *line) stages(b *rowBatch) bool { return l.slow && !l.direct && b.Bytes() >= stagedBytes }

// broke notes that an attempt to write the batch got no answer, or that its session
// was terminated.
func (l *line) broke(b *rowBatch) { l.slow = l.slow || b.Bytes() >= stagedBytes }

// sendStaged first copies the rows to a temporary table, without the lock, and then
// takes the lock and stores them: two round trips, and each row is written twice. The
// transaction is already old when it takes the lock. Other writers still do not see
// it as frozen, because the part that holds the lock is one message that has arrived
// completely.
func (w *batchWriter) sendStaged(ctx context.Context, b *rowBatch, wait time.Duration) error {
	s, began := w.on.Session(), time.Now()
	c := s.Conn().PgConn()
	b.number(1)
	b.First = 0 // undoes what b.number set
	rows := &lentReader{r: bytes.NewReader(b.copyData())}
	defer rows.takeBack()
	if _, err := c.CopyFrom(ctx, rows, fmt.Sprintf(stageFmt, w.table.columns, s.Settings(wait))); err != nil {
		return err
	}
	arrived := time.Since(began)
	results, err := c.Exec(ctx, w.table.storeStagedSQL(b.Len(), w.id, w.number, b.recordSQL(w.table.lock))).ReadAll()
	if len(results) > 0 && len(results[0].Rows) == 1 {
		b.First, _ = strconv.ParseInt(string(results[0].Rows[0][0]), 10, 64)
	}
	if err == nil {
		w.line.slow = arrived > w.cfg.LockTimeout/4
	}
	return err
}

func (t *table) storeStagedSQL(size int, writer, number int64, record string) string {
	return fmt.Sprintf(storeStagedFmt, t.lock, t.positions, record, size, writer, number, t.name, t.columns)
}
