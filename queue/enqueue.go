package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// Message is a message to be enqueued.
type Message struct {
	// Key is valid UTF-8 without NUL, at most stream.MaxKey bytes. In a queue that keeps the order of keys, messages with the same key are
	// delivered one after the other. Defaults to none.
	Key string
	// Headers is a JSON object. Defaults to none.
	Headers json.RawMessage
	// Payload is what the message says; it may be empty.
	Payload []byte
	// Due is when the message may be delivered, at the earliest, by the clock of
	// PostgreSQL; nodes compare with a clock that is not ahead of it. The zero
	// time is at once, and one after the year 9999 invalid. In a queue that keeps
	// the order of keys, it keeps back all that come later with its key.
	Due time.Time
	// Priority is from 0 to one less than the queue's Options.Priorities; the
	// higher goes first. In a queue without it must be 0.
	Priority int
	// Unique, if it has a key, has the message stored only once in its period.
	Unique Unique
}

// plain is the message as the stream has it.
func (m Message) plain() stream.Message {
	return stream.Message{Key: m.Key, Headers: m.Headers, Payload: m.Payload}
}

// EnqueuerConfig configures an Enqueuer.
type EnqueuerConfig struct {
	// Appender is how it appends. Its OnCommit is called as well, with positions
	// in the stream; of a queue with priorities or partitions by several goroutines. With its
	// Hub nodes that have one hear of what is enqueued.
	Appender stream.AppenderConfig
}

// Enqueuer enqueues for many callers: they share commits. It writes on connections
// that all who write to the pool share. Safe for concurrent use.
type Enqueuer struct {
	queue    *Queue
	appender *stream.PartitionedAppender // its partitions are the members
	turn     atomic.Uint32               // of the partition for messages without a key
	unique   *uniques
	started  atomic.Bool
}

// NewEnqueuer returns an Enqueuer to the queue, which writes through the
// queue's pool. It writes nothing before Start.
func NewEnqueuer(q *Queue, cfg EnqueuerConfig) *Enqueuer {
	own := stream.PartitionedConfig{Appender: cfg.Appender}
	own.OnCommit = func(i int, last int64) {
		q.committed(i, last)
		if cfg.Appender.OnCommit != nil {
			cfg.Appender.OnCommit(last)
		}
	}
	return &Enqueuer{
		queue: q, appender: stream.NewPartitionedAppender(q.pool, stream.Together(q.Streams()...), own), unique: newUniques(),
	}
}

// Start has what is accepted written from now on. An Enqueuer that has nothing to write has no
// goroutine, until the first message that is Unique. Further calls do nothing.
func (p *Enqueuer) Start() {
	p.started.Store(true)
	p.appender.Start()
}

// Stop accepts no more, and returns when what was accepted is committed or refused, and all
// callbacks have returned. This may take as long as PostgreSQL is away: see Abandon. It may be
// called more than once, and each call waits.
func (p *Enqueuer) Stop() {
	p.unique.stop() // the appender has what was unique by then
	p.appender.Stop()
	p.unique.abandon()
}

// Abandon gives up what is accepted and not committed: stream.Appender says how.
func (p *Enqueuer) Abandon() {
	p.unique.closed.Store(true)
	p.unique.abandon()
	p.appender.Abandon()
}

// Enqueued says where the messages of one call are. The position of each is one more than that of the one before;
// in a queue with priorities or partitions it is more by the number of these.
type Enqueued struct{ First, Last int64 }

// Enqueue stores the messages, in this order, all or none, and returns their
// positions once they are committed. While PostgreSQL is away it waits.
//
// Messages of one call have one priority, or keys of one partition, or the error is
// ErrCrossPartition. A message that is Unique comes alone; for one that is stored already
// the error is a DuplicateError. Errors: these, ErrNotRunning before Start, ErrClosed, ErrNotFound, ErrInvalid
// and PostgreSQL's own mean that nothing was stored. If ctx ends first, or with
// ErrOutcomeUnknown, the messages may be stored or not.
func (p *Enqueuer) Enqueue(ctx context.Context, msgs ...Message) (Enqueued, error) {
	if !p.started.Load() {
		return Enqueued{}, ErrNotRunning
	}
	if len(msgs) == 1 && msgs[0].Unique.Key != "" {
		return p.enqueueUnique(ctx, msgs[0])
	}
	plain, to, err := p.prepare(msgs)
	if err != nil {
		return Enqueued{}, err
	}
	at, err := p.appender.Partition(to).Append(ctx, plain...)
	return p.answer(to, at, err)
}

// Submit is Enqueue that does not wait for the commit: it returns once the
// messages are accepted, and waits while the gathering batch is full. If it
// returns nil, done is called once, with Enqueue's result or its error; otherwise done is not called. All calls for one priority
// or partition, or for a queue without, come from one goroutine, in the order of
// positions: done must be brief. Messages that are Unique need SubmitUnique.
func (p *Enqueuer) Submit(ctx context.Context, msgs []Message, done func(Enqueued, error)) error {
	plain, to, err := p.prepare(msgs)
	if err != nil {
		return err
	}
	return enqueueError(p.appender.Partition(to).Submit(ctx, plain, func(at stream.Appended, err error) { done(p.answer(to, at, err)) }))
}

// prepare returns the messages as the stream stores them, and which one.
func (p *Enqueuer) prepare(msgs []Message) (plain []stream.Message, to int, err error) {
	if p.unique.closed.Load() { // the appender may still take what is unique
		return nil, 0, ErrClosed
	}
	if err := noneUnique(msgs); err != nil {
		return nil, 0, err
	}
	if to, err = p.queue.routeAll(msgs, p.turn.Add); err != nil {
		return nil, 0, err
	}
	plain, err = withDues(msgs)
	return plain, to, err
}

// answer is what the caller is told of an append to that member.
func (p *Enqueuer) answer(to int, at stream.Appended, err error) (Enqueued, error) {
	if err != nil {
		return Enqueued{}, enqueueError(err)
	}
	return Enqueued{p.queue.outward(to, at.First), p.queue.outward(to, at.Last)}, nil
}

// enqueueError is the stream's error as the queue has it.
func enqueueError(err error) error {
	switch {
	case errors.Is(err, stream.ErrClosed):
		return ErrClosed
	case errors.Is(err, stream.ErrNotFound):
		return fmt.Errorf("enqueue: %w", ErrNotFound)
	case errors.Is(err, stream.ErrOutcomeUnknown):
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return ownError(err)
}
