package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// DueHeader is the header that holds when a delayed message is due, as text in
// the form of RFC 3339. Whoever appends to the queue's stream by other means
// may set it.
const DueHeader = "tidewire_due"

// Message is a message to be enqueued. Position and Time are not looked at.
type Message struct {
	stream.Message
	// Due is when the message may be delivered, at the earliest, by the clock of
	// PostgreSQL; nodes compare with a clock that is not ahead of it. The zero
	// time is at once.
	Due time.Time
}

// ProducerConfig configures a Producer.
type ProducerConfig struct {
	// Appender is how it appends. Its OnCommit is called as well.
	Appender stream.AppenderConfig
}

// Producer enqueues for many callers: they share commits. Safe for concurrent
// use.
type Producer struct {
	appender *stream.Appender
}

// NewProducer returns a Producer to the queue, which writes through the
// queue's pool. It does nothing until Run.
func NewProducer(q *Queue, cfg ProducerConfig) *Producer {
	onCommit := cfg.Appender.OnCommit
	cfg.Appender.OnCommit = func(last int64) {
		q.committed(last)
		if onCommit != nil {
			onCommit(last)
		}
	}
	return &Producer{appender: stream.NewAppender(q.pool, q.stream, cfg.Appender)}
}

// Run enqueues until ctx ends and what was accepted by then is answered. Call
// it once.
func (p *Producer) Run(ctx context.Context) { p.appender.Run(ctx) }

// Abandon gives up what is accepted and not committed: stream.Appender says how.
func (p *Producer) Abandon() { p.appender.Abandon() }

// Enqueue stores the messages, in this order and at consecutive positions, all
// or none, and returns the position of the first once they are committed. While
// PostgreSQL is away it waits.
//
// Errors: ErrClosed, ErrNotFound, stream.ErrInvalid and PostgreSQL's own mean
// that nothing was stored. If ctx ends first, or with stream.ErrAbandoned, the
// messages may be stored or not.
func (p *Producer) Enqueue(ctx context.Context, msgs ...Message) (first int64, err error) {
	plain, err := withDues(msgs)
	if err != nil {
		return 0, err
	}
	first, err = p.appender.Append(ctx, plain...)
	return first, enqueueError(err)
}

// Submit is Enqueue that does not wait for the commit: it returns once the
// messages are accepted, and waits while the gathering batch is full. If it
// returns nil, done is called once, with the position of the first message or
// with Enqueue's error; otherwise done is not called. All calls come from one
// goroutine, in the order of positions: done must be brief.
func (p *Producer) Submit(ctx context.Context, msgs []Message, done func(first int64, err error)) error {
	plain, err := withDues(msgs)
	if err != nil {
		return err
	}
	return enqueueError(p.appender.Submit(ctx, plain, func(first int64, err error) { done(first, enqueueError(err)) }))
}

// enqueueError is the stream's error as the queue has it.
func enqueueError(err error) error {
	switch {
	case errors.Is(err, stream.ErrClosed):
		return ErrClosed
	case errors.Is(err, stream.ErrNotFound):
		return fmt.Errorf("enqueue: %w", ErrNotFound)
	}
	return err
}

// withDues returns the messages as the stream stores them.
func withDues(msgs []Message) ([]stream.Message, error) {
	plain := make([]stream.Message, len(msgs))
	for i, m := range msgs {
		var err error
		if plain[i], err = m.withDue(); err != nil {
			return nil, err
		}
	}
	return plain, nil
}

// withDue writes Due into the headers.
func (m Message) withDue() (stream.Message, error) {
	if m.Due.IsZero() {
		return m.Message, nil
	}
	headers := make(map[string]json.RawMessage)
	if len(m.Headers) > 0 {
		if err := json.Unmarshal(m.Headers, &headers); err != nil {
			return stream.Message{}, fmt.Errorf("%w headers: %w", stream.ErrInvalid, err)
		}
	}
	due, err := json.Marshal(m.Due.UTC().Format(time.RFC3339Nano))
	if err != nil {
		return stream.Message{}, err
	}
	if headers == nil { // they were null
		return stream.Message{}, fmt.Errorf("%w headers: not a JSON object", stream.ErrInvalid)
	}
	headers[DueHeader] = due
	if m.Headers, err = json.Marshal(headers); err != nil {
		return stream.Message{}, err
	}
	return m.Message, nil
}

// dueTime returns when the message is due, or the zero time.
func dueTime(headers json.RawMessage) time.Time {
	if !bytes.Contains(headers, []byte(DueHeader)) {
		return time.Time{}
	}
	var in struct {
		Due time.Time `json:"tidewire_due"`
	}
	if json.Unmarshal(headers, &in) != nil {
		return time.Time{} // somebody else's idea of it: deliver it
	}
	return in.Due
}
