package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/standby"
)

// events is engine.Events on the event stores of one database. The default
// store is created when it is first used.
type events struct {
	client *eventstore.Client
	pool   *pgxpool.Pool
	log    *slog.Logger

	open *registry[*eventstore.Store]

	queryTimeout time.Duration // of one query
	history      int64         // base of the last history seen; used only by watchHistory
	lost         atomic.Int64  // number of positions of events that failovers have lost
}

func newEvents(ctx context.Context, pool *pgxpool.Pool, reader *standby.Reader, log *slog.Logger) (*events, error) {
	client, err := eventstore.Open(ctx, pool, eventstore.Config{Standby: reader, Log: log})
	if err != nil {
		return nil, err
	}
	s := &events{client: client, pool: pool, log: log, queryTimeout: queryTimeout}
	s.open = newRegistry(registryConfig[*eventstore.Store]{Open: s.get, Discard: closeNow, ErrClosed: eventstore.ErrClosed, Log: log})
	return s, nil
}

// get opens a store, and creates the default one if it is missing.
func (s *events) get(ctx context.Context, name string) (*eventstore.Store, error) {
	if name == eventstore.DefaultName {
		return s.client.Ensure(ctx, name)
	}
	return s.client.Lookup(ctx, name)
}

// closeNow closes a store without waiting for accepted events.
func closeNow(store *eventstore.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	store.Close(ctx)
}

// close waits until all accepted events are stored; if ctx ends first it gives
// up.
func (s *events) close(ctx context.Context) {
	s.open.close()
	var closing sync.WaitGroup
	for _, store := range s.open.all() {
		closing.Go(func() {
			if err := store.Close(ctx); err != nil {
				s.log.Warn("accepted events were given up", "store", store.Name(), "error", err)
			}
		})
	}
	closing.Wait()
}

// abandon gives up accepted events that are not stored.
func (s *events) abandon() {
	given, cancel := context.WithCancel(context.Background())
	cancel()
	s.close(given)
}

// with calls use with a store, and maps its errors. If the store was open and has been dropped, it calls use again with
// the store that has its name now: use has changed nothing.
func (s *events) with(ctx context.Context, name string, use func(*eventstore.Store) error) error {
	name = cmp.Or(name, eventstore.DefaultName)
	for {
		_, known := s.open.peek(name)
		store, err := s.open.get(ctx, name)
		if err != nil {
			return engineError(err)
		}
		err = use(store)
		if !errors.Is(err, eventstore.ErrNotFound) || errors.Is(err, eventstore.ErrOutcomeUnknown) {
			return engineError(err)
		}
		if s.forget(store); !known {
			return engineError(err)
		}
	}
}

// forget closes a dropped store.
func (s *events) forget(store *eventstore.Store) {
	if s.open.forget(store.Name(), store) {
		closeNow(store)
	}
}

// Append implements engine.Events.
func (s *events) Append(
	ctx context.Context, name string, as *engine.RequestID, events []engine.Event, condition *engine.EventCondition,
) (out engine.AppendedEvents, err error) {
	in := make([]eventstore.Event, len(events))
	for i, e := range events {
		in[i] = eventstore.Event{Type: e.Type, Tags: e.Tags, Data: e.Data, JSON: e.JSON, ID: e.ID}
	}
	var at eventstore.Appended
	err = s.with(ctx, name, func(store *eventstore.Store) (err error) {
		at, err = appendTo(ctx, store, as, in, condition)
		return err
	})
	if err != nil {
		if ctx.Err() != nil { // the events may have been accepted
			err = errors.Join(engine.ErrOutcomeUnknown, err)
		}
		return out, err
	}
	for position := at.First; position <= at.Last; position++ {
		out.Positions = append(out.Positions, position)
	}
	out.Duplicate = at.Duplicate
	return out, nil
}

// appendTo appends with the method of the store that does what is asked for.
func appendTo(ctx context.Context, store *eventstore.Store, as *engine.RequestID, events []eventstore.Event, condition *engine.EventCondition) (eventstore.Appended, error) {
	var request eventstore.RequestID
	if as != nil {
		request = eventstore.RequestID{Client: as.Client, Sequence: as.Sequence}
	}
	if condition == nil {
		if as == nil {
			return store.Append(ctx, events...)
		}
		return store.AppendAs(ctx, request, events...)
	}
	want := eventstore.Condition{FailIfEventsMatch: storeQuery(condition.Query), After: condition.After}
	if as == nil {
		return store.AppendIf(ctx, events, want)
	}
	return store.AppendIfAs(ctx, request, events, want)
}

