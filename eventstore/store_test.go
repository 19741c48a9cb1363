package eventstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
)

var (
	migrated, ensureStore = eventstore.Migrated, eventstore.EnsureStore
	slow, begin, mustExec = eventstore.Slow, eventstore.Begin, eventstore.MustExec
)

// poolOf is a pool as of another process.
func poolOf(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	return eventstore.PoolOf(t, url, 0)
}

// setup returns a migrated database.
func setup(t testing.TB) pgtest.DB {
	t.Helper()
	return migrated.Open(t)
}

// opened is the default Store of a database of its own.
func opened(t testing.TB) (pgtest.DB, *eventstore.Store) {
	t.Helper()
	db := setup(t)
	return db, open(t, db.Pool, eventstore.Config{})
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

// allOf is the position of each event.
func allOf(at eventstore.Appended, err error) (all []int64, _ error) {
	for p := at.First; err == nil && p <= at.Last; p++ {
		all = append(all, p)
	}
	return all, err
}

// lookupStore is ensureStore for one that there is.
func lookupStore(ctx context.Context, pool *pgxpool.Pool, name string, cfg eventstore.Config) (*eventstore.Store, error) {
	c, err := eventstore.Open(ctx, pool, cfg)
	if err != nil {
		return nil, err
	}
	return c.Lookup(ctx, name)
}

// follow is a subscription that is closed with the test.
func follow(t *testing.T, s *eventstore.Store, q eventstore.Query, after int64) *eventstore.Subscription {
	t.Helper()
	sub, err := s.Follow(q, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Close)
	return sub
}
