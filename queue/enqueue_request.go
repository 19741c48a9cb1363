package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidewire/tidewire/stream"
)

// EnqueueAs is Enqueue with a RequestID (idempotent enqueue): the call can be repeated in any process, any number
// of times, also concurrently. The messages are stored once, and each of the calls returns their positions, and
// whether an earlier call stored them. A repetition stores nothing, and changes nothing: the Due of the first call counts.
//
// A RequestID is looked for where the messages go: in their priority, or in the partition of their keys. If no
// message has a key, that is the partition of the RequestID's Client (Queue.PartitionOf). So a repetition has to
// give the messages the same priority and keys; with others, it may be stored as another request.
//
// This holds for stream.KeepRequests. An older request, which may be a repetition, is not stored, and the error is
// stream.ErrSequenceTooOld. No message may be Unique, and no Client may begin with "unique/". All other errors
// are those of Enqueue; after any of them the request can be repeated, and a rejected request is evaluated again.
func (p *Enqueuer) EnqueueAs(ctx context.Context, request stream.RequestID, msgs ...Message) (Enqueued, error) {
	if !p.started.Load() {
		return Enqueued{}, ErrNotRunning
	}
	plain, to, err := p.prepareAs(request, msgs)
	if err != nil {
		return Enqueued{}, err
	}
	at, err := p.appender.Partition(to).AppendAs(ctx, request, plain.messages...)
	plain.giveBack()
	return p.answer(to, at, err)
}

// SubmitAs is Submit with a RequestID: see EnqueueAs. The callback of a repetition comes among the others, and its
// position may be lower than theirs.
func (p *Enqueuer) SubmitAs(ctx context.Context, request stream.RequestID, msgs []Message, done func(Enqueued, error)) error {
	plain, to, err := p.prepareAs(request, msgs)
	if err != nil {
		return err
	}
	c := p.call(to, done)
	err = p.appender.Partition(to).SubmitAs(ctx, request, plain.messages, c.done)
	plain.giveBack()
	if err != nil { // then done is not called
		c.recycle()
	}
	return enqueueError(err)
}

// prepareAs is prepare for a request. The member depends on nothing but the request, so that a repetition finds
// the first call.
func (p *Enqueuer) prepareAs(request stream.RequestID, msgs []Message) (plain *plainMessages, to int, err error) {
	if strings.HasPrefix(request.Client, uniquePrefix) {
		return nil, 0, fmt.Errorf("%w client: it begins with %q, which names the requests of unique messages", ErrInvalid, uniquePrefix)
	}
	return p.prepare(msgs, func() int { return p.queue.PartitionOf(request.Client) })
}

// EnqueueAs is Enqueuer.EnqueueAs, with the same errors; ErrNotRunning if the Queue is not from a Client.
func (q *Queue) EnqueueAs(ctx context.Context, request stream.RequestID, msgs ...Message) (Enqueued, error) {
	return q.enqueueBy(func(e *Enqueuer) (Enqueued, error) { return e.EnqueueAs(ctx, request, msgs...) })
}

// enqueueBy enqueues with the Client's Enqueuer.
func (q *Queue) enqueueBy(enqueue func(*Enqueuer) (Enqueued, error)) (Enqueued, error) {
	if q.client == nil {
		return Enqueued{}, fmt.Errorf("enqueue to %q: %w", q.name, ErrNotRunning)
	}
	e, err := q.client.enqueuer(q)
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue to %q: %w", q.name, err)
	}
	at, err := enqueue(e)
	if errors.Is(err, ErrNotFound) {
		q.client.forget(q, e)
	}
	return at, err
}
