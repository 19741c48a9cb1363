package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// DueHeader is the header that holds when a delayed message is due, as text in
// the form of RFC 3339. Whoever appends to the queue's stream by other means
// may set it.
const DueHeader = "tidewire_due"

// Message is a message to be enqueued. Position and Time are not looked at. In a
// queue that keeps the order of keys, Key is what orders it.
type Message struct {
	stream.Message
	// Due is when the message may be delivered, at the earliest, by the clock of
	// PostgreSQL; nodes compare with a clock that is not ahead of it. The zero
	// time is at once. In a queue that keeps the order of keys, it keeps back all
	// that come later with its key.
	Due time.Time
	// Priority is from 0 to one less than the queue's Options.Priorities; the
	// higher goes first. In a queue without it must be 0.
	Priority int
}

// ProducerConfig configures a Producer.
type ProducerConfig struct {
	// Appender is how it appends. Its OnCommit is called as well, with positions
	// in the stream; of a queue with priorities or lanes by several goroutines.
	Appender stream.AppenderConfig
}

// Producer enqueues for many callers: they share commits. While it is busy it
// has one connection of the pool, and of a queue with priorities or lanes one
// for each that it is busy with. Safe for concurrent use.
type Producer struct {
	queue     *Queue
	appenders []*stream.Appender // one a member
	refused   error              // why nothing can be enqueued, or nil
	turn      atomic.Uint32      // of the lane for messages without a key
}

// spareConnections is what a pool needs beside one connection for each member of
// the queue: without, Producers could keep all to themselves.
const spareConnections = 2

// familyIdle is how long an appender of a family keeps its connection at most.
const familyIdle = time.Second

// NewProducer returns a Producer to the queue, which writes through the
// queue's pool. It does nothing until Run.
//
// For a queue with priorities or lanes the pool needs more connections than
// there are of these, by two at least: else Enqueue fails with ErrInvalid.
func NewProducer(q *Queue, cfg ProducerConfig) *Producer {
	p := &Producer{queue: q}
	if have, want := q.pool.Config().MaxConns, int32(len(q.members)+spareConnections); q.opts.family() {
		if have < want {
			p.refused = fmt.Errorf("%w pool: %d connections, and queue %q needs %d; set pool_max_conns", ErrInvalid, have, q.name, want)
		}
		cfg.Appender.IdleTimeout = familyIdle
	}
	onCommit := cfg.Appender.OnCommit
	for i, m := range q.members {
		own := cfg.Appender
		own.OnCommit = func(last int64) {
			q.committed(i, last)
			if onCommit != nil {
				onCommit(last)
			}
		}
		p.appenders = append(p.appenders, stream.NewAppender(q.pool, m.stream, own))
	}
	return p
}

// Run enqueues until ctx ends and what was accepted by then is answered. Call
// it once.
func (p *Producer) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, a := range p.appenders {
		running.Go(func() { a.Run(ctx) })
	}
	running.Wait()
}

// Abandon gives up what is accepted and not committed: stream.Appender says how.
func (p *Producer) Abandon() {
	for _, a := range p.appenders {
		a.Abandon()
	}
}

// Enqueue stores the messages, in this order, all or none, and returns the
// position of the first once they are committed. The others have those that
// follow; in a queue with priorities or lanes each is more than the one before
// by the number of these. While PostgreSQL is away it waits.
//
// Messages of one call have one priority, or keys of one lane, or the error is
// ErrSpread. Errors: that, ErrClosed, ErrNotFound, ErrInvalid, stream.ErrInvalid
// and PostgreSQL's own mean that nothing was stored. If ctx ends first, or with
// stream.ErrAbandoned, the messages may be stored or not.
func (p *Producer) Enqueue(ctx context.Context, msgs ...Message) (first int64, err error) {
	plain, to, err := p.prepare(msgs)
	if err != nil {
		return 0, err
	}
	first, err = p.appenders[to].Append(ctx, plain...)
	return p.answer(to, first, err)
}

// Submit is Enqueue that does not wait for the commit: it returns once the
// messages are accepted, and waits while the gathering batch is full. If it
// returns nil, done is called once, with the position of the first message or
// with Enqueue's error; otherwise done is not called. All calls for one priority
// or lane, or for a queue without, come from one goroutine, in the order of
// positions: done must be brief.
func (p *Producer) Submit(ctx context.Context, msgs []Message, done func(first int64, err error)) error {
	plain, to, err := p.prepare(msgs)
	if err != nil {
		return err
	}
	return enqueueError(p.appenders[to].Submit(ctx, plain, func(first int64, err error) { done(p.answer(to, first, err)) }))
}

// prepare returns the messages as the stream stores them, and which one.
func (p *Producer) prepare(msgs []Message) (plain []stream.Message, to int, err error) {
	if p.refused != nil {
		return nil, 0, p.refused
	}
	if to, err = p.queue.routeAll(msgs, p.turn.Add); err != nil {
		return nil, 0, err
	}
	plain, err = withDues(msgs)
	return plain, to, err
}

// answer is what the caller is told of an append to that member.
func (p *Producer) answer(to int, first int64, err error) (int64, error) {
	if err != nil {
		return 0, enqueueError(err)
	}
	return p.queue.outward(to, first), nil
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
