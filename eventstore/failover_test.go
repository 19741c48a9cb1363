package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// wantLost fails the test unless err is a HistoryLostError with that Last.
func wantLost(t *testing.T, what string, err error, last int64) {
	t.Helper()
	var lost *eventstore.HistoryLostError
	if !errors.As(err, &lost) || lost.Last != last || !errors.Is(err, eventstore.ErrHistoryLost) {
		t.Errorf("%s: %v, want a HistoryLostError with %d", what, err, last)
	}
}

// reached repeats a read that meets a connection to the server that was killed: a pool has several.
func reached(read func() error) (err error) {
	for err = read(); pg.Retryable(err); err = read() {
	}
	return err
}

// TestFailover_Asynchronous: the promoted standby lacks the last events. Their positions are never used again, and appends that
// were decided by them are rejected.
func TestFailover_Asynchronous(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	pool := poolOf(t, p.Both(t))
	s := open(t, pool, eventstore.Config{Poll: 100 * time.Millisecond})
	seat := func(n int) []eventstore.Event { return []eventstore.Event{event("Taken", fmt.Sprint("seat:", n))} }
	taken := func(n int, after int64) eventstore.Condition {
		return eventstore.Condition{FailIfEventsMatch: eventstore.Tagged(fmt.Sprint("seat:", n)), After: after}
	}
	var kept, lost []int64
	for range 20 {
		kept = append(kept, mustAppend(t, s, event("Kept"))...)
	}
	p.CatchUp(t)
	p.Detach(t)
	for range 10 {
		lost = append(lost, mustAppend(t, s, event("Lost"))...)
	}
	live, err := s.Follow(eventstore.Everything(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	nextError := func(sub *eventstore.Subscription) error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for {
			if _, err := sub.Next(ctx); err != nil {
				return err
			}
		}
	}
	for live.Position() < lost[9] {
		if _, err := live.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.Promote(t)
	end := kept[19]

	wantLost(t, "a subscription that had all", nextError(live), end)
	_, err = s.AppendIf(t.Context(), seat(1), taken(1, lost[9]))
	wantLost(t, "a decision by what is lost", err, end)
	first, err := allOf(s.AppendIf(t.Context(), seat(1), taken(1, end)))
	if err != nil || first[0] <= lost[9] {
		t.Fatalf("the seat is at %v, %v", first, err)
	}
	other := open(t, poolOf(t, p.Standby.URL()), eventstore.Config{})
	for name, store := range map[string]*eventstore.Store{"the same": s, "another": other} {
		_, err = store.AppendIf(t.Context(), seat(1), taken(1, lost[5]))
		wantLost(t, name+": a decision by what is lost, later", err, end)
		_, err = store.AppendIf(t.Context(), seat(1), taken(1, end))
		if !errors.Is(err, eventstore.ErrConflict) {
			t.Errorf("%s: the seat taken twice: %v", name, err)
		}
		wantLost(t, name+": a query", reached(func() error {
			_, err := store.Query(t.Context(), eventstore.Everything(), eventstore.ReadOptions{After: lost[3]})
			return err
		}), end)
		wantLost(t, name+": a stream of events", reached(func() (err error) {
			for _, err = range store.QueryStream(t.Context(), eventstore.Everything(), eventstore.ReadOptions{After: lost[3]}) {
			}
			return err
		}), end)
		if events, err := store.Query(t.Context(), eventstore.Everything(), eventstore.ReadOptions{After: end}); err != nil || len(events) != 1 {
			t.Errorf("%s: after the last that is kept %d events, %v", name, len(events), err)
		}
		sub, err := store.Follow(eventstore.Everything(), lost[3])
		if err != nil {
			t.Fatal(err)
		}
		wantLost(t, name+": a new subscription", nextError(sub), end)
		sub.Close()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.AppendIfTx(t.Context(), tx, seat(2), taken(2, lost[9]))
		wantLost(t, name+": a decision in a transaction", err, end)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sub, err := other.Follow(eventstore.Everything(), kept[5])
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	n := 0
	for sub.Position() < first[0] {
		events, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n += len(events)
	}
	if n != 15 {
		t.Errorf("%d events from the 7th on, want 15", n)
	}
}

// TestFailover_FindLost: the Store that has stored the lost events reports the loss once, whether it appends again or not.
func TestFailover_FindLost(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	pool := poolOf(t, p.Both(t))
	idle, busy := open(t, pool, eventstore.Config{}), open(t, pool, eventstore.Config{})
	kept := mustAppend(t, idle, event("Kept"), event("Kept"))
	mustAppend(t, busy, event("Kept"))
	find := func(what string, s *eventstore.Store, want int64) {
		t.Helper()
		if n, err := s.FindLost(t.Context()); err != nil || n != want {
			t.Errorf("%s: %d positions are lost, want %d: %v", what, n, want, err)
		}
	}
	find("no failover", idle, 0)
	p.CatchUp(t)
	p.Detach(t)
	for range 3 {
		mustAppend(t, idle, event("Lost"))
	}
	lost := mustAppend(t, busy, event("Lost"), event("Lost"))
	if _, err := busy.AppendIf(t.Context(), []eventstore.Event{event("Refused")}, eventstore.Condition{FailIfEventsMatch: eventstore.Everything()}); !errors.Is(err, eventstore.ErrConflict) {
		t.Fatal(err)
	}
	p.Promote(t)
	if first := mustAppend(t, busy, event("New")); first[0] <= lost[1] {
		t.Fatalf("position %d comes again", first[0])
	}
	end := kept[1] + 1
	find("a store that has gone on", busy, lost[1]-end)
	find("the same again", busy, 0)
	find("a store that has not", idle, lost[1]-2-end)
	mustAppend(t, idle, event("New"))
	find("the same later", idle, 0)
}
