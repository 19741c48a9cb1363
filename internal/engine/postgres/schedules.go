package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/schedule"
)

// schedules is engine.Schedules on the schedules of one database.
type schedules struct{ pool *pgxpool.Pool }

// Put implements engine.Schedules.
func (s schedules) Put(ctx context.Context, spec engine.ScheduleSpec) (engine.Schedule, error) {
	stored, err := schedule.Put(ctx, s.pool, schedule.Spec{
		Name: spec.Name, Cron: spec.Cron, TimeZone: spec.TimeZone, At: spec.At, Queue: spec.Queue, Stream: spec.Stream,
		Key: spec.Key, Headers: spec.Headers, Payload: spec.Payload, Priority: spec.Priority, CatchUp: schedule.CatchUp(spec.CatchUp), Paused: spec.Paused,
	})
	return engineSchedule(stored), scheduleError(err)
}

// Get implements engine.Schedules.
func (s schedules) Get(ctx context.Context, name string) (engine.Schedule, error) {
	stored, err := schedule.Get(ctx, s.pool, name)
	return engineSchedule(stored), scheduleError(err)
}

// List implements engine.Schedules.
func (s schedules) List(ctx context.Context, after string, limit int) ([]engine.Schedule, error) {
	stored, err := schedule.List(ctx, s.pool, after, limit)
	all := make([]engine.Schedule, len(stored))
	for i := range stored {
		all[i] = engineSchedule(stored[i])
	}
	return all, scheduleError(err)
}

// Drop implements engine.Schedules.
func (s schedules) Drop(ctx context.Context, name string) error {
	return scheduleError(schedule.Drop(ctx, s.pool, name))
}

// Pause implements engine.Schedules.
func (s schedules) Pause(ctx context.Context, name string) error {
	return scheduleError(schedule.Pause(ctx, s.pool, name))
}

// Resume implements engine.Schedules.
func (s schedules) Resume(ctx context.Context, name string) error {
	return scheduleError(schedule.Resume(ctx, s.pool, name))
}

func engineSchedule(s schedule.Schedule) engine.Schedule {
	return engine.Schedule{
		ScheduleSpec: engine.ScheduleSpec{
			Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, At: s.At, Queue: s.Queue, Stream: s.Stream,
			Key: s.Key, Headers: s.Headers, Payload: s.Payload, Priority: s.Priority, CatchUp: string(s.CatchUp), Paused: s.Paused,
		},
		Due: s.Due, Last: s.Last, Error: s.Error,
	}
}

// scheduleError maps an error of package schedule to one of package engine.
func scheduleError(err error) error {
	if invalid, ok := errors.AsType[*schedule.InvalidError](err); ok {
		return &engine.FieldError{Field: invalid.Field, Problem: invalid.Problem}
	}
	if errors.Is(err, schedule.ErrNotFound) {
		return fmt.Errorf("%w: %w", engine.ErrNotFound, err)
	}
	return engineError(err)
}
