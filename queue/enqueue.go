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
	// Payload is the content of the message; it may be empty.
	Payload []byte
	// Due is the earliest time at which the message may be delivered, by the
	// clock of PostgreSQL; the clock that nodes compare with is never ahead of
	// it. The zero time means at once; a time after the year 9999 is invalid. In
	// a queue that keeps the order of keys, it also delays all later messages of
	// its key.
	Due time.Time
	// Priority is from 0 to one less than the queue's Options.Priorities; the
	// higher goes first. In a queue without priorities it must be 0.
	Priority int
	// Unique, if it has a key, stores the message only once in its period.
	Unique Unique
}

// plain returns the message as the stream stores it.
func (m Message) plain() stream.Message {
	return stream.Message{Key: m.Key, Headers: m.Headers, Payload: m.Payload}
}

// EnqueuerConfig configures an Enqueuer.
type EnqueuerConfig struct {
	// Appender configures how messages are appended. Its OnCommit is called with positions in
	// the stream; for a queue with priorities or partitions by several goroutines. If it has
	// a Hub, that notifies Nodes with the same Hub of new messages.
	Appender stream.AppenderConfig
}

// Enqueuer enqueues for many callers, which share commits (group commit). It
// writes on connections that it shares with all writers to the pool. Safe for
// concurrent use.
type Enqueuer struct {
	queue    *Queue
	appender *stream.PartitionedAppender // its partitions are the members
	turn     atomic.Uint32               // which partition gets the next messages without a key
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
		queue: q, appender: stream.NewPartitionedAppender(q.pool, stream.Together(q.Streams()...), own),
	}
}

// Start begins to write accepted messages. An idle Enqueuer has no goroutine. Further calls do nothing.
func (p *Enqueuer) Start() {
	p.started.Store(true)
	p.appender.Start()
}

// Stop accepts no more messages, and returns when all accepted ones are committed or have
// failed, and all callbacks have returned. While PostgreSQL is away it waits: see Abandon. It
// may be called more than once, and each call waits.
func (p *Enqueuer) Stop() { p.appender.Stop() }

// Abandon drops messages that are accepted and not committed, as stream.Appender.Abandon does.
func (p *Enqueuer) Abandon() { p.appender.Abandon() }

// Enqueued says where the messages of one call are.
type Enqueued struct {
	// First and Last are the positions of the first and the last message. Positions increase by one from
	// message to message; in a queue with priorities or partitions, by the number of these.
	First, Last int64
	// Count is the number of messages.
	Count int
	// Duplicate says that an earlier call with the same RequestID, or for a Unique message with the same key,
	// stored the messages, and this call stored nothing.
	Duplicate bool
}

// Enqueue stores the messages, in this order, all or none, and returns their
// positions once they are committed. While PostgreSQL is away it waits.
//
// All messages of one call must have the same priority, or keys of the same partition, or the error is
// ErrCrossPartition. A Unique message must be the only one of its call; if it is stored already the error is a
// DuplicateError. These errors, ErrNotRunning before Start, ErrClosed, ErrNotFound, ErrInvalid and
// PostgreSQL's own mean that nothing was stored. If ctx ends first, or with ErrOutcomeUnknown, the messages
// may be stored or not.
func (p *Enqueuer) Enqueue(ctx context.Context, msgs ...Message) (Enqueued, error) {
	if !p.started.Load() {
		return Enqueued{}, ErrNotRunning
	}
	if isUnique(msgs) {
		return orDuplicate(p.enqueueUnique(ctx, stream.RequestID{}, msgs[0]))
	}
	plain, to, err := p.prepare(msgs, p.inTurn)
	if err != nil {
		return Enqueued{}, err
	}
	at, err := p.appender.Partition(to).Append(ctx, plain.messages...)
	plain.giveBack()
	return p.answer(to, at, err)
}

// Submit is Enqueue that does not wait for the commit: it returns once the
// messages are accepted, does not keep msgs, and waits while the gathering batch is full. If it
// returns nil, done is called once, with Enqueue's result or its error; otherwise done is not called. All calls for one priority
// or partition, or for a queue without, come from one goroutine, in the order of
// positions: done must be brief. Of two Unique messages with the same key that one caller submits one after the other,
// the second is the duplicate.
func (p *Enqueuer) Submit(ctx context.Context, msgs []Message, done func(Enqueued, error)) error {
	if isUnique(msgs) {
		return p.submitUnique(ctx, stream.RequestID{}, msgs[0], func(at Enqueued, err error) { done(orDuplicate(at, err)) })
	}
	plain, to, err := p.prepare(msgs, p.inTurn)
	if err != nil {
		return err
	}
	c := p.call(to, done)
	err = p.appender.Partition(to).Submit(ctx, plain.messages, c.done)
	plain.giveBack()
	if err != nil { // then done is not called
		c.recycle()
	}
	return enqueueError(err)
}

// inTurn returns the member for messages that may go to any: each in turn (round robin).
func (p *Enqueuer) inTurn() int { return int(p.turn.Add(1) % uint32(len(p.queue.members))) }

// prepare returns the messages as the stream stores them, to be given back, and the index of the
// member that gets them; elsewhere chooses it if any member is right.
func (p *Enqueuer) prepare(msgs []Message, elsewhere func() int) (plain *plainMessages, to int, err error) {
	if err := noneUnique(msgs); err != nil {
		return nil, 0, err
	}
	if to, err = p.queue.routeAll(msgs, elsewhere); err != nil {
		return nil, 0, err
	}
	plain, err = withDues(msgs)
	return plain, to, err
}

// answer converts the result of an append to that member for the caller.
func (p *Enqueuer) answer(to int, at stream.Appended, err error) (Enqueued, error) {
	if err != nil {
		return Enqueued{}, enqueueError(err)
	}
	return Enqueued{p.queue.outward(to, at.First), p.queue.outward(to, at.Last), at.Count(), at.Duplicate}, nil
}

// enqueueError converts the stream's error to the queue's.
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
