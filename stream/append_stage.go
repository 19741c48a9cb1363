package stream

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"
)

const (
	// stagedBytes is the size from which a batch may be staged: less gets through
	// any line before somebody ends the session that holds the lock.
	stagedBytes = 64 << 10

	codeEnded = "57P01" // the session was ended, by another writer for one
)

// line is what a batchWriter knows of its connection to PostgreSQL. Rows usually arrive
// while the lock is held, in one round trip. Over a slow line that takes longer than
// other writers wait, who end the session, again and again. So a large batch whose
// session broke is staged.
type line struct {
	slow   bool // large batches are staged
	direct bool // they cannot be
}

func (l *line) stages(b *rowBatch) bool { return l.slow && !l.direct && b.Bytes() >= stagedBytes }

// broke notes that an attempt to write the batch got no answer, or was ended.
func (l *line) broke(b *rowBatch) { l.slow = l.slow || b.Bytes() >= stagedBytes }

// sendStaged sends the rows to a temporary table, for as long as that takes, and then
// takes the lock and stores them: two round trips, and rows that are written twice.
// To others the transaction is old when it has the lock; nobody takes it for frozen,
// for the part that holds the lock is one message, which has arrived whole.
func (w *batchWriter) sendStaged(ctx context.Context, b *rowBatch, wait time.Duration) error {
	s, began := w.on.Session(), time.Now()
	c := s.Conn().PgConn()
	b.number(1)
	b.First = 0 // that of b.number
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
