package eventstore

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/tidewire/tidewire/internal/pg"
)

// Projector defines how a state is computed from events.
type Projector[S any] struct {
	// Query selects the events.
	Query Query
	// Init returns the state before the first event. Defaults to the zero value.
	Init func() S
	// Apply returns the state after an event.
	Apply func(S, Event) S
	// Snapshot keeps the state in the database. Defaults to nil: the state is
	// computed from all events each time.
	Snapshot *Snapshot[S]
}

// Projection is a Projector with its current state.
type Projection[S any] struct {
	Projector[S]
	State S

	taken   int64 // the position of the snapshot from which it began, or 0
	applied int   // number of events applied since then
}

// Projection returns a Projection in the state before the first event.
func (p Projector[S]) Projection() *Projection[S] {
	projection := &Projection[S]{Projector: p}
	projection.begin()
	return projection
}

// Projected is a Projection of any state type.
type Projected interface {
	query() *Query
	begin()
	apply(Event)
	from() int64

	validate(field string) error
	snapshotName() string
	problem(*stored) string
	resume(*stored) error
	due() bool
	snapshot(position int64) (stored, error)
}

func (p *Projection[S]) query() *Query { return &p.Query }

func (p *Projection[S]) begin() {
	var state S
	if p.Init != nil {
		state = p.Init()
	}
	p.State, p.taken, p.applied = state, 0, 0
}

// from returns the position up to which the snapshot contains the events.
func (p *Projection[S]) from() int64 { return p.taken }

func (p *Projection[S]) apply(e Event) {
	p.State = p.Apply(p.State, e)
	p.applied++
}

// Project computes the current state of all projections, in one pass over the
// events that any of them selects. It returns a condition for an append that relies on
// these states: the append fails if an event that changes one of them was stored
// after the pass.
//
// It holds 1 MiB or 1,000 events in memory at a time, or one larger event. At
// most MaxConcurrentProjections run at the same time; more return
// ErrTooManyProjections immediately.
//
// The states are those at the moment of the first read, even if the pass needs
// several reads. A projection with a Snapshot begins with the snapshot, if it can be
// used, and saves a new one when it is due. If saving fails, this is only logged.
func (s *Store) Project(ctx context.Context, projections ...Projected) (Condition, error) {
	return s.project(ctx, s.slotNow, projections)
}

func (s *Store) project(ctx context.Context, slot func(context.Context) error, projections []Projected) (Condition, error) {
	query, done, err := s.beginProjection(ctx, slot, projections)
	if err != nil {
		return Condition{}, err
	}
	defer done()
	rows, err := s.snapshots(ctx, projections)
	if err != nil {
		return Condition{}, s.explain("read snapshots of", err)
	}
	head, err := s.pass(ctx, query, projections, s.resume(projections, rows))
	if errors.Is(err, errBeyond) {
		s.cfg.Log.Warn("snapshots not used: they lie after the end of the store", "store", s.name)
		for _, p := range projections {
			p.begin()
		}
		head, err = s.pass(ctx, query, projections, 0)
	}
	if err != nil {
		return Condition{}, s.explain("project", err)
	}
	s.save(ctx, projections, rows, head)
	return Condition{FailIfEventsMatch: query, After: head}, nil
}

// errBeyond is the error of pass if the snapshot of a projection is at a position
// after the end of the store.
var errBeyond = errors.New("eventstore: snapshot after the end of the store")

// pass applies the events after after to the projections. It returns the position
// of the last event that the store had when the pass began.
func (s *Store) pass(ctx context.Context, query Query, projections []Projected, after int64) (head int64, err error) {
	c := projectionCursor(s.readPage, query, after)
	for !c.done {
		page, err := c.next(ctx, streamRows, streamBytes)
		if err != nil {
			return 0, err
		}
		for _, p := range projections {
			if p.from() > c.head {
				return 0, errBeyond
			}
		}
		for _, e := range page {
			applyTo(projections, e)
		}
	}
	return c.head, nil
}

