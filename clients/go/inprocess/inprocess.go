// Package inprocess has the interfaces of package tidewire in the process of the program, on the packages stream, queue and eventstore: a program
// runs its tests so, without a server, and goes over the wire in production, by opening other implementations of the same interfaces.
//
//	streams, err := stream.Open(ctx, pool, stream.Config{})
//	s, err := streams.Ensure(ctx, "orders", stream.Options{})
//	var orders tidewire.Log[Order] = inprocess.Log[Order](s, tidewire.JSONCodec[Order]{})
//
// What differs from the wire: nothing is repeated, since there is no connection that is lost; Timeout is that of the context; Group, Share, Keys and
// WithHeaders are refused; RetryAfter delivers a message again after the pause of the queue; OnOutcome hears of what a handler has returned, before
// that is recorded; a panic of a handler is an error of it; and what would go to Options.Logger goes to slog.Default().
package inprocess

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/tidewire/tidewire/clients/go"
	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// failed returns err with the code that it has on the wire.
func failed(err error) error {
	var conflict *eventstore.ConflictError
	var old *stream.TooOldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &conflict):
		return &tidewire.ConflictError{Err: tidewire.NewError("conflict", err), Position: conflict.Position, EventType: conflict.Type}
	case errors.As(err, &old):
		return &tidewire.TooOldError{Err: tidewire.NewError("too_old", err), Oldest: old.Oldest, Partition: -1}
	}
	for _, c := range []struct {
		is   error
		code string
	}{
		{stream.ErrNotFound, "not_found"}, {queue.ErrNotFound, "not_found"}, {eventstore.ErrNotFound, "not_found"},
		{stream.ErrHistoryLost, "history_lost"}, {eventstore.ErrHistoryLost, "history_lost"}, {stream.ErrCrossPartition, "cross_partition"},
		{stream.ErrClosed, "closed"}, {eventstore.ErrClosed, "closed"}, {stream.ErrInvalid, "invalid"}, {eventstore.ErrInvalid, "invalid"},
		{eventstore.ErrDuplicateID, "duplicate_id"},
	} {
		if errors.Is(err, c.is) {
			return tidewire.NewError(c.code, err)
		}
	}
	return err
}

// until returns ctx with the time of a call.
func until(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout > 0 {
		return context.WithTimeout(ctx, timeout)
	}
	return ctx, func() {}
}

func rawHeaders(headers map[string]any) (json.RawMessage, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	return json.Marshal(headers)
}

func readHeaders(raw json.RawMessage) (headers map[string]any) {
	if len(raw) > 0 {
		json.Unmarshal(raw, &headers) // PostgreSQL has them as an object
	}
	return headers
}

type log[T any] struct {
	s     *stream.Stream
	codec tidewire.Codec[T]
}

// Log returns a stream, which has to be from a stream.Client.
func Log[T any](s *stream.Stream, codec tidewire.Codec[T]) tidewire.Log[T] { return &log[T]{s, codec} }

func (l *log[T]) Publish(ctx context.Context, value T, options ...tidewire.PublishOption) (tidewire.Published, error) {
	return l.PublishAll(ctx, []T{value}, options...)
}

func (l *log[T]) PublishAll(ctx context.Context, values []T, options ...tidewire.PublishOption) (tidewire.Published, error) {
	o := tidewire.NewPublishOptions(options...)
	if err := o.Check(); err != nil {
		return tidewire.Published{}, err
	}
	ctx, cancel := until(ctx, o.Timeout)
	defer cancel()
	headers, err := rawHeaders(o.Headers)
	if err != nil {
		return tidewire.Published{}, err
	}
	messages := make([]stream.Message, len(values))
	for i, value := range values {
		payload, err := l.codec.Encode(value)
		if err != nil {
			return tidewire.Published{}, err
		}
		messages[i] = stream.Message{Key: o.Key, Headers: headers, Payload: payload}
	}
	a, err := l.s.Append(ctx, messages...)
	if err != nil {
		return tidewire.Published{}, failed(err)
	}
	return tidewire.Published{Position: a.First, Count: len(values), Partition: a.Partition, Duplicate: a.Duplicate}, nil
}

// start returns where a subscription begins.
func start(o tidewire.SubscribeOptions) (stream.Start, error) {
	if err := o.Check(); err != nil {
		return stream.Start{}, err
	}
	switch {
	case o.Group != "" || len(o.Keys) > 0 || len(o.Headers) > 0:
		return stream.Start{}, tidewire.NewError("invalid", errors.New("in process there is no Group, Keys or WithHeaders: use them over the wire"))
	case o.After != nil:
		return stream.After(*o.After), nil
	case !o.At.IsZero():
		return stream.AtTime(o.At), nil
	case o.FromStart:
		return stream.Start{}, nil
	}
	return stream.AtEnd(), nil
}

func (l *log[T]) Messages(ctx context.Context, options ...tidewire.SubscribeOption) iter.Seq2[tidewire.Message[T], error] {
	o := tidewire.NewSubscribeOptions(options...)
	return func(yield func(tidewire.Message[T], error) bool) {
		from, err := start(o)
		for err == nil {
			var old *stream.TooOldError
			err = l.loop(ctx, from, o, yield)
			if err == nil {
				return
			}
			if o.Gap != nil && errors.As(err, &old) {
				o.Gap(tidewire.Gap{Code: "too_old", Oldest: old.Oldest, Partition: -1})
				from, err = stream.After(old.Oldest-1), nil
			}
		}
		yield(tidewire.Message[T]{}, failed(err))
	}
}

// loop yields messages until the program stops, which is nil, or an error.
func (l *log[T]) loop(ctx context.Context, from stream.Start, o tidewire.SubscribeOptions, yield func(tidewire.Message[T], error) bool) error {
	for m, err := range l.s.Subscribe(ctx, from) {
		if err != nil {
			return err
		}
		out := tidewire.Message[T]{Position: m.Position, Key: m.Key, Headers: readHeaders(m.Headers), Time: m.Time}
		if out.Value, err = l.codec.Decode(m.Payload); err != nil {
			raw := tidewire.Message[[]byte]{Position: m.Position, Key: m.Key, Headers: out.Headers, Time: m.Time, Value: m.Payload}
			invalid := &tidewire.InvalidMessageError{Err: tidewire.NewError("invalid_message", err), Message: raw}
			if o.Invalid == nil {
				return invalid
			}
			o.Invalid(invalid)
			continue
		}
		if !yield(out, nil) {
			return nil
		}
	}
	return nil
}
