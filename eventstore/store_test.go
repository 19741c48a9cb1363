package eventstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

var migrated = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

// setup returns a migrated database.
func setup(t testing.TB) pgtest.DB {
	t.Helper()
	return migrated.Open(t)
}

// soon returns a context that ends after a minute, so that a test that would wait forever
// fails instead.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// open returns the default Store, which is closed with the test, and openNamed another one.
func open(t testing.TB, pool *pgxpool.Pool, cfg eventstore.Config) *eventstore.Store {
	t.Helper()
	return openNamed(t, pool, "", cfg)
}

func openNamed(t testing.TB, pool *pgxpool.Pool, name string, cfg eventstore.Config) *eventstore.Store {
	t.Helper()
	s, err := ensureStore(t.Context(), pool, name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func event(eventType string, tags ...string) eventstore.Event {
	return eventstore.Event{Type: eventType, Tags: tags, Data: []byte(`{}`), JSON: true}
}

func mustAppend(t testing.TB, s *eventstore.Store, events ...eventstore.Event) []int64 {
	t.Helper()
	positions, err := allOf(s.Append(t.Context(), events...))
	if err != nil {
		t.Fatal(err)
	}
	return positions
}

func everything(t testing.TB, s *eventstore.Store) []eventstore.Event {
	t.Helper()
	all, err := s.Query(t.Context(), eventstore.Everything(), eventstore.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAppendIf_FirstConflict(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	positions := mustAppend(t, s, event("A", "x:1"), event("B", "x:1", "y:2"), event("A", "x:1", "y:2"))
	if !slices.Equal(positions, []int64{1, 2, 3}) {
		t.Fatalf("positions %v", positions)
	}
	for _, c := range []struct {
		name  string
		query eventstore.Query
		after int64
		want  int64 // 0: no conflict
	}{
		{"everything", eventstore.Everything(), 0, 1},
		{"everything after", eventstore.Everything(), 2, 3},
		{"everything after the end", eventstore.Everything(), 3, 0},
		{"a type", eventstore.Typed("B"), 0, 2},
		{"any type of two", eventstore.Typed("C", "B"), 0, 2},
		{"a tag", eventstore.Tagged("y:2"), 0, 2},
		{"both tags", eventstore.Tagged("y:2", "x:1"), 2, 3},
		{"both tags, one unknown", eventstore.Tagged("y:2", "z:1"), 0, 0},
		{"type and tag", eventstore.Query{Items: []eventstore.Item{{Types: []string{"A"}, Tags: []string{"y:2"}}}}, 0, 3},
		{"or", eventstore.AnyOf(eventstore.Typed("C"), eventstore.Tagged("y:2")), 0, 2},
		{"nothing", eventstore.Typed("C"), 0, 0},
	} {
		_, err := s.AppendIf(t.Context(), []eventstore.Event{event("Z", "of:"+c.name)},
			eventstore.Condition{FailIfEventsMatch: c.query, After: c.after, WantEvents: 1})
		var conflict *eventstore.ConflictError
		switch {
		case c.want == 0 && err != nil:
			t.Errorf("%s: %v, want no conflict", c.name, err)
		case c.want == 0:
		case !errors.As(err, &conflict) || conflict.Position != c.want:
			t.Errorf("%s: %v, want a conflict at %d", c.name, err, c.want)
		case len(conflict.Events) != 1 || conflict.Events[0].Position != c.want || conflict.Events[0].Type != conflict.Type:
			t.Errorf("%s: events %v", c.name, conflict.Events)
		}
	}
	head, err := s.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.AppendIf(t.Context(), []eventstore.Event{event("Z")}, eventstore.Condition{FailIfEventsMatch: eventstore.Everything(), After: head + 1})
	var lost *eventstore.HistoryLostError
	if !errors.As(err, &lost) || lost.Last != head {
		t.Errorf("past the end: %v, want that the last event is at %d", err, head)
	}
}

func TestQuery_DirectionsLimitsAndBounds(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	for range 50 {
		mustAppend(t, s, event("odd", "n"), event("even", "n"), event("other"))
	}
	var all []int64
	for _, e := range everything(t, s) {
		all = append(all, e.Position)
	}
	tagged := slices.DeleteFunc(slices.Clone(all), func(p int64) bool { return p%3 == 0 })
	for _, c := range []struct {
		query   eventstore.Query
		options eventstore.ReadOptions
		want    []int64
	}{
		{eventstore.Everything(), eventstore.ReadOptions{}, all},
		{eventstore.Tagged("n"), eventstore.ReadOptions{}, tagged},
		{eventstore.Typed("odd", "even"), eventstore.ReadOptions{Limit: 5}, tagged[:5]},
		{eventstore.Tagged("n"), eventstore.ReadOptions{After: tagged[9], Limit: 3}, tagged[10:13]},
		{eventstore.Tagged("n"), eventstore.ReadOptions{After: tagged[9], Before: tagged[13]}, tagged[10:13]},
		{eventstore.Tagged("n"), eventstore.ReadOptions{Before: tagged[9], Limit: 3, Backwards: true}, reversed(tagged[6:9])},
		{eventstore.Everything(), eventstore.ReadOptions{Backwards: true}, reversed(all)},
		{eventstore.Typed("odd", "even"), eventstore.ReadOptions{Backwards: true}, reversed(tagged)},
		{eventstore.Typed("none"), eventstore.ReadOptions{}, nil},
	} {
		var streamed []int64
		for e, err := range s.QueryStream(t.Context(), c.query, c.options) {
			if err != nil {
				t.Fatal(err)
			}
			streamed = append(streamed, e.Position)
		}
		events, err := s.Query(t.Context(), c.query, c.options)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, e := range events {
			got = append(got, e.Position)
		}
		if !slices.Equal(got, c.want) || !slices.Equal(streamed, c.want) {
			t.Errorf("%v %+v:\nQuery       %v\nQueryStream %v\nwant        %v", c.query, c.options, got, streamed, c.want)
		}
	}
}

func reversed(positions []int64) []int64 {
	positions = slices.Clone(positions)
	slices.Reverse(positions)
	return positions
}

// allOf is the position of each event.
func allOf(at eventstore.Appended, err error) (all []int64, _ error) {
	for p := at.First; err == nil && p <= at.Last; p++ {
		all = append(all, p)
	}
	return all, err
}

// ensureStore returns the store of a new Client.
func ensureStore(ctx context.Context, pool *pgxpool.Pool, name string, cfg eventstore.Config) (*eventstore.Store, error) {
	c, err := eventstore.Open(ctx, pool, cfg)
	if err != nil {
		return nil, err
	}
	return c.Ensure(ctx, name)
}

// lookupStore is ensureStore for one that there is.
func lookupStore(ctx context.Context, pool *pgxpool.Pool, name string, cfg eventstore.Config) (*eventstore.Store, error) {
	c, err := eventstore.Open(ctx, pool, cfg)
	if err != nil {
		return nil, err
	}
	return c.Lookup(ctx, name)
}
