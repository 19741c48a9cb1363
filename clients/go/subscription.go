package tidewire

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
)

// Subscription is a subscription of a stream. It lives until Close: after a reconnect it goes on after the last message that the
// program has taken. One goroutine at a time takes its messages.
type Subscription[T any] struct {
	core  *subCore
	codec Codec[T]
}

// Subscribe begins a subscription. It returns when the server has taken it.
func (s *Stream[T]) Subscribe(ctx context.Context, options ...SubscribeOption) (*Subscription[T], error) {
	o := NewSubscribeOptions(options...)
	if err := o.Check(); err != nil {
		return nil, err
	}
	core := newSubCore(s.c, s.name, o)
	if err := s.c.subscribe(ctx, core); err != nil {
		return nil, err
	}
	return &Subscription[T]{core, s.codec}, nil
}

// Position returns the position after which the next message comes; 0 with Share.
func (s *Subscription[T]) Position() int64 { return s.core.position() }

// Close ends the subscription, and its iteration without an error.
func (s *Subscription[T]) Close() error {
	s.core.close()
	return nil
}

// Commit moves the offset of the group, up to a message that was processed. It never goes back, and returns the offset, which may be higher.
func (s *Subscription[T]) Commit(ctx context.Context, m Message[T]) (int64, error) {
	return s.CommitTo(ctx, m.Partition, m.Position)
}

// CommitTo is Commit with a position. The partition counts with Share alone.
func (s *Subscription[T]) CommitTo(ctx context.Context, partition int, position int64) (int64, error) {
	o := &s.core.options
	if o.Group == "" {
		return 0, local("invalid", "a subscription without a group has nothing to commit")
	}
	if !o.Share {
		partition = -1
	}
	return s.core.c.commit(ctx, s.core.stream, o.Group, partition, position)
}

// Messages iterates over the messages. The iteration ends with an error, without one after Close, and with that of ctx when it ends.
// Another one goes on where it has stopped. A message that the codec refuses is an *InvalidMessageError, after which the iteration goes on.
func (s *Subscription[T]) Messages(ctx context.Context) iter.Seq2[Message[T], error] {
	return func(yield func(Message[T], error) bool) {
		for {
			raw, ok, err := s.core.next(ctx, true)
			if err != nil {
				yield(Message[T]{}, err)
				return
			}
			if !ok {
				return
			}
			m, ok, err := s.decode(raw)
			if (ok || err != nil) && !yield(m, err) {
				return
			}
		}
	}
}

// decode applies the codec. It returns false if the message is left out.
func (s *Subscription[T]) decode(raw Message[[]byte]) (Message[T], bool, error) {
	value, err := s.codec.Decode(raw.Value)
	if err == nil {
		return with(raw, value), true, nil
	}
	invalid := &InvalidMessageError{&Error{Code: "invalid_message", Message: "the codec refuses a message: " + err.Error(), cause: err}, raw}
	if s.core.options.Invalid == nil {
		return Message[T]{}, false, invalid
	}
	s.core.options.Invalid(invalid)
	return Message[T]{}, false, nil
}

// Page is what has arrived: at least one message.
type Page[T any] struct {
	Messages []Message[T]

	sub *Subscription[T]
}

// Commit moves the offset of the group up to the last message of the page, in each partition.
func (p Page[T]) Commit(ctx context.Context) error {
	last := map[int]int64{}
	for _, m := range p.Messages {
		last[m.Partition] = m.Position
	}
	for _, partition := range slices.Sorted(maps.Keys(last)) {
		if _, err := p.sub.CommitTo(ctx, partition, last[partition]); err != nil {
			return err
		}
	}
	return nil
}

// Pages iterates over pages of up to n messages. It waits for the first message of a page, and for no other. Of errors it says what Messages says.
func (s *Subscription[T]) Pages(ctx context.Context, n int) iter.Seq2[Page[T], error] {
	return func(yield func(Page[T], error) bool) {
		if err := atLeast("n", n, 1); err != nil {
			yield(Page[T]{}, err)
			return
		}
		for {
			page, more, err := s.page(ctx, n)
			if len(page.Messages) > 0 && !yield(page, nil) {
				return
			}
			if err != nil && (!yield(Page[T]{}, err) || !errors.As(err, new(*InvalidMessageError))) {
				return
			}
			if !more {
				return
			}
		}
	}
}

// page takes a page. It returns false after the end.
func (s *Subscription[T]) page(ctx context.Context, n int) (Page[T], bool, error) {
	page := Page[T]{sub: s}
	for len(page.Messages) < n {
		raw, ok, err := s.core.next(ctx, len(page.Messages) == 0)
		if err != nil {
			return page, true, err
		}
		if !ok {
			return page, len(page.Messages) > 0, nil
		}
		m, ok, err := s.decode(raw)
		if err != nil {
			return page, true, err
		}
		if ok {
			page.Messages = append(page.Messages, m)
		}
	}
	return page, true, nil
}
