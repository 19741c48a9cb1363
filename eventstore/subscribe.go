package eventstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/tidewire/tidewire/internal/pg"
)

// Subscription follows the events that a query chooses. Next is for one
// goroutine at a time; Close and Position may be called from others. It holds
// no events and no connection between two calls of Next.
type Subscription struct {
	store  *Store
	query  Query
	life   context.Context
	end    context.CancelFunc
	closed atomic.Bool
	after  atomic.Int64
	pace   pace
	window window
	// known is the highest position of an event that was returned or passed, or where it began. No other history has begun between
	// that and clear, a block of positions. Both are Next's alone.
	known, clear int64
}

// Subscribe yields the events after the position that the query chooses, first those there are and then those to come,
// in order and each once. 0 is the beginning. The last turn of the loop has an error and no event: ctx's own, or one of
// Follow or Subscription.Next. A loop that is left, or takes its time, costs nothing.
func (s *Store) Subscribe(ctx context.Context, query Query, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		sub, err := s.Follow(query, after)
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

// Follow is Subscribe for programs that read page by page. It returns a Subscription, which must be closed. Errors:
// ErrInvalid, ErrClosed.
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

// Next returns the next events, in order, without gap or duplicate: at least
// one, and at most 1,000 or 1 MiB, or one larger event. It waits until there is
// one, and while PostgreSQL is away.
//
// Errors: ctx's own; ErrClosed after Close or the Store's; ErrNotFound; ErrHistoryLost if events that it returned, or passed,
// were lost by a failover: only a new Subscription helps; else
// PostgreSQL's. After an error nothing is skipped: the next call goes on.
func (sub *Subscription) Next(ctx context.Context) ([]Event, error) {
	return sub.NextUpTo(ctx, streamRows)
}

// NextUpTo is Next with at most most events, for a reader that has room for so
// many: the others are not read. most is at least 1.
func (sub *Subscription) NextUpTo(ctx context.Context, most int) ([]Event, error) {
	if most < 1 {
		return nil, invalid("most", "%d, want at least 1", most)
	}
	s := sub.store
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(sub.life, func() { cancel(fmt.Errorf("follow event store %q: %w", s.name, ErrClosed)) })()
	for failed := 0; ; {
		if err := sub.pace.wait(ctx); err != nil {
			return nil, context.Cause(ctx)
		}
		_, changed := s.hub.now() // before the read: what comes after it is heard of
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
			sub.pace.read()
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

// Position is that up to which Next has returned all events: the last one's,
// or a higher one.
func (sub *Subscription) Position() int64 { return sub.after.Load() }

// Close ends the subscription, and a Next under way with ErrClosed. It may be
// called more than once.
func (sub *Subscription) Close() {
	if sub.closed.CompareAndSwap(false, true) {
		sub.end()
		sub.store.hub.leave()
	}
}

// Watch waits until the condition fails: an append that relies on it would be
// refused from then on. It returns a ConflictError, which names the first event
// that matches. It is how one who takes time to decide, such as a person in
// front of a form, is told that the decision has become stale.
//
// Other errors: ErrHistoryLost if the store has not got to the condition's After, or a failover has lost events up to it;
// ErrInvalid, ErrClosed, ErrNotFound, ErrTooExpensive, ctx's and
// PostgreSQL's own.
// While PostgreSQL is away it waits.
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
	c.probes.add(&query, &s.popular)
	look := checker{store: s, acquire: s.cfg.Timeout}
	var pace pace
	asked := stillThere{store: s}
	for failed := 0; ; {
		if err := pace.wait(ctx); err != nil {
			return context.Cause(ctx)
		}
		_, changed := s.hub.now()
		found, err := s.watch(ctx, &look, c)
		if err == nil {
			err = asked.still(ctx, condition.After, found.basis.position)
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

// Notify says that something was committed in a transaction of the caller's
// own: see AppendIfTx. It never waits.
func (s *Store) Notify() { s.hub.committed() }
