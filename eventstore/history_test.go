package eventstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestHistory_BegunByARefused: after each of two failovers the first append is rejected and rolls back. A condition that relies
// on events lost in the first failover is never accepted.
func TestHistory_BegunByARefused(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s := open(t, db.Pool, eventstore.Config{})
	var kept, lost int64
	for range 5 {
		kept = mustAppend(t, s, event("Kept", "seat:0"))[0]
	}
	for range 5 {
		lost = mustAppend(t, s, event("Lost"))[0]
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`DELETE FROM tidewire.events_1_tag WHERE position > 5`)
	exec(`DELETE FROM tidewire.events_1 WHERE position > 5`)
	stale := eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("seat:1"), After: lost}
	for _, what := range []string{"after one failover", "after two"} {
		exec(`SELECT setval('tidewire.history_seq', (pg_sequence_last_value('tidewire.history_seq') >> 32 << 32) | (tidewire.timeline() + 7))`)
		tx, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.AppendIfTx(t.Context(), tx, []eventstore.Event{event("X")}, eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("seat:0")})
		if !errors.Is(err, eventstore.ErrConflict) {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := open(t, db.Pool, eventstore.Config{})
		if at := mustAppend(t, other, event("Taken", "seat:2"))[0]; at <= lost {
			t.Fatal(at)
		}
		_, err = other.AppendIf(t.Context(), []eventstore.Event{event("Taken", "seat:1")}, stale)
		wantLost(t, what, err, kept)
		_, err = other.Query(t.Context(), eventstore.Everything(), eventstore.ReadOptions{After: lost})
		wantLost(t, "a query "+what, err, kept)
	}
}

// TestFailover_Watch: a Watch of a condition that relies on lost events fails. A store that is created after the failover does
// not get the id of a lost store. The losses of two failovers are found.
func TestFailover_Watch(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	pool := poolOf(t, p.Both(t))
	s := open(t, pool, eventstore.Config{Poll: 100 * time.Millisecond})
	end := mustAppend(t, s, event("Kept"), event("Kept"))[1]
	p.CatchUp(t)
	p.Detach(t)
	lost := mustAppend(t, s, event("Taken", "seat:1"), event("Lost"), event("Lost"))[2]
	watching := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("seat:1"), After: lost}
	go func() { watching <- s.Watch(ctx, c) }()
	gone, err := ensureStore(t.Context(), pool, "gone", eventstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gone.Close(context.Background()) })
	mustAppend(t, gone, event("Lost"))

	after := p.Promote(t)
	other, err := ensureStore(t.Context(), after, "other", eventstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close(context.Background()) })
	if _, err := gone.Append(t.Context(), event("Crossed")); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("an append to a lost store: %v", err)
	}
	mustAppend(t, s, event("New", "seat:5"))
	wantLost(t, "a watch that was there", <-watching, end)
	wantLost(t, "a new watch", s.Watch(ctx, c), end)
	if _, err := after.Exec(t.Context(), `SELECT tidewire.begin_history()`); err != nil { // as another failover, which loses nothing
		t.Fatal(err)
	}
	mustAppend(t, s, event("Newer"))
	if n, err := s.FindLost(t.Context()); err != nil || n != 3 {
		t.Errorf("%d positions are lost, want 3: %v", n, err)
	}
}
