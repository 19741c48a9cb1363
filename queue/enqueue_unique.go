package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidewire/tidewire/stream"
)

// Unique stores a message once in a period, which begins when the first one is stored: Enqueue of another one with the
// same key and period, by any process, stores nothing. Messages of different priorities, or with keys of different
// partitions, are not duplicates of each other.
//
// About 100 bytes are kept for each key, until the queue is dropped.
type Unique = stream.Unique

// ErrDuplicate is the error that a DuplicateError wraps: a message with that
// unique key is already stored in this period; it may be done.
var ErrDuplicate = errors.New("queue: duplicate of a unique message")

// DuplicateError has the position of the message that is stored.
type DuplicateError struct{ Position int64 }

func (e *DuplicateError) Error() string { return fmt.Sprintf("%v at %d", ErrDuplicate, e.Position) }
func (e *DuplicateError) Unwrap() error { return ErrDuplicate }

// noneUnique rejects unique messages where they are not supported.
func noneUnique(msgs []Message) error {
	for i := range msgs {
		if msgs[i].Unique != (Unique{}) {
			return fmt.Errorf("%w unique message: it needs a key, and a separate Enqueue", ErrInvalid)
		}
	}
	return nil
}

// isUnique reports whether the messages of a call are one that is unique.
func isUnique(msgs []Message) bool { return len(msgs) == 1 && msgs[0].Unique.Key != "" }

// submitUnique submits a message that is unique, with a RequestID or without one.
func (p *Enqueuer) submitUnique(ctx context.Context, request stream.RequestID, m Message, done func(Enqueued, error)) error {
	to, ok, err := p.queue.route(&m)
	if err != nil {
		return err
	}
	if !ok {
		to = p.queue.PartitionOf(m.Unique.Key)
	}
	plain, err := m.withDue()
	if err != nil {
		return err
	}
	c := p.call(to, done)
	err = p.appender.Partition(to).SubmitUnique(ctx, request, m.Unique, plain, c.done)
	if err != nil { // then done is not called
		c.recycle()
	}
	return enqueueError(err)
}

// enqueueUnique is submitUnique that waits for the commit.
func (p *Enqueuer) enqueueUnique(ctx context.Context, request stream.RequestID, m Message) (Enqueued, error) {
	type answer struct {
		at  Enqueued
		err error
	}
	answered := make(chan answer, 1)
	err := p.submitUnique(ctx, request, m, func(at Enqueued, err error) { answered <- answer{at, err} })
	if err != nil {
		return Enqueued{}, err
	}
	select {
	case a := <-answered:
		return a.at, a.err
	case <-ctx.Done():
		return Enqueued{}, ctx.Err()
	}
}

// orDuplicate returns a DuplicateError for a duplicate.
func orDuplicate(at Enqueued, err error) (Enqueued, error) {
	if err == nil && at.Duplicate {
		err = &DuplicateError{Position: at.First}
	}
	return at, err
}
