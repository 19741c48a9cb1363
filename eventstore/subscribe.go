package eventstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/tidewire/tidewire/internal/pg"
)

// Subscription reads the events that a query selects, and waits for new ones. Only
// one goroutine at a time may call Next; Close and Position may be called
// concurrently. Between two calls of Next a Subscription holds no events and no
// connection.
type Subscription struct {
	store    *Store
	query    Query
	life     context.Context
	end      context.CancelFunc
	closed   atomic.Bool
	after    atomic.Int64
	throttle throttle
	window   window
	// known is the highest position of an event that was returned or skipped, or the start position. Up to clear, a block of
	// positions, no failover has lost events at or before known. Only Next uses both.
	known, clear int64
}

// Start is where a loop over Store.Subscribe begins. The zero value is the beginning of the store.
type Start struct {
	after int64
	end   bool
}

// After begins with the first event after that position; 0 is the beginning of the store.
func After(position int64) Start { return Start{after: position} }

// AtEnd begins after the last event that is committed when the loop does its first step.
func AtEnd() Start { return Start{end: true} }

// Subscribe yields all events from the start on that the query selects, stored and future ones, in order and each exactly
// once. The loop ends with an error and a zero Event: ctx's error, or an error of
// Follow or Subscription.Next. The body may break out of the loop at any time. While it runs, the loop holds no connection.
func (s *Store) Subscribe(ctx context.Context, query Query, start Start) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		sub, err := s.followFrom(ctx, query, start)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer sub.Close()
		for {
			events, err := sub.Next(ctx)
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

func (s *Store) followFrom(ctx context.Context, query Query, start Start) (*Subscription, error) {
	after := start.after
	if start.end {
		head, err := s.Head(ctx)
		if err != nil {
			return nil, err
		}
		after = head
	}
	return s.Follow(query, after)
}

// Follow returns a Subscription after a position, for programs that read page by page; otherwise use Subscribe. The Subscription must be
// closed. Errors: ErrInvalid, ErrClosed.
func (s *Store) Follow(query Query, after int64) (*Subscription, error) {
	if err := query.validate("query"); err != nil {
		return nil, err
	}
	if after < 0 {
		return nil, invalid("after", "%d, want at least 0", after)
	}
	if err := s.hub.follow(); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(s.life)
	sub := &Subscription{store: s, query: query.clone(), life: life, end: end, known: after, clear: -1}
	sub.after.Store(after)
	return sub, nil
}

// Next returns the next matching events, in order, without gap or duplicate: at
// least one, and at most 1,000 or 1 MiB, or one larger event. It waits until there is
// an event, and while PostgreSQL is unavailable.
//
// Errors: ctx's error; ErrClosed after Close of the Subscription or the Store; ErrNotFound; ErrHistoryLost if a failover has
// lost events up to the position of the Subscription: then open a new Subscription; and errors of
// PostgreSQL. After an error no event is skipped: the next call continues at the same position.
func (sub *Subscription) Next(ctx context.Context) ([]Event, error) {
	return sub.NextUpTo(ctx, streamRows)
}

// NextUpTo is Next with at most most events, for a reader with limited space. The
// other events are not read. most is at least 1.
func (sub *Subscription) NextUpTo(ctx context.Context, most int) ([]Event, error) {
	if most < 1 {
		return nil, invalid("most", "%d, want at least 1", most)
	}
	s := sub.store
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(sub.life, func() { cancel(fmt.Errorf("follow event store %q: %w", s.name, ErrClosed)) })()
	for failed := 0; ; {
		if err := sub.throttle.wait(ctx); err != nil {
			return nil, context.Cause(ctx)
		}
		_, changed := s.hub.now() // before the read, so that no commit after the read is missed
		after := sub.after.Load()
		before := sub.window.before(after)
		request := pageRequest{query: sub.query, after: after, before: before, limit: min(most, streamRows), bytes: streamBytes, head: true}
		events, found, err := s.follow(ctx, request)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && !pg.Retryable(err):
			return nil, s.explain("follow", err)
		case err != nil:
			if overdue(err) {
				s.cfg.Log.Warn("reading for a subscription took too long, trying less", "store", s.name, "after", after, "error", err)
				sub.window.shrink()
			}
			if err := pg.Backoff(ctx, failed); err != nil {
				return nil, context.Cause(ctx)
			}
			failed++
			continue
		}
		failed = 0
		if err := sub.continues(ctx, found.head); err != nil {
			return nil, s.explain("follow", err)
		}
		end, full := found.end(&request)
		if !full {
			end = min(found.head, before-1)
		}
		if sub.known = max(sub.known, found.last); end == found.head {
			sub.known = end
		}
		sub.after.Store(max(after, end))
		sub.window.grow()
		caughtUp := !full && end == found.head
		if caughtUp {
			sub.throttle.read()
		}
		if len(events) > 0 {
			return events, nil
		}
		if !caughtUp {
			continue // none of these matched
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Position returns the position up to which Next has returned all matching events. It
// is that of the last event returned, or higher.
func (sub *Subscription) Position() int64 { return sub.after.Load() }

// Close ends the subscription. A running Next returns ErrClosed. It may be called more
// than once.
func (sub *Subscription) Close() {
	if sub.closed.CompareAndSwap(false, true) {
		sub.end()
		sub.store.hub.leave()
	}
}

// Watch waits until the condition fails: from then on, an append under this condition
// is rejected. It returns a ConflictError, which names the first event that matches.
// Use it to tell a user who fills in a form that the data of the form are stale.
//
// Other errors: ErrHistoryLost if the condition's After is past the end of the store, or a failover has lost events up to it;
// ErrInvalid, ErrClosed, ErrNotFound, ErrTooExpensive, ctx's error, and errors of PostgreSQL.
// While PostgreSQL is unavailable, Watch waits.
func (s *Store) Watch(ctx context.Context, condition Condition) error {
	if err := condition.validate(); err != nil {
		return err
	}
	if err := s.hub.follow(); err != nil {
		return err
	}
	defer s.hub.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(fmt.Errorf("watch event store %q: %w", s.name, ErrClosed)) })()
	query := condition.FailIfEventsMatch.clone()
	c := &call{conditional: true, after: condition.After}
	c.probes.add(&query, &s.frequency)
	look := checker{store: s, acquire: s.cfg.Timeout}
	var pace throttle
	asked := lossCheck{store: s}
	for failed := 0; ; {
		if err := pace.wait(ctx); err != nil {
			return context.Cause(ctx)
		}
		_, changed := s.hub.now()
		found, err := s.watch(ctx, &look, c)
		if err == nil {
			err = asked.check(ctx, condition.After, found.basis.position)
		}
		switch {
		case errors.Is(err, ErrHistoryLost):
			return s.explain("watch", err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrTooExpensive) || err != nil && !pg.Retryable(err):
			return s.explain("watch", err)
		case err != nil:
			if err := pg.Backoff(ctx, failed); err != nil {
				return context.Cause(ctx)
			}
			failed++
			continue
		case len(found.calls) > 0:
			return s.withEvents(ctx, &ConflictError{Position: found.positions[0], Type: found.types[0]}, &condition)
		}
		failed = 0
		c.after = max(c.after, found.basis.position)
		pace.read()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Notify wakes the subscriptions after the caller has committed a transaction with
// AppendTx or AppendIfTx. It does not block.
func (s *Store) Notify() { s.hub.committed() }
