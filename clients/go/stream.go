package tidewire

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"
)

// Codec turns values into payloads, and back.
type Codec[T any] interface {
	Encode(value T) ([]byte, error)
	Decode(payload []byte) (T, error)
}

// JSONCodec is the codec of StreamOf and QueueOf.
type JSONCodec[T any] struct{}

func (JSONCodec[T]) Encode(value T) ([]byte, error) { return json.Marshal(value) }

func (JSONCodec[T]) Decode(payload []byte) (value T, err error) {
	err = json.Unmarshal(payload, &value)
	return value, err
}

// BytesCodec is the codec of Client.Stream and Client.Queue: the payload is the value. It is not copied: the program
// must not change it after the call, also if the call has ended early, since it may be sent again.
type BytesCodec struct{}

func (BytesCodec) Encode(value []byte) ([]byte, error)   { return value, nil }
func (BytesCodec) Decode(payload []byte) ([]byte, error) { return payload, nil }

// Message is a message of a stream.
type Message[T any] struct {
	Position  int64
	Partition int // of a group that shares partitions; else 0
	Key       string
	Headers   map[string]any
	Time      time.Time // when it was stored
	Value     T
}

// with returns m with a value in place of its payload.
func with[T any](m Message[[]byte], value T) Message[T] {
	return Message[T]{m.Position, m.Partition, m.Key, m.Headers, m.Time, value}
}

// Published says where messages are stored.
type Published struct {
	Position  int64 // of several messages that of the first one: the others follow
	Count     int
	Partition int
	Duplicate bool // it was stored before, and this is the answer of then: also if the library itself has sent it again after a lost connection
}

// Stream is a stream of the server, whose messages have values of the type T.
type Stream[T any] struct {
	c     *Client
	name  string
	codec Codec[T]
}

// Stream returns the stream of that name, for payloads as bytes. It asks the server nothing.
func (c *Client) Stream(name string) *Stream[[]byte] {
	return &Stream[[]byte]{c, name, BytesCodec{}}
}

// StreamOf returns the stream of that name, for values as JSON.
func StreamOf[T any](c *Client, name string) *Stream[T] {
	return &Stream[T]{c, name, JSONCodec[T]{}}
}

// WithCodec returns the same stream with another codec.
func (s *Stream[T]) WithCodec(codec Codec[T]) *Stream[T] { return &Stream[T]{s.c, s.name, codec} }

// Name returns the name of the stream.
func (s *Stream[T]) Name() string { return s.name }

// Publish stores a message. It returns when the message is committed. It is sent again after a reconnect, and stored once.
func (s *Stream[T]) Publish(ctx context.Context, value T, options ...PublishOption) (Published, error) {
	return s.PublishAll(ctx, []T{value}, options...)
}

// PublishAll stores messages, all or none, at consecutive positions. They have one key, and the same headers.
func (s *Stream[T]) PublishAll(ctx context.Context, values []T, options ...PublishOption) (Published, error) {
	r, o, err := s.request(ctx, values, options)
	if err != nil {
		return Published{}, err
	}
	if err := s.c.do(ctx, r, o.Timeout); err != nil {
		return Published{}, err
	}
	return published(r), nil
}

// PublishAsync begins to publish, and does not wait. The messages of calls one after the other are stored in that order. ctx is for
// the trace alone. A program that begins many has to bound them, for example by waiting for the one that is 1,000 older.
func (s *Stream[T]) PublishAsync(ctx context.Context, value T, options ...PublishOption) *Pending {
	return s.PublishAllAsync(ctx, []T{value}, options...)
}

// PublishAllAsync is PublishAsync for messages that are stored all or none.
func (s *Stream[T]) PublishAllAsync(ctx context.Context, values []T, options ...PublishOption) *Pending {
	r, o, err := s.request(ctx, values, options)
	if err != nil {
		return &Pending{err: err}
	}
	s.c.start(r, o.Timeout)
	return &Pending{r: r}
}

func (s *Stream[T]) request(ctx context.Context, values []T, options []PublishOption) (*request, PublishOptions, error) {
	o := NewPublishOptions(options...)
	if err := o.Check(); err != nil {
		return nil, o, err
	}
	r, err := sendingOf(s.c, ctx, "publish", s.name, s.codec, values, o)
	return r, o, err
}

// Pending is a publish or an enqueue that is under way.
type Pending struct {
	r   *request
	err error
}