// ProjectStream is Project as a loop. It yields each event after the projections
// have applied it: their State fields hold the states after that event. If there is
// an error, it is in the last pair. The loop occupies one of
// MaxConcurrentProjections until it ends. ProjectStream yields all events: it neither
// uses nor saves snapshots.
func (s *Store) ProjectStream(ctx context.Context, projections ...Projected) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		query, done, err := s.beginProjection(ctx, s.slotNow, projections)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer done()
		c := projectionCursor(s.readPage, query, 0)
		for !c.done {
			page, err := c.next(ctx, streamRows, streamBytes)
			if err != nil {
				yield(Event{}, s.explain("project", err))
				return
			}
			for _, e := range page {
				applyTo(projections, e)
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// beginProjection takes a slot, until done is called. The query matches the events
// that any of the projections selects.
func (s *Store) beginProjection(ctx context.Context, slot func(context.Context) error, projections []Projected) (query Query, done func(), err error) {
	if err := validateProjections(projections); err != nil {
		return Query{}, nil, err
	}
	queries := make([]Query, len(projections))
	for i, p := range projections {
		queries[i] = *p.query()
	}
	query = AnyOf(queries...)
	if err := query.validate("projections"); err != nil {
		return Query{}, nil, err
	}
	if err := slot(ctx); err != nil {
		return Query{}, nil, err
	}
	s.counts.projectionsBegun.Add(1)
	for _, p := range projections {
		p.begin()
	}
	return query.merged(), func() { <-s.projections }, nil
}

func projectionCursor(page pageFunc, query Query, after int64) *cursor {
	c := newCursor(page, query, ReadOptions{After: after})
	c.request.head = true // the position for Condition.After
	return c
}

// slotNow takes a slot, or returns ErrTooManyProjections if none is free.
func (s *Store) slotNow(context.Context) error {
	select {
	case s.projections <- struct{}{}:
		return nil
	default:
		s.counts.projectionsRefused.Add(1)
		return fmt.Errorf("%w: %d are running", ErrTooManyProjections, cap(s.projections))
	}
}

// awaitSlot waits for a slot.
func (s *Store) awaitSlot(ctx context.Context) error { return pg.Acquire(ctx, s.projections) }

func applyTo(projections []Projected, e Event) {
	for _, p := range projections {
		if e.Position > p.from() && p.query().matches(e.Type, e.Tags) {
			p.apply(e)
		}
	}
}

// Decide runs a command with optimistic concurrency. It computes the projections and
// calls decide, which reads their states and returns events. Decide appends these if
// no event has changed the states meanwhile. After a conflict it begins again, up to
// Config.MaxDecisions times in all; then it returns the last ConflictError. If
// MaxConcurrentProjections are running, it waits.
//
// If decide returns no events, Decide appends nothing. If decide returns an error,
// Decide returns that error unchanged. decide is called again after a conflict, so it
// must have no side effects. To repeat Decide itself is safe only if the events have
// ids and decide returns the same events again.
func (s *Store) Decide(ctx context.Context, decide func() ([]Event, error), projections ...Projected) (Appended, error) {
	for failed := 1; ; failed++ {
		condition, err := s.project(ctx, s.awaitSlot, projections)
		if err != nil {
			return Appended{}, err
		}
		events, err := decide()
		if err != nil || len(events) == 0 {
			return Appended{}, err
		}
		positions, err := s.AppendIf(ctx, events, condition)
		if err == nil || !errors.Is(err, ErrConflict) && !errors.Is(err, ErrHistoryLost) {
			return positions, err
		}
		if failed >= s.cfg.MaxDecisions {
			return Appended{}, fmt.Errorf("decided %d times: %w", failed, err)
		}
		if failed > 1 { // after the first conflict the other append is done: retry at once
			if err := pg.Backoff(ctx, failed-2); err != nil {
				return Appended{}, err
			}
		}
	}
}
