package inprocess

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tidewire/tidewire/clients/go"
	"github.com/tidewire/tidewire/queue"
)

type jobs[T any] struct {
	q     *queue.Queue
	codec tidewire.Codec[T]
}

// Jobs returns a queue, which has to be from a queue.Client.
func Jobs[T any](q *queue.Queue, codec tidewire.Codec[T]) tidewire.Jobs[T] { return &jobs[T]{q, codec} }

func (j *jobs[T]) Enqueue(ctx context.Context, value T, options ...tidewire.EnqueueOption) (tidewire.Published, error) {
	return j.EnqueueAll(ctx, []T{value}, options...)
}

func (j *jobs[T]) EnqueueAll(ctx context.Context, values []T, options ...tidewire.EnqueueOption) (tidewire.Published, error) {
	o := tidewire.NewEnqueueOptions(options...)
	if err := o.Check(); err != nil {
		return tidewire.Published{}, err
	}
	ctx, cancel := until(ctx, o.Timeout)
	defer cancel()
	headers, err := rawHeaders(o.Headers)
	if err != nil {
		return tidewire.Published{}, err
	}
	messages := make([]queue.Message, len(values))
	for i, value := range values {
		payload, err := j.codec.Encode(value)
		if err != nil {
			return tidewire.Published{}, err
		}
		m := queue.Message{Key: o.Key, Headers: headers, Payload: payload, Priority: o.Priority, Unique: queue.Unique{Key: o.UniqueKey, Period: o.UniqueFor}}
		if o.Delay > 0 {
			m.Due = time.Now().Add(o.Delay)
		}
		messages[i] = m
	}
	e, err := j.q.Enqueue(ctx, messages...)
	if err != nil {
		return tidewire.Published{}, failed(err)
	}
	return tidewire.Published{Position: e.First, Count: e.Count, Duplicate: e.Duplicate}, nil
}

func (j *jobs[T]) Work(ctx context.Context, handle tidewire.Handler[T], options ...tidewire.WorkOption) error {
	o := tidewire.NewWorkOptions(options...)
	if err := o.Check(); err != nil {
		return err
	}
	var telling sync.Mutex
	work := queue.WorkOptions{Concurrency: o.Concurrency, Visibility: o.Lease, Grace: o.Drain, Log: slog.Default()}
	return failed(j.q.Work(ctx, work, func(ctx context.Context, d *queue.Delivery) error {
		err := j.handle(ctx, d, handle)
		if o.Outcome == nil {
			j.log(ctx, d, err)
			return err
		}
		telling.Lock()
		defer telling.Unlock()
		o.Outcome(d.Position, outcome(ctx, err))
		return err
	}))
}

// log tells of an error that no callback of the program hears of, and that the handler has not chosen.
func (j *jobs[T]) log(ctx context.Context, d *queue.Delivery, err error) {
	if err == nil || ctx.Err() != nil || tidewire.IsDead(err) || tidewire.RetryDelay(err) > 0 {
		return
	}
	slog.ErrorContext(ctx, "tidewire: a handler has failed", "queue", j.q.Name(), "position", d.Position, "attempt", d.Attempt, "error", err)
}

func (j *jobs[T]) handle(ctx context.Context, d *queue.Delivery, handle tidewire.Handler[T]) error {
	value, err := j.codec.Decode(d.Payload)
	if err != nil {
		return fmt.Errorf("%w: the codec refuses the message: %w", queue.ErrDead, err)
	}
	job := tidewire.Job[T]{Position: d.Position, Attempt: d.Attempt, Key: d.Key, Headers: readHeaders(d.Headers), Time: d.Time, Value: value}
	err = handle(ctx, &job)
	if err != nil && tidewire.IsDead(err) {
		return fmt.Errorf("%w: %w", queue.ErrDead, err)
	}
	return err
}

func outcome(ctx context.Context, err error) tidewire.Outcome {
	switch {
	case ctx.Err() != nil:
		return tidewire.Lost
	case err != nil:
		return tidewire.Nacked
	}
	return tidewire.Acked
}
