package eventstore

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// keepMarks is for how long the row of a committed batch is kept. It must
	// outlive every attempt that may still be waiting for the lock: those end by
	// lock_timeout or with their connection, within a minute. Of attempts that got no
	// answer, see nextNumber.
	keepMarks      = 5 * time.Minute
	maxLockTimeout = time.Minute
	// rotateEvery is how often a busy Store looks whether records of requests are
	// old enough: of the time between two looks no more than two minutes count.
	rotateEvery = time.Minute
	// forgetRows is how many rows are looked at, and deleted, by one statement.
	forgetRows = 1000
)

// batchGC remembers which batch number a writer had reached when, to know which
// rows are old enough to be deleted.
type batchGC struct {
	since  time.Time // when number was noted
	number int64
	looked time.Time // for old records of requests
}

// sweeper deletes the rows of batches that nothing can ask for any more, every
// few minutes, beside the committer and one slice after the other.
type sweeper struct {
	busy atomic.Bool
	last atomic.Int64 // when it began, in seconds
}

// nextNumber names the next batch. An attempt that got no answer may be stranded, on
// its way to PostgreSQL or in it, for longer than keepMarks, and must find the row of
// the attempt that was committed. So the writer goes on under another id: what the
// old one has left is deleted after a day.
func (w *writer) nextNumber() {
	if w.doubted {
		w.id, w.number, w.doubted = rand.Int64(), 0, false
		w.marks = batchGC{since: time.Now(), looked: w.marks.looked}
	}
	w.number++
}

// forget has the rows of old batches deleted, and old records of requests, if it is
// time.
func (w *writer) forget() {
	now := time.Now()
	switch {
	case now.Sub(w.marks.since) >= keepMarks:
		before := w.marks.number
		w.marks = batchGC{since: now, number: w.number, looked: now}
		w.store.sweep(w.id, before)
	case now.Sub(w.marks.looked) >= rotateEvery:
		w.marks.looked = now
		w.store.aside(w.store.sweepRequests)
	}
}

// sweepNowAndThen is for a Store whose own committer may have nothing to do.
func (s *Store) sweepNowAndThen() {
	if time.Now().Unix()-s.sweeper.last.Load() >= int64(keepMarks/time.Second) {
		s.sweep(0, 0)
	}
}

// sweep deletes aside. Failures are no batch's: the next one begins anew.
func (s *Store) sweep(writer, before int64) {
	s.aside(func() {
		s.sweeper.last.Store(time.Now().Unix())
		if err := s.forgetAll(s.life, writer, before); err != nil && s.life.Err() == nil {
			s.cfg.Log.Warn("old batch marks not deleted", "store", s.name, "error", err)
		}
		s.sweepRequests()
	})
}

func (s *Store) sweepRequests() {
	if err := s.rotateRequests(s.life); err != nil && s.life.Err() == nil {
		s.cfg.Log.Warn("old requests not given up", "store", s.name, "error", err)
	}
}

// aside sweeps in a goroutine of its own, unless one does already.
func (s *Store) aside(sweep func()) {
	if !s.enter() {
		return
	}
	defer s.leave() // Close waits for what runs only after all who have entered
	if !s.sweeper.busy.CompareAndSwap(false, true) {
		return
	}
	s.running.Go(func() {
		defer s.sweeper.busy.Store(false)
		sweep()
	})
}

func (s *Store) forgetAll(ctx context.Context, writer, before int64) error {
	for after := int64(math.MinInt64); ; {
		next, err := s.forgetSlice(ctx, after, writer, before)
		if err != nil || next == nil {
			return err
		}
		after = *next
	}
}

func (s *Store) forgetSlice(ctx context.Context, after, writer, before int64) (next *int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	err = inTx(ctx, s.pool, s.cfg.LockTimeout, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.sql.forget, after, forgetRows, writer, before).Scan(&next)
	})
	return next, err
}
