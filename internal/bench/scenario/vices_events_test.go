package scenario

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/internal/faulty"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// viciousLog is a store whose answers differ from its contents.
type viciousLog struct {
	*eventstore.Store
	vice    faulty.Vice
	appends atomic.Int64
}

// Append damages one append in ten, including the first, since a busy machine
// may make only a few.
func (l *viciousLog) Append(ctx context.Context, events ...eventstore.Event) (eventstore.Appended, error) {
	return l.append(events, func() (eventstore.Appended, error) { return l.Store.Append(ctx, events...) })
}

func (l *viciousLog) AppendIf(ctx context.Context, events []eventstore.Event, condition eventstore.Condition) (eventstore.Appended, error) {
	return l.append(events, func() (eventstore.Appended, error) { return l.Store.AppendIf(ctx, events, condition) })
}

func (l *viciousLog) append(events []eventstore.Event, store func() (eventstore.Appended, error)) (eventstore.Appended, error) {
	l.vice.Wait()
	if l.appends.Add(1)%10 != 1 {
		return store()
	}
	switch l.vice {
	case faulty.Lossy: // answered, and not stored
		last, err := l.Store.Head(context.Background())
		return eventstore.Appended{First: last + 1, Last: last + int64(len(events))}, err
	case faulty.Duplicating:
		if at, err := store(); err != nil {
			return at, err
		}
	case faulty.Reordering: // stored after, and said to be before
		_, err := store()
		return eventstore.Appended{Last: int64(len(events)) - 1}, err
	}
	return store()
}

func (l *viciousLog) Query(ctx context.Context, query eventstore.Query, options eventstore.ReadOptions) ([]eventstore.Event, error) {
	events, err := l.Store.Query(ctx, query, options)
	return l.spoiled(events), err
}

func (l *viciousLog) spoiled(events []eventstore.Event) []eventstore.Event {
	l.vice.Wait()
	switch l.vice {
	case faulty.Lossy:
		return slices.Delete(events, 4, 5)
	case faulty.Duplicating:
		return slices.Insert(events, 4, events[4])
	case faulty.Reordering:
		events[4], events[5] = events[5], events[4]
	}
	return events
}

func (l *viciousLog) QueryStream(ctx context.Context, query eventstore.Query, options eventstore.ReadOptions) iter.Seq2[eventstore.Event, error] {
	return func(yield func(eventstore.Event, error) bool) {
		events, err := l.Query(ctx, query, options)
		if err != nil {
			yield(eventstore.Event{}, err)
			return
		}
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (l *viciousLog) Project(ctx context.Context, projections ...eventstore.Projected) (eventstore.Condition, error) {
	condition, err := l.Store.Project(ctx, projections...)
	l.lie(projections)
	return condition, err
}

func (l *viciousLog) ProjectStream(ctx context.Context, projections ...eventstore.Projected) iter.Seq2[eventstore.Event, error] {
	return func(yield func(eventstore.Event, error) bool) {
		for e, err := range l.Store.ProjectStream(ctx, projections...) {
			if !yield(e, err) {
				return
			}
		}
		l.lie(projections)
	}
}

// lie changes states as if an event were missing, duplicated, or not the last one.
func (l *viciousLog) lie(projections []eventstore.Projected) {
	count, last := projections[0].(*eventstore.Projection[int]), projections[1].(*eventstore.Projection[string])
	l.vice.Wait()
	switch l.vice {
	case faulty.Lossy:
		count.State--
	case faulty.Duplicating:
		count.State++
	case faulty.Reordering:
		last.State = "student:read-0-s98"
	}
}

func TestVices_Events(t *testing.T) {
	t.Parallel()
	ops := []string{"append", "appendif", "query", "querystream", "project", "projectstream"}
	eachVice(t, func(t *testing.T, vice faulty.Vice) {
		db := pgtest.Open(t)
		ops, duration := ops, 100*time.Millisecond
		if vice == faulty.Slow {
			ops, duration = []string{"append", "query"}, time.Second // of a busy machine, which has to end at least one in it
		}
		for _, op := range ops { // a result for each: every one has to notice
			result := bench.NewResult("events", nil)
			err := Events(t.Context(), EventsConfig{
				Datasets: []string{"tiny"}, Ops: []string{op}, Concurrency: []int{2}, Batch: []int{1}, PastEvents: 3,
				WarmUp: 10 * time.Millisecond, Duration: duration, Repeat: 1,
				Database: EventsDatabase{Pool: db.Pool, URL: db.URL}, Progress: t.Logf,
				through: func(store *eventstore.Store) eventLog { return &viciousLog{Store: store, vice: vice} },
			}, result)
			if err != nil {
				t.Fatalf("%s: %v", op, err)
			}
			row := result.Rows[0]
			withoutTime(result)
			result.Finish()
			if want := !slices.Contains(spoiling, vice); result.Valid != want {
				t.Errorf("%s: valid %v, want %v: %+v", op, result.Valid, want, result.Checks)
			}
			if p50 := row.Metrics["latency_p50_ms"]; vice == faulty.Slow && p50 < faulty.Delay.Seconds()*1000 {
				t.Errorf("%s: the median is %v ms, of a store that takes %v", op, p50, faulty.Delay)
			}
			if vice <= faulty.Slow && (row.Limiter == "" || len(result.Recording.AllLatencies()) != 1) {
				t.Errorf("%s: limited by %q, %d latencies", op, row.Limiter, len(result.Recording.AllLatencies()))
			}
		}
	})
}