// queryTimeout bounds one query, which package eventstore reads in pieces: other queries wait for it. It is less than the timeout of a piece.
const queryTimeout = 20 * time.Second

// Query implements engine.Events. It holds about readBytes bytes.
func (s *events) Query(within context.Context, name string, q engine.EventQuery, r engine.EventRange) (events []engine.Event, err error) {
	ctx, cancel := context.WithTimeout(within, s.queryTimeout)
	defer cancel()
	err = s.with(ctx, name, func(store *eventstore.Store) error {
		held := 0
		events = nil
		for e, err := range store.QueryStream(ctx, storeQuery(q), eventstore.ReadOptions{
			After: r.After, Before: r.Before, Limit: r.Limit, Backwards: r.Backwards,
		}) {
			if err != nil {
				return err
			}
			events = append(events, engineEvent(&e))
			if held += len(e.Data); held > readBytes {
				break
			}
		}
		return nil
	})
	// A query that has only waited for a place or a connection is not expensive: then it is no error of pgconn.
	if pgconn.Timeout(err) && ctx.Err() != nil && within.Err() == nil && s.answers(within) {
		err = fmt.Errorf("%w: %w", engine.ErrQueryTooExpensive, err)
	}
	return events, err
}

// answers reports whether PostgreSQL answers soon.
func (s *events) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return s.pool.Ping(ctx) == nil
}

// Count implements engine.Events.
func (s *events) Count(ctx context.Context, name string, queries []engine.EventQuery) (counts []int64, guard engine.EventCondition, err error) {
	err = s.with(ctx, name, func(store *eventstore.Store) error {
		counters := make([]*eventstore.Projection[int64], len(queries))
		projections := make([]eventstore.Projected, len(queries))
		for i, q := range queries {
			counters[i] = eventstore.Projector[int64]{
				Query: storeQuery(q), Apply: func(n int64, _ eventstore.Event) int64 { return n + 1 },
			}.Projection()
			projections[i] = counters[i]
		}
		condition, err := store.Project(ctx, projections...)
		counts = nil
		for _, c := range counters {
			counts = append(counts, c.State)
		}
		guard = engine.EventCondition{Query: engineQuery(condition.FailIfEventsMatch), After: condition.After}
		return err
	})
	return counts, guard, err
}

// SubscribeEvents implements engine.Events.
func (s *events) SubscribeEvents(ctx context.Context, name string, q engine.EventQuery, after int64) (sub engine.EventSubscription, err error) {
	err = s.with(ctx, name, func(store *eventstore.Store) error {
		if after < 0 {
			if after, err = store.Head(ctx); err != nil {
				return err
			}
		}
		found, err := store.Follow(storeQuery(q), after)
		sub = eventSubscription{found}
		return err
	})
	return sub, err
}

type eventSubscription struct{ *eventstore.Subscription }

// Next implements engine.EventSubscription.
func (s eventSubscription) Next(ctx context.Context, most int) ([]engine.Event, error) {
	page, err := s.NextUpTo(ctx, most)
	return engineEvents(page), engineError(err)
}

func storeQuery(q engine.EventQuery) (out eventstore.Query) {
	for _, item := range q.Items {
		out.Items = append(out.Items, eventstore.Item{Types: item.Types, Tags: item.Tags})
	}
	return out
}

func engineQuery(q eventstore.Query) (out engine.EventQuery) {
	for _, item := range q.Items {
		out.Items = append(out.Items, engine.EventItem{Types: item.Types, Tags: item.Tags})
	}
	return out
}

func engineEvents(events []eventstore.Event) []engine.Event {
	out := make([]engine.Event, len(events))
	for i := range events {
		out[i] = engineEvent(&events[i])
	}
	return out
}

func engineEvent(e *eventstore.Event) engine.Event {
	return engine.Event{Position: e.Position, Time: e.Time, Type: e.Type, Tags: e.Tags, Data: e.Data, JSON: e.JSON, ID: e.ID}
}