// Done is closed when Wait does not block any more.
func (p *Pending) Done() <-chan struct{} {
	if p.r == nil {
		return closedChannel
	}
	return p.r.done
}

// Wait waits for the answer. If ctx ends first, the request goes on.
func (p *Pending) Wait(ctx context.Context) (Published, error) {
	if p.r == nil {
		return Published{}, p.err
	}
	select {
	case <-p.r.done:
	case <-ctx.Done():
		return Published{}, ctx.Err()
	}
	if p.r.err != nil {
		return Published{}, p.r.err
	}
	return published(p.r), nil
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func published(r *request) Published {
	return Published{r.answer.position, max(1, int(r.answer.count)), max(0, r.answer.partition), r.answer.duplicate}
}

// sendingOf encodes messages.
func sendingOf[T any](c *Client, ctx context.Context, kind, name string, codec Codec[T], values []T, o PublishOptions) (*request, error) {
	if len(values) == 0 {
		return nil, local("invalid", "there is no message to %s", kind)
	}
	headers, plain, err := headersOf(c, ctx, o.Headers)
	if err != nil {
		return nil, err
	}
	whole := new(struct { // one piece of memory in place of three
		request
		sending
		one [1]outgoing
	})
	r, s := &whole.request, &whole.sending
	*s = sending{kind: kind, name: name, key: o.Key, good: plain && goodKey(o.Key), several: len(values) > 1, messages: whole.one[:]}
	if s.several {
		s.messages = make([]outgoing, len(values))
	}
	r.numbered, r.send = true, s
	for i, value := range values {
		payload, err := codec.Encode(value)
		if err != nil {
			return nil, &Error{Code: "invalid", Message: fmt.Sprintf("the value of message %d cannot be encoded: %v", i, err), cause: err}
		}
		s.messages[i] = outgoing{o.Key, headers, payload}
		r.size += s.messages[i].size()
	}
	return r, nil
}

// Trace returns ctx with the trace that the headers of a message carry, by Options.Propagator.
func (c *Client) Trace(ctx context.Context, headers map[string]any) context.Context {
	if c.opts.Propagator == nil || len(headers) == 0 {
		return ctx
	}
	texts := make(map[string]string, len(headers))
	for name, value := range headers {
		if text, ok := value.(string); ok {
			texts[name] = text
		}
	}
	return c.opts.Propagator.Extract(ctx, texts)
}

// Commit moves the offset of a group, also without a subscription. It never goes back. It returns the offset, which may be higher.
func (s *Stream[T]) Commit(ctx context.Context, group string, position int64) (int64, error) {
	return s.c.commit(ctx, s.name, group, -1, position)
}

// commit moves the offset of a group; in a partition if that is 0 or more, which only the connection that owns it can do.
func (c *Client) commit(ctx context.Context, stream, group string, partition int, position int64) (int64, error) {
	r := &request{kind: "commit", check: positioned, encode: func(w *writer, _ *request) {
		w.text("stream", stream)
		w.text("group", group)
		if partition >= 0 {
			w.number("partition", int64(partition))
		}
		w.number("position", position)
	}}
	if err := c.do(ctx, r, 0); err != nil {
		return 0, err
	}
	return r.answer.position, nil
}

// Messages subscribes, and iterates over the messages that are there and those to come. The iteration ends with an error, or when ctx
// ends, with its error. See Subscribe.
func (s *Stream[T]) Messages(ctx context.Context, options ...SubscribeOption) iter.Seq2[Message[T], error] {
	return func(yield func(Message[T], error) bool) {
		sub, err := s.Subscribe(ctx, options...)
		if err != nil {
			yield(Message[T]{}, err)
			return
		}
		defer sub.Close()
		for m, err := range sub.Messages(ctx) {
			if !yield(m, err) {
				return
			}
		}
	}
}

// Pages is Messages for pages of up to n messages, as they have arrived.
func (s *Stream[T]) Pages(ctx context.Context, n int, options ...SubscribeOption) iter.Seq2[Page[T], error] {
	return func(yield func(Page[T], error) bool) {
		sub, err := s.Subscribe(ctx, options...)
		if err != nil {
			yield(Page[T]{}, err)
			return
		}
		defer sub.Close()
		for p, err := range sub.Pages(ctx, n) {
			if !yield(p, err) {
				return
			}
		}
	}
}
