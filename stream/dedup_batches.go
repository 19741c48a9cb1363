package stream

import (
	"context"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

const (
	// keepMarks is how long the mark of a committed batch is kept. It must outlive
	// every attempt that may still be waiting for the lock: those end by
	// lock_timeout or with their connection, within a minute.
	keepMarks = 5 * time.Minute
	// forgetAtOnce is the most marks that a batchWriter deletes after one batch: its
	// callers wait for the deletion.
	forgetAtOnce = 500
)

// batchGC remembers when a writer had reached which batch number, to find the marks
// that are old enough to be deleted.
type batchGC struct {
	since     time.Time // when number was noted
	number    int64
	old, gone int64 // marks of batches below old can be deleted; those below gone are deleted
	// doubted are the batches for which an attempt got no answer: that attempt may
	// hang in PostgreSQL for longer than keepMarks, so the hourly sweep deletes
	// their marks.
	doubted []int64
}

// maxDoubted bounds the doubted batches; beyond it the oldest are forgotten.
const maxDoubted = 1000

func (m *batchGC) doubt(number int64) {
	if n := len(m.doubted); n > 0 && m.doubted[n-1] == number {
		return
	}
	if len(m.doubted) == maxDoubted {
		m.doubted = append(m.doubted[:0], m.doubted[1:]...)
	}
	m.doubted = append(m.doubted, number)
}

// forget deletes some of the writer's own marks that no attempt can need any more,
// in its session; number is that of its last batch. A failure does not fail the
// batch: the sweep deletes the remaining marks later, with those of dead writers.
func (m *batchGC) forget(ctx context.Context, s *pg.Session, writer, number int64) error {
	if time.Since(m.since) >= keepMarks {
		m.old = m.number
		m.since, m.number = time.Now(), number
	}
	if m.gone >= m.old {
		return nil
	}
	from := m.gone
	m.gone = min(from+forgetAtOnce, m.old)
	_, err := s.Conn().Exec(ctx, forgetSQL, writer, from, m.gone, append([]int64{}, m.doubted...))
	if err != nil {
		s.CloseIfLost()
	}
	return err
}

// forget deletes old marks of the writer's batches.
func (w *batchWriter) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	if err := w.marks.forget(ctx, w.on.Session(), w.id, w.number); err != nil {
		w.cfg.Log.Warn("old batch marks not deleted", "error", err)
	}
}
