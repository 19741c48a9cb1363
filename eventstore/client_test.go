package eventstore_test

import (
	"errors"
	"testing"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// TestClient_OlderSchema: for a database that is not migrated, the error says what to do.
func TestClient_OlderSchema(t *testing.T) {
	t.Parallel()
	if _, err := eventstore.Open(t.Context(), pgtest.Open(t).Pool, eventstore.Config{}); !errors.Is(err, migrate.ErrOlder) {
		t.Errorf("got %v", err)
	}
}

// TestClient_Stores: a Client runs one Store per event store, until it is closed.
func TestClient_Stores(t *testing.T) {
	t.Parallel()
	db := setup(t)
	c, err := eventstore.Open(t.Context(), db.Pool, eventstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Lookup(t.Context(), "seats"); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("a store that there is not: %v", err)
	}
	get := func(from func() (*eventstore.Store, error)) *eventstore.Store {
		t.Helper()
		s, err := from()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ensure := func() (*eventstore.Store, error) { return c.Ensure(t.Context(), "seats") }
	first := get(ensure)
	if get(ensure) != first || get(func() (*eventstore.Store, error) { return c.Lookup(t.Context(), "seats") }) != first {
		t.Error("one store runs twice")
	}
	mustAppend(t, first, event("A"))
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := get(ensure)
	mustAppend(t, second, event("B"))
	if err := c.Drop(t.Context(), "seats"); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Append(t.Context(), event("C")); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("an append to what is dropped: %v", err)
	}
	third := get(ensure)
	mustAppend(t, third, event("D"))
	for range 2 {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	_, appended := third.Append(t.Context(), event("E"))
	_, opened := ensure()
	for what, err := range map[string]error{"Append": appended, "Ensure": opened} {
		if !errors.Is(err, eventstore.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", what, err)
		}
	}
}
