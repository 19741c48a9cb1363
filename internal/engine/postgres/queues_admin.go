package postgres

import (
	"context"
	"errors"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/queue"
)

// Create implements engine.Queues.
func (s *queues) Create(ctx context.Context, name string, opts *engine.QueueOptions) error {
	var want queue.Options
	if opts != nil {
		want = queue.Options{
			MaxAttempts: opts.MaxAttempts, RetryMin: opts.RetryMin, RetryMax: opts.RetryMax, Priorities: opts.Priorities, Partitions: opts.Partitions,
		}
	}
	q, err := queue.Ensure(ctx, s.pool, name, want)
	if opts == nil && errors.Is(err, queue.ErrExists) {
		if found, none := queue.Lookup(ctx, s.pool, name); !errors.Is(none, queue.ErrNotFound) {
			q, err = found, none // the queue exists; otherwise a stream has the name
		}
	}
	if err == nil {
		s.made(ctx, q)
	}
	return engineError(err)
}

// List implements engine.Queues.
func (s *queues) List(ctx context.Context) ([]string, error) {
	names, err := queue.List(ctx, s.pool)
	return names, engineError(err)
}

// with calls do with the queue, and maps its errors. Operators act on the queue that the database has now: one that
// is open may have been dropped.
func (s *queues) with(ctx context.Context, name string, do func(*queue.Queue) error) error {
	q, err := queue.Lookup(ctx, s.pool, name)
	if err == nil {
		q.LimitMessages(s.maxMessage)
		err = do(q)
	}
	return engineError(err)
}

// Stats implements engine.Queues.
func (s *queues) Stats(ctx context.Context, name string) (out engine.QueueStats, err error) {
	err = s.with(ctx, name, func(q *queue.Queue) error {
		st, err := q.Stats(ctx)
		out = engine.QueueStats{
			Name: name, Ready: st.Ready, Leased: st.Leased, Delayed: st.Delayed, Dead: st.Dead,
			Head: st.Head, Oldest: st.OldestAge.Milliseconds(), Nodes: st.Nodes, Paused: st.Paused,
		}
		return err
	})
	return out, err
}

// Options implements engine.Queues.
func (s *queues) Options(ctx context.Context, name string) (out engine.QueueOptions, err error) {
	err = s.with(ctx, name, func(q *queue.Queue) error {
		out = engineOptions(q.Options())
		return nil
	})
	return out, err
}

func engineOptions(o queue.Options) engine.QueueOptions {
	return engine.QueueOptions{
		MaxAttempts: o.MaxAttempts, RetryMin: o.RetryMin, RetryMax: o.RetryMax, Priorities: o.Priorities, Partitions: o.Partitions,
	}
}

// Alter implements engine.Queues.
func (s *queues) Alter(ctx context.Context, name string, c engine.QueueOptions) (out engine.QueueOptions, err error) {
	switch {
	case c.Priorities != 0:
		return out, &engine.FieldError{Field: "priorities", Problem: "cannot be changed: create another queue"}
	case c.Partitions != 0:
		return out, &engine.FieldError{Field: "partitions", Problem: "cannot be changed: create another queue"}
	}
	err = s.with(ctx, name, func(q *queue.Queue) error {
		opts, err := q.Alter(ctx, queue.Changes{MaxAttempts: c.MaxAttempts, RetryMin: c.RetryMin, RetryMax: c.RetryMax})
		out = engineOptions(opts)
		return err
	})
	return out, err
}

// Drop implements engine.Queues.
func (s *queues) Drop(ctx context.Context, name string) error {
	err := queue.Drop(ctx, s.pool, name)
	if err == nil {
		s.changed(ctx, name)
	}
	return engineError(err)
}
