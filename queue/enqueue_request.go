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
// A Unique message has to be the only one. If it is a duplicate, that is no error: Duplicate is true. A repetition gets the
// same answer, also after the end of the period.
//
// This holds for stream.KeepRequests. An older request, which may be a repetition, is not stored, and the error is
// stream.ErrSequenceTooOld. No Client may begin with "unique/". All other errors
// are those of Enqueue; after any of them the request can be repeated, and a rejected request is evaluated again.
func (p *Enqueuer) EnqueueAs(ctx context.Context, request stream.RequestID, msgs ...Message) (Enqueued, error) {
	if !p.started.Load() {
		return Enqueued{}, ErrNotRunning
	}
	if err := validRequest(request); err != nil {
		return Enqueued{}, err
	}
	if isUnique(msgs) {
		return p.enqueueUnique(ctx, request, msgs[0])
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
	if err := validRequest(request); err != nil {
		return err
	}
	if isUnique(msgs) {
		return p.submitUnique(ctx, request, msgs[0], done)
	}
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
	return p.prepare(msgs, func() int { return p.queue.PartitionOf(request.Client) })
}

// validRequest rejects a request that would pass for one of unique messages, and one without a Client.
func validRequest(request stream.RequestID) error {
	switch {
	case request.Client == "":
		return fmt.Errorf("%w client: want a name", ErrInvalid)
	case strings.HasPrefix(request.Client, stream.UniquePrefix):
		return fmt.Errorf("%w client: it begins with %q, which names the requests of unique messages", ErrInvalid, stream.UniquePrefix)
	}
	return nil
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
