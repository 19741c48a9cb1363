package eventstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/testkit"
)

// TestAppend_TakesTooLong: PostgreSQL cannot write one event of a batch in time. The
// other events are written, and the append of this one fails.
func TestAppend_TakesTooLong(t *testing.T) {
	slow(t)
	t.Parallel()
	db := setup(t)
	s := open(t, db.Pool, eventstore.Config{Timeout: 3 * time.Second})
	mustExec(t, db.Pool, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$`)
	mustExec(t, db.Pool, `CREATE TRIGGER slow BEFORE INSERT ON tidewire.events_1 FOR EACH ROW WHEN (NEW.type = 'Slow') EXECUTE FUNCTION slow()`)
	holder := holdLock(t, db.URL, "a stranger", s)
	var appending sync.WaitGroup
	for n := range 5 {
		appending.Go(func() {
			name := "A"
			if n == 2 {
				name = "Slow"
			}
			_, err := s.Append(t.Context(), event(name))
			if n == 2 && !errors.Is(err, eventstore.ErrTooSlow) || n != 2 && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	mustExec(t, holder, `COMMIT`)
	appending.Wait()
	if all := everything(t, s); len(all) != 4 {
		t.Errorf("%d events, want the four that are not slow", len(all))
	}
}

// TestAppend_NobodyWaits: an append whose caller has left is not written.
func TestAppend_NobodyWaits(t *testing.T) {
	t.Parallel()
	db, s := opened(t)
	holder := holdLock(t, db.URL, "a stranger", s)
	var appending sync.WaitGroup
	appending.Go(func() { mustAppend(t, s, event("First")) })
	waitForLock(t, db.Pool)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Append(ctx, event("Given up")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	mustExec(t, holder, `COMMIT`)
	appending.Wait()
	mustAppend(t, s, event("Last"))
	if all := everything(t, s); len(all) != 2 {
		t.Errorf("%d events, want the first and the last", len(all))
	}
}

// TestReads_LeaveConnections: more subscriptions and queries read than there are connections, and none of their reads ends. They
// leave connections to appends.
func TestReads_LeaveConnections(t *testing.T) {
	t.Parallel()
	db := setup(t)
	for name, read := range map[string]func(context.Context, *eventstore.Store){
		"subscriptions": func(ctx context.Context, s *eventstore.Store) {
			if sub, err := s.Follow(eventstore.Tagged("x"), 0); err == nil {
				defer sub.Close()
				sub.Next(ctx)
			}
		},
		"queries": func(ctx context.Context, s *eventstore.Store) {
			s.Query(ctx, eventstore.Tagged("x"), eventstore.ReadOptions{})
		},
	} {
		pool := eventstore.PoolOf(t, db.URL, 4)
		s := open(t, pool, eventstore.Config{NoListen: true, Poll: time.Hour})
		lock := begin(t, db.Pool)
		mustExec(t, lock, `LOCK TABLE tidewire.events_1_tag IN ACCESS EXCLUSIVE MODE`)
		ctx, cancel := context.WithCancel(t.Context())
		var reading sync.WaitGroup
		for range 10 {
			reading.Go(func() { read(ctx, s) })
		}
		testkit.Eventually(t, "two of them read", func() bool { return pool.Stat().AcquiredConns() >= 2 })
		for range 2 {
			conn, err := pool.Acquire(soon(t))
			if err != nil {
				t.Fatalf("%s: no connection is left for appends: %v", name, err)
			}
			defer conn.Release()
		}
		cancel()
		reading.Wait()
		if err := lock.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSubscription_RareMatches: if a read of all positions takes too long, the
// subscription reads smaller ranges.
func TestSubscription_RareMatches(t *testing.T) {
	t.Parallel()
	db, s := opened(t)
	mustAppend(t, s, event("A", "x", "y"))
	mustExec(t, db.Pool, `SELECT setval('tidewire.events_1_position_seq', 3000000)`)
	want := mustAppend(t, s, event("A", "x", "y"))[0]
	const params = `after bigint, before bigint, max_rows int, max_bytes bigint, by_position boolean, backwards boolean, everything boolean, span bigint, patience int,
		drivers bigint[], others text[], signatures bigint[], type_hashes int[], types text[]`
	mustExec(t, db.Pool, `ALTER FUNCTION tidewire.events_1_page RENAME TO events_1_page_all`)
	mustExec(t, db.Pool, `CREATE FUNCTION tidewire.events_1_page(`+params+`,
	OUT head bigint, OUT positions bigint[], OUT page bytea, OUT searched bigint) LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF before - after > 300000 THEN
		RAISE EXCEPTION 'as if it took too long' USING ERRCODE = '57014';
	END IF;
	SELECT * INTO head, positions, page, searched
		FROM tidewire.events_1_page_all($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);
END $$`)
	sub := follow(t, s, eventstore.Tagged("x", "y"), 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, position := range []int64{1, want} {
		events, err := sub.Next(ctx)
		if err != nil || len(events) != 1 || events[0].Position != position {
			t.Fatalf("%v, %v, want the event at %d", events, err, position)
		}
	}
}
