package eventstore

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/tidewire/tidewire/internal/pg"
)

// Projector says how a state comes from events.
type Projector[S any] struct {
	// Query chooses the events.
	Query Query
	// Init returns the state before the first event. Defaults to the zero value.
	Init func() S
	// Apply returns the state after an event.
	Apply func(S, Event) S
	// Snapshot has the state kept in the database. Defaults to nil: it is computed
	// from all events each time.
	Snapshot *Snapshot[S]
}

// Projection is a Projector with the state that it has come to.
type Projection[S any] struct {
	Projector[S]
	State S

	taken   int64 // the position of the snapshot that it has begun with, or 0
	applied int   // events since then
}

// Projection returns a Projection in the state before the first event.
func (p Projector[S]) Projection() *Projection[S] {
	projection := &Projection[S]{Projector: p}
	projection.begin()
	return projection
}

// Projected is a Projection, whatever its state is.
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

// from is the position after which the projection's next event is.
func (p *Projection[S]) from() int64 { return p.taken }

func (p *Projection[S]) apply(e Event) {
	p.State = p.Apply(p.State, e)
	p.applied++
}

// Project brings all projections from their beginning to the present state, in
// one pass over the events that any of them chooses. It returns the condition
// under which what is decided by these states may be appended: that nothing
// was stored after the pass that would change one of them.
//
// It holds 1 MiB or 1,000 events in memory at a time, or one larger event. At
// most MaxConcurrentProjections run at once: past that it returns
// ErrTooManyProjections at once.
//
// The states are those at one moment, that of the first read, however many reads
// it takes. A projection with a Snapshot begins with that, if it can be used, and
// saves another one when it is due; that saving it fails is only logged.
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

// errBeyond is what pass returns if a projection has begun with a snapshot of
// more than the store has.
var errBeyond = errors.New("eventstore: snapshot after the end of the store")

// pass has the projections take the events after after. It returns the last
// position that the store had at its beginning.
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

// ProjectStream is Project that yields each event once the projections have
// taken it: their State fields are what they were after that event. The last
// pair is an error if there was one. The slot among MaxConcurrentProjections is
// free again when the loop ends, however it ends. It neither uses nor saves
// snapshots: it is for those who want to see all events.
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

// beginProjection takes a slot, until done is called. The query is what any of
// the projections chooses.
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
	c.request.head = true // a condition will say up to where was looked
	return c
}

// slotNow takes a slot if there is one.
func (s *Store) slotNow(context.Context) error {
	select {
	case s.projections <- struct{}{}:
		return nil
	default:
		s.counts.projectionsRefused.Add(1)
		return fmt.Errorf("%w: %d are running", ErrTooManyProjections, cap(s.projections))
	}
}

// awaitSlot waits for one.
func (s *Store) awaitSlot(ctx context.Context) error { return pg.Acquire(ctx, s.projections) }

func applyTo(projections []Projected, e Event) {
	for _, p := range projections {
		if e.Position > p.from() && p.query().matches(e.Type, e.Tags) {
			p.apply(e)
		}
	}
}

// Decide is a command: it projects, has decide look at the states and return
// the events that follow from them, and appends these if the states still hold.
// If not, it begins again, up to Config.MaxDecisions times in all; the error is
// then the last ConflictError. It waits for one of MaxConcurrentProjections. A
// decide that returns no events appends
// nothing; its error ends Decide as it is.
//
// decide is called again after a conflict and must have no other effect than
// what it returns. It is also Decide's result that is retried: with ids in the
// events, repeating all of Decide is safe only if decide comes to the same
// events again.
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
		if failed > 1 { // the first time nobody is in the way any more
			if err := pg.Backoff(ctx, failed-2); err != nil {
				return Appended{}, err
			}
		}
	}
}
