package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

const (
	// uniqueBatchCalls and uniqueBatchBytes are when a batch of unique messages is
	// full. One is filled while another is submitted to the appender.
	uniqueBatchCalls = 4096
	uniqueBatchBytes = 1 << 20
	// clockTimeout bounds one query of PostgreSQL's clock.
	clockTimeout = 10 * time.Second
)

// uniques collects unique messages in the order of the calls, so that one query
// of PostgreSQL's clock gives the period of many.
type uniques struct {
	group  *pg.Group[uniqueBatch]
	closed atomic.Bool // nothing is added any more; checked under the group's lock

	gathering     context.Context // ends with stop
	stopGathering context.CancelFunc

	mu    sync.Mutex    // guards ended
	ended chan struct{} // closed when the goroutine has ended; nil before there is one

	work    context.Context // for accepted calls; ends with abandon
	abandon context.CancelFunc
}

type uniqueBatch struct{ calls []uniqueCall }

// uniqueCall is one SubmitUnique.
type uniqueCall struct {
	message [1]stream.Message
	to      int // member
	client  string
	period  time.Duration
	done    func(Enqueued, error)
}

func newUniques() *uniques {
	u := &uniques{group: pg.NewGroup(&uniqueBatch{}, &uniqueBatch{}, uniqueBatchCalls, uniqueBatchBytes)}
	u.gathering, u.stopGathering = context.WithCancel(context.Background())
	u.work, u.abandon = context.WithCancel(context.Background())
	return u
}

// add accepts a call, and waits while the batch that is being filled is full. A
// call that comes after closed was set is rejected; earlier ones are in a batch
// that the goroutine of start takes.
func (u *uniques) add(ctx context.Context, c uniqueCall) error {
	if u.closed.Load() {
		return ErrClosed
	}
	refused := false
	m := &c.message[0]
	err := u.group.Add(ctx, 1, len(m.Key)+len(m.Headers)+len(m.Payload)+len(c.client), func(b *uniqueBatch) {
		if refused = u.closed.Load(); !refused {
			b.calls = append(b.calls, c)
		}
	})
	if refused {
		return ErrClosed
	}
	return err
}

// start calls submit with each batch, from one goroutine, until stop.
func (u *uniques) start(submit func(context.Context, *uniqueBatch)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended != nil || u.closed.Load() {
		return
	}
	u.ended = make(chan struct{})
	go func() {
		defer close(u.ended)
		u.group.Run(u.gathering, u.work, submit)
	}()
}

// stop rejects further calls, and returns when all accepted ones are submitted.
func (u *uniques) stop() {
	u.closed.Store(true)
	u.stopGathering()
	u.mu.Lock()
	ended := u.ended
	u.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// SubmitUnique is Enqueue of one message that is Unique, and does not wait for the
// commit: it returns once the message is accepted, and waits while too many are.
// Messages that one caller submits one after the other, of one priority or
// partition, are checked in that order: the second of two with the same key is the
// duplicate of the first. Their order relative to messages of Submit is not kept.
// The message must not be changed before done is called.
//
// If it returns nil, done is called once, with Enqueue's result, or with a
// DuplicateError, or with Enqueue's error; otherwise done is not called. Calls
// come from several goroutines: done must be brief.
func (p *Enqueuer) SubmitUnique(ctx context.Context, m Message, done func(Enqueued, error)) error {
	if m.Unique.Key == "" {
		return fmt.Errorf("%w unique message: no key", ErrInvalid)
	}
	if err := m.Unique.validate(); err != nil {
		return err
	}
	to, ok, err := p.queue.route(&m)
	if err != nil {
		return err
	}
	c := uniqueCall{to: to, client: m.Unique.client(), period: m.Unique.Period, done: done}
	if !ok {
		c.to = p.queue.PartitionOf(c.client)
	}
	if c.message[0], err = m.withDue(); err != nil {
		return err
	}
	p.unique.start(p.submitUniques)
	return p.unique.add(ctx, c)
}

// enqueueUnique is SubmitUnique that waits for the commit.
func (p *Enqueuer) enqueueUnique(ctx context.Context, m Message) (Enqueued, error) {
	type answer struct {
		at  Enqueued
		err error
	}
	answered := make(chan answer, 1)
	err := p.SubmitUnique(ctx, m, func(at Enqueued, err error) { answered <- answer{at, err} })
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

// submitUniques submits each message as a request of its key, with the current
// period as the sequence: of all such requests package stream stores one
// (deduplication).
func (p *Enqueuer) submitUniques(ctx context.Context, b *uniqueBatch) {
	now, err := p.queue.clock(ctx)
	for i := range b.calls {
		c := &b.calls[i]
		if err == nil {
			as := stream.RequestID{Client: c.client, Sequence: now / c.period.Microseconds()}
			if failed := p.appender.Partition(c.to).SubmitAs(ctx, as, c.message[:], p.uniqueAnswer(c.to, c.done)); failed != nil {
				c.done(Enqueued{}, uniqueError(failed))
			}
			continue
		}
		c.done(Enqueued{}, uniqueError(err))
	}
	clear(b.calls) // free the messages
	b.calls = b.calls[:0]
}

// uniqueAnswer converts the result of a request to that member for the caller.
func (p *Enqueuer) uniqueAnswer(to int, done func(Enqueued, error)) func(stream.Appended, error) {
	return func(stored stream.Appended, err error) {
		at, err := p.answer(to, stored, err)
		if err == nil && stored.Duplicate {
			err = &DuplicateError{Position: at.First}
		}
		done(at, err)
	}
}

// uniqueError converts the error of a message that was accepted and not
// submitted: ctx is not the caller's, and ends when the Enqueuer is abandoned.
func uniqueError(err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return enqueueError(err)
}

// clock returns PostgreSQL's time in microseconds. While PostgreSQL is away it
// waits, until ctx ends.
func (q *Queue) clock(ctx context.Context) (now int64, err error) {
	for failed := 0; ; failed++ {
		now, err = q.clockOnce(ctx)
		if ctx.Err() != nil || !pg.Retryable(err) && !errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err = pg.Backoff(ctx, failed); err != nil {
			break
		}
	}
	if err != nil {
		return 0, q.explain("enqueue to", err)
	}
	return now, nil
}

func (q *Queue) clockOnce(ctx context.Context) (now int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	err = q.pool.QueryRow(ctx, clockSQL).Scan(&now)
	return now, err
}
