package ingest

import (
	"context"
	"errors"
	"sync"
)

// Source accepts the messages of one connection. It counts them and tracks how
// many from the first on, without a gap, are committed. One goroutine calls
// Submit; the other methods are safe for concurrent use.
type Source struct {
	ingester *Ingester
	onCommit func(committed uint64)

	submitted uint64 // used only by the submitting goroutine
	batch     uint64 // the last batch with messages of this Source; guarded by grouped's lock
	mark      int    // index of its mark in that batch

	mu        sync.Mutex
	watermark uint64            // all messages below are committed
	ahead     map[uint64]uint64 // ranges committed out of order: first index to end
	err       error             // why a message could not be stored, or ErrAbandoned
	settled   chan struct{}     // closed when watermark reaches want, or on err
	want      uint64
}

// Source returns a new Source. onCommit, if not nil, is called with the count
// of messages committed without a gap each time it has grown, from a goroutine
// of the strategy. It must not block. Calls may overlap and come out of order;
// the larger count is the newer one.
func (i *Ingester) Source(onCommit func(committed uint64)) *Source {
	return &Source{ingester: i, onCommit: onCommit}
}

// Submit accepts the payloads for storing, in this order, and copies what it
// keeps. It returns once they are accepted, which in naive mode means
// committed, and waits while the in-flight limit is reached. An error is ctx's,
// or says why an earlier message of this Source could not be stored: then
// nothing more is accepted.
func (s *Source) Submit(ctx context.Context, payloads [][]byte) error {
	if err := s.Err(); err != nil {
		return err
	}
	if len(payloads) == 0 {
		return nil
	}
	s.ingester.stats.received(payloads)
	accepted, err := s.ingester.strategy.submit(ctx, s, s.submitted, payloads)
	s.submitted += uint64(accepted)
	s.ingester.stats.refused(len(payloads) - accepted)
	return err
}

// Wait returns nil when everything submitted is committed; otherwise why a
// message could not be stored, or ctx's error. It must not be called
// concurrently with Submit.
func (s *Source) Wait(ctx context.Context) error {
	s.mu.Lock()
	if s.err != nil || s.watermark >= s.submitted {
		defer s.mu.Unlock()
		return s.err
	}
	s.want, s.settled = s.submitted, make(chan struct{})
	settled := s.settled
	s.mu.Unlock()
	select {
	case <-settled:
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Err returns why a message could not be stored, or nil.
func (s *Source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// committed records that the messages from index first up to but not
// including end are committed.
func (s *Source) committed(first, end uint64) {
	s.mu.Lock()
	if first > s.watermark {
		if s.ahead == nil {
			s.ahead = make(map[uint64]uint64)
		}
		s.ahead[first] = end
		s.mu.Unlock()
		return
	}
	s.watermark = end
	for next, ok := s.ahead[end]; ok; next, ok = s.ahead[s.watermark] {
		delete(s.ahead, s.watermark)
		s.watermark = next
	}
	reached := s.watermark
	s.mu.Unlock()
	if s.onCommit != nil {
		s.onCommit(reached)
	}
	s.mu.Lock() // Wait returns after onCommit has been called
	s.settleLocked(reached >= s.want)
	s.mu.Unlock()
}

// failed records that rows messages could not be stored, or that this is not
// known. The watermark never passes them.
func (s *Source) failed(rows int, err error) {
	if errors.Is(err, ErrAbandoned) {
		s.ingester.stats.abandoned(rows)
	} else {
		s.ingester.stats.failed(rows)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.settleLocked(true)
}

func (s *Source) settleLocked(done bool) {
	if done && s.settled != nil {
		close(s.settled)
		s.settled = nil
	}
}
