package stream

import (
	"context"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

const (
	// keepMarks is for how long the mark of a committed batch is kept. It must
	// outlive every attempt that may still be waiting for the lock: those end by
	// lock_timeout or with their connection, within a minute.
	keepMarks = 5 * time.Minute
	// forgetAtOnce is the most marks that a batchWriter deletes after one batch, whose
	// callers wait for that.
	forgetAtOnce = 500
)

// batchGC remembers which batch number a writer had reached when, to know which
// marks are old enough to be deleted.
type batchGC struct {
	since     time.Time // when number was noted
	number    int64
	old, gone int64 // those of batches below old can go, and those below gone are
	// doubted are the batches of which an attempt got no answer: it may be stranded
	// in PostgreSQL for longer than keepMarks, so theirs are left to the sweep.
	doubted []int64
}

// maxDoubted bounds the batches that are remembered as doubted; of more, the
// oldest are forgotten.
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

// forget deletes some of the writer's own marks that nothing can ask for any
// more, in its session; number is that of its last batch. A failure is not the
// batch's: what is left is swept up with those of the dead.
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

// forget has the writer's old batchGC deleted.
func (w *batchWriter) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	if err := w.marks.forget(ctx, w.on.Session(), w.id, w.number); err != nil {
		w.cfg.Log.Warn("old batch marks not deleted", "error", err)
	}
}
