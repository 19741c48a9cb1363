package eventstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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

// nextError is the error that ends a subscription.
func nextError(t *testing.T, sub *eventstore.Subscription) error {
	t.Helper()
	for {
		if _, err := sub.Next(soon(t)); err != nil {
			return err
		}
	}
}

// TestFailover: the promoted standby lacks the last events. Each scenario appends events that are kept, then, in lose, events that
// are lost, and checks what its Stores do after the failover.
func TestFailover(t *testing.T) {
	slow(t)
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	pool := poolOf(t, p.Both(t))
	var lose []func()
	var check []func(after *pgxpool.Pool)
	for _, scenario := range []func(*testing.T, *pgxpool.Pool) (func(), func(*pgxpool.Pool)){failoverOfSeats, failoverFound, failoverWatched} {
		l, c := scenario(t, pool)
		lose, check = append(lose, l), append(check, c)
	}
	p.CatchUp(t)
	p.Detach(t)
	for _, l := range lose {
		l()
	}
	after := p.Promote(t)
	for _, c := range check {
		c(after)
	}
}

// failoverOfSeats: positions of lost events are never used again, and appends that were decided by them are rejected.
func failoverOfSeats(t *testing.T, pool *pgxpool.Pool) (lose func(), check func(*pgxpool.Pool)) {
	s := open(t, pool, eventstore.Config{Poll: 100 * time.Millisecond})
	seat := func(n int) []eventstore.Event { return []eventstore.Event{event("Taken", fmt.Sprint("seat:", n))} }
	taken := func(n int, after int64) eventstore.Condition {
		return eventstore.Condition{FailIfEventsMatch: eventstore.Tagged(fmt.Sprint("seat:", n)), After: after}
	}
	var kept, lost []int64
	for range 20 {
		kept = append(kept, mustAppend(t, s, event("Kept"))...)
	}
	live, err := s.Follow(eventstore.Everything(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(live.Close)
	lose = func() {
		for range 10 {
			lost = append(lost, mustAppend(t, s, event("Lost"))...)
		}
		for live.Position() < lost[9] {
			if _, err := live.Next(soon(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return lose, func(after *pgxpool.Pool) {
		end := kept[19]
		wantLost(t, "a subscription that had all", nextError(t, live), end)
		_, err := s.AppendIf(t.Context(), seat(1), taken(1, lost[9]))
		wantLost(t, "a decision by what is lost", err, end)
		first, err := allOf(s.AppendIf(t.Context(), seat(1), taken(1, end)))
		if err != nil || first[0] <= lost[9] {
			t.Fatalf("the seat is at %v, %v", first, err)
		}
		other := open(t, after, eventstore.Config{})
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
			sub := follow(t, store, eventstore.Everything(), lost[3])
			wantLost(t, name+": a new subscription", nextError(t, sub), end)
			sub.Close()
			tx := begin(t, after)
			_, err = store.AppendIfTx(t.Context(), tx, seat(2), taken(2, lost[9]))
			wantLost(t, name+": a decision in a transaction", err, end)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		sub := follow(t, other, eventstore.Everything(), kept[5])
		n := 0
		for sub.Position() < first[0] {
			events, err := sub.Next(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			n += len(events)
		}
		if n != 15 {
			t.Errorf("%d events from the 7th on, want 15", n)
		}
	}
}

// failoverFound: the Store that has stored the lost events reports the loss once, whether it appends again or not.
func failoverFound(t *testing.T, pool *pgxpool.Pool) (lose func(), check func(*pgxpool.Pool)) {
	idle, busy := openNamed(t, pool, "found", eventstore.Config{}), openNamed(t, pool, "found", eventstore.Config{})
	mustAppend(t, idle, event("Kept"), event("Kept"))
	end := mustAppend(t, busy, event("Kept"))[0]
	find := func(what string, s *eventstore.Store, want int64) {
		t.Helper()
		if n, err := s.FindLost(t.Context()); err != nil || n != want {
			t.Errorf("%s: %d positions are lost, want %d: %v", what, n, want, err)
		}
	}
	find("no failover", idle, 0)
	var last int64
	lose = func() {
		mustAppend(t, idle, event("Lost"), event("Lost"), event("Lost"))
		last = mustAppend(t, busy, event("Lost"), event("Lost"))[1]
		if _, err := busy.AppendIf(t.Context(), []eventstore.Event{event("Refused")}, eventstore.Condition{FailIfEventsMatch: eventstore.Everything()}); !errors.Is(err, eventstore.ErrConflict) {
			t.Fatal(err)
		}
	}
	return lose, func(*pgxpool.Pool) {
		if first := mustAppend(t, busy, event("New")); first[0] <= last {
			t.Fatalf("position %d comes again", first[0])
		}
		find("a store that has gone on", busy, last-end)
		find("the same again", busy, 0)
		find("a store that has not", idle, last-2-end)
		mustAppend(t, idle, event("New"))
		find("the same later", idle, 0)
	}
}

// failoverWatched: a Watch of a condition that relies on lost events fails. A store that is created after the failover does not get
// the id of a lost store. The losses of two failovers are found.
func failoverWatched(t *testing.T, pool *pgxpool.Pool) (lose func(), check func(*pgxpool.Pool)) {
	s := openNamed(t, pool, "watched", eventstore.Config{Poll: 100 * time.Millisecond})
	end := mustAppend(t, s, event("Kept"), event("Kept"))[1]
	condition := eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("seat:1")}
	watching := make(chan error, 1)
	var gone *eventstore.Store
	lose = func() {
		condition.After = mustAppend(t, s, event("Taken", "seat:1"), event("Lost"), event("Lost"))[2]
		go func() { watching <- s.Watch(soon(t), condition) }()
		gone = openNamed(t, pool, "gone", eventstore.Config{})
		mustAppend(t, gone, event("Lost"))
	}
	return lose, func(after *pgxpool.Pool) {
		openNamed(t, after, "other", eventstore.Config{})
		if _, err := gone.Append(t.Context(), event("Crossed")); !errors.Is(err, eventstore.ErrNotFound) {
			t.Errorf("an append to a lost store: %v", err)
		}
		mustAppend(t, s, event("New", "seat:5"))
		wantLost(t, "a watch that was there", <-watching, end)
		wantLost(t, "a new watch", s.Watch(soon(t), condition), end)
		mustExec(t, after, `SELECT tidewire.begin_history()`) // as another failover, which loses nothing
		mustAppend(t, s, event("Newer"))
		if n, err := s.FindLost(t.Context()); err != nil || n != 3 {
			t.Errorf("%d positions are lost, want 3: %v", n, err)
		}
	}
}
