package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Subscription delivers the messages of a stream from one position on. Only one
// goroutine at a time may call Next; Close and Position may be called from others.
//
// It holds no messages and no connection between two calls of Next: a slow reader
// costs only its own reads, once it lags more than the Hub keeps in memory.
type Subscription struct {
	hub    *Hub
	feed   *feed
	life   context.Context
	end    context.CancelFunc
	closed atomic.Bool
	after  atomic.Int64 // the position of the last message returned
	// adrift: it began at the oldest kept message or at a time, and has returned nothing yet, so messages
	// that retention drops meanwhile are not missed. floats: it began without a position given by the caller,
	// and has returned nothing yet, so messages that a failover loses meanwhile are not missed. had: it has
	// returned messages. epoch is the one in which the position is sound. Used only by Next.
	adrift, floats, had bool
	epoch               uint64
}

// Next returns the next messages of the stream, in order, without gap or duplicate: at least one,
// and at most a page within the bounds of HubConfig. It waits until there is one. The messages
// must not be changed: other subscriptions get the same memory.
//
// While PostgreSQL is unavailable it waits. Errors: ctx's own; ErrNotFound if the stream was
// dropped; a TooOldError if the stream's retention has dropped the next messages; a
// HistoryLostError if a failover has lost the last returned message, or the one at the start
// position; ErrClosed after Close or the end of the Hub; else PostgreSQL's. After a TooOldError
// or a HistoryLostError make a new Subscription. After any other error nothing is skipped: the
// next call continues.
func (s *Subscription) Next(ctx context.Context) ([]Message, error) {
	return s.NextUpTo(ctx, math.MaxInt)
}

// NextUpTo is Next with at most most messages, for a reader with limited room:
// further messages are not read, or not held for it. most is at least 1.
func (s *Subscription) NextUpTo(ctx context.Context, most int) ([]Message, error) {
	if err := validLimit(most); err != nil {
		return nil, err
	}
	for {
		if err := s.over(ctx); err != nil {
			return nil, err
		}
		if page, err := s.once(ctx, most, true); err != nil || len(page) > 0 {
			return page, err
		}
	}
}

// once is one step of Next: it returns messages or an error, or neither if there is one more step to do. If
// waits is false, it never waits for messages.
func (s *Subscription) once(ctx context.Context, most int, waits bool) ([]Message, error) {
	page, err := s.step(ctx, most, waits)
	if old, ok := errors.AsType[*TooOldError](err); ok && s.adrift {
		s.after.Store(old.Oldest - 1)
		return nil, nil
	}
	if lost, ok := errors.AsType[*HistoryLostError](err); ok && s.floats {
		s.after.Store(lost.Last)
		return nil, nil
	} else if ok && s.had {
		s.feed.foundLost(s.after.Load(), lost.Last)
	}
	if err != nil {
		if over := s.over(ctx); over != nil {
			return nil, over
		}
		return nil, err
	}
	if len(page) == 0 {
		return nil, nil
	}
	s.adrift, s.floats, s.had = false, false, true
	page = page[:min(len(page), most)]
	s.after.Store(page[len(page)-1].Position)
	return page, nil
}

// over returns why Next has to end, or nil.
func (s *Subscription) over(ctx context.Context) error {
	if s.life.Err() != nil {
		return fmt.Errorf("follow stream %q: %w", s.feed.stream.name, ErrClosed)
	}
	return ctx.Err()
}

// step looks once for messages, or waits until there may be some.
func (s *Subscription) step(ctx context.Context, most int, waits bool) ([]Message, error) {
	after := s.after.Load()
	v := s.feed.look(after, s.epoch)
	if len(v.page) > 0 || v.err != nil {
		s.epoch = v.epoch
		return v.page, v.err
	}
	if v.wait != nil && !waits {
		return nil, nil
	}
	if v.wait != nil {
		select {
		case <-v.wait:
		case <-ctx.Done():
		case <-s.life.Done():
		}
		return nil, nil
	}
	return onNewStack(func() ([]Message, error) { return s.read(ctx, v, after, most) })
}

// read reads the messages after the position from PostgreSQL.
func (s *Subscription) read(ctx context.Context, v view, after int64, most int) ([]Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	messages, err := s.readOn(ctx, v, after, most)
	if err == nil {
		s.epoch = v.epoch
	}
	return messages, err
}

func (s *Subscription) readOn(ctx context.Context, v view, after int64, most int) ([]Message, error) {
	if v.leads {
		return s.feed.lead(ctx, after)
	}
	p, _, err := s.feed.read(ctx, after, most, func() {})
	if err != nil {
		return nil, err
	}
	s.feed.enter(p.history)
	if len(p.messages) == 0 && v.from > after {
		s.after.Store(v.from) // the messages in between were deleted manually
	}
	return p.messages, nil
}

// onNewStack calls f in a separate goroutine, because a query needs a deep stack: so the stacks of
// thousands of waiting subscriptions stay small. A panic of f becomes a panic of the caller.
func onNewStack[T any](f func() (T, error)) (got T, err error) {
	var panicked any
	var calling sync.WaitGroup
	calling.Go(func() {
		defer func() {
			if value := recover(); value != nil {
				panicked = fmt.Sprintf("%v\n\n%s", value, debug.Stack())
			}
		}()
		got, err = f()
	})
	calling.Wait()
	if panicked != nil {
		panic(panicked)
	}
	return got, err
}

// Position is the position of the last message that Next returned, or the start
// position.
func (s *Subscription) Position() int64 { return s.after.Load() }

// Close ends the subscription, and a Next under way with ErrClosed. It may be
// called more than once.
func (s *Subscription) Close() {
	if s.closed.CompareAndSwap(false, true) {
		s.end()
		s.hub.leave(s.feed, 1, 0)
	}
}
