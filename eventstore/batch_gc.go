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
	// keepMarks is how long the row of a committed batch is kept. It must outlive
	// every attempt that may still wait for the lock: those end by lock_timeout or
	// with their connection, within a minute. For attempts that got no answer, see
	// nextNumber.
	keepMarks      = 5 * time.Minute
	maxLockTimeout = time.Minute
	// rotateEvery is how often a busy Store checks whether the records of requests are
	// old enough to delete. Of the time between two checks at most two minutes count.
	rotateEvery = time.Minute
	// forgetRows is how many rows one statement examines, and deletes.
	forgetRows = 1000
)

// batchGC remembers the batch number that a writer had reached at a time, to know
// which rows are old enough to be deleted.
type batchGC struct {
	since  time.Time // when number was recorded
	number int64
	looked time.Time // last check for old records of requests
}

// sweeper deletes the rows of batches that no attempt can need any more. It runs every
// few minutes in a separate goroutine, and deletes a limited number of rows per
// statement.
type sweeper struct {
	busy atomic.Bool
	last atomic.Int64 // start of the last run, in seconds of Unix time
}

// nextNumber names the next batch. An attempt that got no answer may be stranded, on
// its way to PostgreSQL or in it, for longer than keepMarks, and must find the row of
// the attempt that was committed. So the writer continues under a new id. The rows of
// the old id are deleted after a day.
func (w *writer) nextNumber() {
	if w.doubted {
		w.id, w.number, w.doubted = rand.Int64(), 0, false
		w.marks = batchGC{since: time.Now(), looked: w.marks.looked}
	}
	w.number++
}

// forget starts the deletion of old batch rows, and of old records of requests, if it
// is time.
func (w *writer) forget() {
	now := time.Now()
	switch {
	case now.Sub(w.marks.since) >= keepMarks:
		before := w.marks.number
		w.marks = batchGC{since: now, number: w.number, looked: now}
		w.store.sweep(w.id, before)
	case now.Sub(w.marks.looked) >= rotateEvery:
		w.marks.looked = now
		w.store.inBackground(w.store.sweepRequests)
	}
}

// sweepNowAndThen is for appends in the caller's transactions: the committer of such a
// Store may be idle and never sweep.
func (s *Store) sweepNowAndThen() {
	if time.Now().Unix()-s.sweeper.last.Load() >= int64(keepMarks/time.Second) {
		s.sweep(0, 0)
	}
}

// sweep deletes in the background. A failure affects no batch: the next sweep starts
// from the beginning.
func (s *Store) sweep(writer, before int64) {
	s.inBackground(func() {
		s.sweeper.last.Store(time.Now().Unix())
		if err := s.forgetAll(s.life, writer, before); err != nil && s.life.Err() == nil {
			s.cfg.Log.Warn("old batch marks not deleted", "store", s.name, "error", err)
		}
		s.sweepRequests()
	})
}

func (s *Store) sweepRequests() {
	if err := s.rotateRequests(s.life); err != nil && s.life.Err() == nil {
		s.cfg.Log.Warn("old records of requests not deleted", "store", s.name, "error", err)
	}
}

// inBackground calls sweep in a new goroutine, unless a sweep is running.
func (s *Store) inBackground(sweep func()) {
	if !s.enter() {
		return
	}
	defer s.leave() // Close waits for running only when no caller is between enter and leave
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
