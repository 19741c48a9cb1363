package eventstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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

// slow skips a test that takes more than about a second, if that is too long.
func slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
}

// begin begins a transaction that ends with the test at the latest.
func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
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
