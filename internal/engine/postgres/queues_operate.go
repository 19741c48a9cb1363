package postgres

import (
	"context"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/queue"
)

// Peek implements engine.Queues.
func (s *queues) Peek(ctx context.Context, name string, limit int) (out []engine.Message, err error) {
	err = s.with(ctx, name, func(q *queue.Queue) error {
		page, err := q.PeekUpTo(ctx, limit, readBytes)
		out = engineMessages(page)
		return err
	})
	return out, err
}

// Pause implements engine.Queues.
func (s *queues) Pause(ctx context.Context, name string) error {
	return s.with(ctx, name, func(q *queue.Queue) error { return q.Pause(ctx) })
}

// Resume implements engine.Queues.
func (s *queues) Resume(ctx context.Context, name string) error {
	return s.with(ctx, name, func(q *queue.Queue) error { return q.Resume(ctx) })
}

// Purge implements engine.Queues.
func (s *queues) Purge(ctx context.Context, name string, dead bool) (purged int64, err error) {
	err = s.with(ctx, name, func(q *queue.Queue) (err error) {
		purged, err = q.Purge(ctx, queue.PurgeOptions{Dead: dead})
		return err
	})
	return purged, err
}

// DeadLetters implements engine.Queues. It holds about readBytes bytes.
func (s *queues) DeadLetters(
	ctx context.Context, name string, filter engine.DeadFilter, after int64, limit int,
) (letters []engine.DeadLetter, next int64, err error) {
	err = s.with(ctx, name, func(q *queue.Queue) error {
		page, err := q.FindDead(ctx, queue.DeadFilter(filter), after, limit, readBytes)
		for i := range page.Letters {
			d := &page.Letters[i]
			letters = append(letters, engine.DeadLetter{Message: engineMessage(&d.Message), Attempts: d.Attempts, Reason: d.Reason, Died: d.Died})
		}
		next = page.Next
		return err
	})
	return letters, next, err
}

// Redrive implements engine.Queues.
func (s *queues) Redrive(ctx context.Context, name string, positions []int64) (redriven int64, err error) {
	err = s.with(ctx, name, func(q *queue.Queue) (err error) {
		if len(positions) > 0 { // none is all of them to package queue
			redriven, err = q.Redrive(ctx, positions...)
		}
		return err
	})
	return redriven, err
}

// PurgeDead implements engine.Queues.
func (s *queues) PurgeDead(ctx context.Context, name string, positions []int64) (purged int64, err error) {
	err = s.with(ctx, name, func(q *queue.Queue) (err error) {
		purged, err = q.PurgeDead(ctx, positions...)
		return err
	})
	return purged, err
}

// ReplaceDead implements engine.Queues.
func (s *queues) ReplaceDead(ctx context.Context, name string, position int64, m engine.Message, opts engine.EnqueueOptions) (replaced bool, err error) {
	o, err := s.open.get(ctx, name)
	if err != nil {
		return false, engineError(err)
	}
	if err := o.checkPriority(opts.Priority); err != nil {
		return false, err
	}
	replaced, err = o.ReplaceDead(ctx, position, queueMessage(&m, opts))
	return replaced, engineError(err)
}

// RedriveStep implements engine.Queues.
func (s *queues) RedriveStep(ctx context.Context, name string, filter engine.DeadFilter, after int64, limit int) (step engine.DeadStep, err error) {
	err = s.with(ctx, name, func(q *queue.Queue) error {
		done, err := q.RedriveStep(ctx, queue.DeadFilter(filter), after, limit)
		step = engine.DeadStep(done)
		return err
	})
	return step, err
}

// PurgeDeadStep implements engine.Queues.
func (s *queues) PurgeDeadStep(ctx context.Context, name string, filter engine.DeadFilter, after int64, limit int) (step engine.DeadStep, err error) {
	err = s.with(ctx, name, func(q *queue.Queue) error {
		done, err := q.PurgeStep(ctx, queue.DeadFilter(filter), after, limit)
		step = engine.DeadStep(done)
		return err
	})
	return step, err
}
