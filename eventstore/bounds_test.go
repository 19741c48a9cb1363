package eventstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/testkit"
)

func mustExec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// smallPool is a pool with that number of connections.
func smallPool(t *testing.T, url string, conns int) *pgxpool.Pool {
	t.Helper()
	pool, err := pg.Open(t.Context(), pg.PoolConfig{URL: url, MaxConns: conns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestQuery_MaxBytes(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	for range 5 {
		mustAppend(t, s, eventstore.Event{Type: "A", Tags: []string{"t", strings.Repeat("x", 98)}, Data: make([]byte, 900)})
	}
	for _, c := range []struct{ maxBytes, want int }{{1, 1}, {1000, 1}, {1001, 2}, {3000, 3}, {4001, 5}, {1 << 30, 5}} {
		for _, q := range []eventstore.Query{eventstore.Everything(), eventstore.Tagged("t")} {
			if events, err := s.Query(t.Context(), q, eventstore.ReadOptions{MaxBytes: c.maxBytes}); err != nil || len(events) != c.want {
				t.Errorf("%d bytes: %d events, want %d; %v", c.maxBytes, len(events), c.want, err)
			}
		}
	}
	if _, err := s.Query(t.Context(), eventstore.Everything(), eventstore.ReadOptions{MaxBytes: -1}); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

// TestAppend_TakesTooLong: PostgreSQL cannot write one event of a batch in time. The
// other events are written, and the append of this one fails.
func TestAppend_TakesTooLong(t *testing.T) {
	slow(t)
	t.Parallel()
	db := setup(t)
	s := open(t, db.Pool, eventstore.Config{Timeout: 500 * time.Millisecond})
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
	if _, err := holder.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	appending.Wait()
	if all := everything(t, s); len(all) != 4 {
		t.Errorf("%d events, want the four that are not slow", len(all))
	}
}

// TestAppend_NobodyWaits: an append whose caller has left is not written.
func TestAppend_NobodyWaits(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s := open(t, db.Pool, eventstore.Config{})
	holder := holdLock(t, db.URL, "a stranger", s)
	var appending sync.WaitGroup
	appending.Go(func() { mustAppend(t, s, event("First")) })
	waitForLock(t, db.Pool)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Append(ctx, event("Given up")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
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
		pool := smallPool(t, db.URL, 4)
		s := open(t, pool, eventstore.Config{NoListen: true, Poll: time.Hour})
		lock := begin(t, db.Pool)
		if _, err := lock.Exec(t.Context(), `LOCK TABLE tidewire.events_1_tag IN ACCESS EXCLUSIVE MODE`); err != nil {
			t.Fatal(err)
		}
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
	db := setup(t)
	s := open(t, db.Pool, eventstore.Config{})
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

// TestAppendIfTx_WantEvents reads them in the transaction: there is no other
// connection, and it has stored some of them itself.
func TestAppendIfTx_WantEvents(t *testing.T) {
	t.Parallel()
	db := setup(t)
	open(t, db.Pool, eventstore.Config{})
	pool := smallPool(t, db.URL, 1)
	s, err := lookupStore(t.Context(), pool, "", eventstore.Config{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := s.AppendTx(t.Context(), tx, event("Own", "x")); err != nil {
			return err
		}
		_, err := s.AppendIfTx(t.Context(), tx, []eventstore.Event{event("B")}, eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("x"), WantEvents: 5})
		var conflict *eventstore.ConflictError
		if !errors.As(err, &conflict) || len(conflict.Events) != 1 || conflict.Events[0].Type != "Own" {
			t.Errorf("%v, want a conflict with the event of its own", err)
		}
		_, err = s.AppendTx(t.Context(), tx, event("C"))
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDecide_WaitsForItsTurn: Decide waits while the only slot is taken.
func TestDecide_WaitsForItsTurn(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{MaxConcurrentProjections: 1})
	mustAppend(t, s, event("A"))
	count := func() *eventstore.Projection[int] {
		return eventstore.Projector[int]{Apply: func(n int, _ eventstore.Event) int { return n + 1 }}.Projection()
	}
	decided := make(chan error, 1)
	for range s.ProjectStream(t.Context(), count()) {
		if _, err := s.Project(t.Context(), count()); !errors.Is(err, eventstore.ErrTooManyProjections) {
			t.Errorf("%v, want ErrTooManyProjections", err)
		}
		go func() {
			_, err := s.Decide(t.Context(), func() ([]eventstore.Event, error) { return []eventstore.Event{event("B")}, nil }, count())
			decided <- err
		}()
		ended, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := s.Decide(ended, nil, count()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want its context's error", err)
		}
		cancel()
	}
	if err := <-decided; err != nil {
		t.Error(err)
	}
}
