package postgres

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
)

// TestEvents_CreateListDrop: stores that one server makes and drops are known to another.
func TestEvents_CreateListDrop(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	one, two := startEngine(t, db), startEngine(t, db)
	ctx := t.Context()
	event := []engine.Event{{Type: "A"}}
	must(t, one.events.Create(ctx, "orders"), one.events.Create(ctx, "orders"), two.events.Create(ctx, "bills"))
	for n := range int64(3) { // in a store that was made anew, by both servers
		for _, e := range []*Engine{two, one} {
			at, err := e.events.Append(ctx, "orders", nil, event, nil)
			if must(t, err); len(at.Positions) != 1 || at.Duplicate {
				t.Errorf("%+v", at)
			}
		}
		for _, e := range []*Engine{two, one} {
			if head, err := e.events.Head(ctx, "orders"); err != nil || head != 2 {
				t.Errorf("round %d: the last is at %d, %v, want 2", n, head, err)
			}
			if events, err := e.events.Query(ctx, "orders", engine.EventQuery{}, engine.EventRange{Limit: 10}); err != nil || len(events) != 2 {
				t.Errorf("round %d: %d events, %v, want 2", n, len(events), err)
			}
		}
		if names, err := two.events.List(ctx); err != nil || !slices.Equal(names, []string{"bills", "orders"}) {
			t.Errorf("%q, %v", names, err)
		}
		must(t, one.events.Drop(ctx, "orders"), one.events.Create(ctx, "orders"))
	}
	must(t, two.events.Drop(ctx, "orders"))
	for _, e := range []*Engine{one, two} {
		_, err := e.events.Append(ctx, "orders", nil, event, nil)
		wantNoEventStore(t, err)
		_, err = e.events.Head(ctx, "none")
		wantNoEventStore(t, err)
		wantNoEventStore(t, e.events.Drop(ctx, "orders"))
		_, err = e.events.SubscribeEvents(ctx, "none", engine.EventQuery{}, 0)
		wantNoEventStore(t, err)
	}
	if err := one.events.Create(ctx, strings.Repeat("x", 1000)); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a long name: %v", err)
	}
}

// wantNoEventStore wants an error whose text for clients speaks of an event store.
func wantNoEventStore(t *testing.T, err error) {
	t.Helper()
	public, ok := errors.AsType[*engine.Error](err)
	if !ok || !errors.Is(err, engine.ErrNotFound) || public.Code != engine.CodeNotFound || !strings.HasPrefix(public.Text, "there is no event store") {
		t.Errorf("%v, want ErrNoEventStore", err)
	}
}

// TestEvents_DefaultStoreIsMadeAgain when it is next used.
func TestEvents_DefaultStoreIsMadeAgain(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	one, two := startEngine(t, db), startEngine(t, db)
	for range 2 {
		for i, e := range []*Engine{one, two} {
			at, err := e.events.Append(t.Context(), "", nil, []engine.Event{{Type: "A"}}, nil)
			if must(t, err); !slices.Equal(at.Positions, []int64{int64(i + 1)}) {
				t.Errorf("%+v", at)
			}
		}
		must(t, one.events.Drop(t.Context(), ""))
	}
}
