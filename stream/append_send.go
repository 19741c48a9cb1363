package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/pg"
)

// codeStaleHead is raised by tidewire.begin_batch when another writer has moved the
// head of the stream.
const codeStaleHead = "TW001"

// attempt tries once to write the batch, within timeout. If stale is true, it does
// not rely on the head that the writer knows. It waits at most wait for a lock. On
// an error, b.First is set if positions were allocated, which happens only if no
// other attempt is committed.
func (w *batchWriter) attempt(ctx context.Context, b *rowBatch, stale bool, wait, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	b.First, b.at = 0, time.Time{}
	if err := w.on.Session().Connect(ctx); err != nil {
		return err
	}
	shared := w.storage.shared() && !w.needsOwn()
	prepared, err := w.prepare(ctx, shared)
	if err != nil {
		return err
	}
	switch {
	case shared:
		err = w.sendShared(ctx, b, wait)
	case w.line.stages(b):
		err = w.sendStaged(ctx, b, wait)
	case !stale && w.prefersCopy(b):
		err = w.sendCopy(ctx, b, wait)
	default:
		err = w.sendArray(ctx, b, wait, prepared)
	}
	if err = w.on.Session().Replicated(err); errors.Is(err, pg.ErrNotReplicated) {
		return err
	}
	if err != nil {
		if b.First > 0 && afterBegin(err) {
			w.head = b.First + int64(b.Len()) - 1 // a sequence is not rolled back
		}
		return w.recover(ctx, b, err)
	}
	w.head = b.First + int64(b.Len()) - 1
	return nil
}

// afterBegin reports whether PostgreSQL rejected a batch after it had allocated its
// positions. If that is wrong, the next COPY is rejected once, and the batch is
// sent as Array.
func afterBegin(err error) bool {
	switch pg.Code(err) {
	case "", codeStaleHead, pg.CodeLockNotAvailable:
		return false
	case pg.CodeUniqueViolation:
		return pg.Constraint(err) != "batch_pkey"
	}
	return true
}

func (w *batchWriter) prefersCopy(b *rowBatch) bool {
	return w.cfg.Method == Copy || w.cfg.Method == Auto && (b.Len() >= w.cfg.CopyRows || b.Bytes() >= w.cfg.CopyBytes)
}

// sendCopy sends one query with the rows after it: one round trip, and one more
// before the writer's first COPY, to read the head.
func (w *batchWriter) sendCopy(ctx context.Context, b *rowBatch, wait time.Duration) error {
	s := w.on.Session()
	if w.head == 0 {
		if err := s.Conn().QueryRow(ctx, w.table.sql().head).Scan(&w.head); err != nil {
			return err
		}
	}
	b.number(w.head + 1)
	rows := &lentReader{r: bytes.NewReader(b.copyData())}
	defer rows.takeBack()
	sql := w.table.copySQL(w.head, b.Len(), w.id, w.number, s.Settings(wait), b.recordSQL(w.table.lock))
	_, err := s.Conn().PgConn().CopyFrom(ctx, rows, sql)
	return err
}

// lentReader is memory that CopyFrom reads. When the connection breaks, CopyFrom
// returns before its reading goroutine has ended.
type lentReader struct {
	mu sync.Mutex
	r  *bytes.Reader // nil when it was taken back
}

func (l *lentReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r == nil {
		return 0, io.ErrClosedPipe
	}
	return l.r.Read(p)
}

// takeBack returns when the memory is no longer being read.
func (l *lentReader) takeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.r = nil
}

// sendArray sends four statements, one more if there are requests to record, one
// more if settings change, and one Sync: one round trip.
func (w *batchWriter) sendArray(ctx context.Context, b *rowBatch, wait time.Duration, prepared bool) error {
	s := w.on.Session()
	p := s.Conn().PgConn().StartPipeline(ctx)
	before := s.SendBegin(p, wait)
	send := func(name, sql string, params [][]byte, types []uint32) {
		if prepared {
			p.SendQueryPrepared(name, params, binaryFormat, binaryFormat)
		} else {
			p.SendQueryParams(sql, params, types, binaryFormat, binaryFormat)
		}
	}
	send(w.table.sql().stmtTake, w.table.sql().takePositions, [][]byte{int8(int64(b.Len())), int8(w.id), int8(w.number)}, takeTypes)
	if len(b.requests) > 0 {
		p.SendQueryParams(recordRequestsSQL, b.recordParams(w.table.lock), recordTypes, nil, nil)
	}
	rows, free := w.insertParams(b)
	send(w.table.sql().stmtInsert, w.table.sql().insertArray, rows, w.table.insertTypes())
	free()
	p.SendQueryPrepared(pg.StmtCommit, nil, nil, nil)
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	return b.taken(p, before)
}

// taken reads the results of a transaction. The result number before (from 0) holds
// the position and time of the batch.
func (b *rowBatch) taken(p *pgconn.Pipeline, before int) error {
	taken, err := rowAfter(p, before)
	if err == nil && len(taken) == 2 && len(taken[0]) == 8 {
		b.First, b.at = int64(binary.BigEndian.Uint64(taken[0])), parseTime(taken[1])
	}
	if closeErr := p.Close(); err == nil { // reads the other results
		err = closeErr
	}
	return err
}

var binaryFormat = []int16{1}

// insertParams returns the number of rows and an array for each column, valid until free is
// called. The arrays share one buffer, which may move while it grows.
func (w *batchWriter) insertParams(b *rowBatch) (params [][]byte, free func()) {
	ends := make([]int, 0, 4)
	lent := batchMemory.Get().(*[]byte)
	arrays := (*lent)[:0]
	for field, oid := range w.table.types {
		arrays = b.appendArray(arrays, field, oid)
		ends = append(ends, len(arrays))
	}
	params = append(make([][]byte, 0, 4), int8(int64(b.Len())))
	from := 0
	for _, end := range ends {
		params = append(params, arrays[from:end])
		from = end
	}
	return params, func() {
		*lent = arrays
		batchMemory.Put(lent)
	}
}

func int4(v int32) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(v))
}

func int8(v int64) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(v))
}
