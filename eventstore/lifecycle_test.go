package eventstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/testkit"
)

// holdLock makes a connection with that application_name hold the store's lock, and wait
// for its client.
func holdLock(t *testing.T, url, name string, s *eventstore.Store) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["application_name"] = name
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	mustExec(t, conn, `BEGIN`)
	mustExec(t, conn, `SELECT pg_advisory_xact_lock(1953064037, 1073741824 + $1)`, s.ID())
	return conn
}

// TestAppendTx_HeldForLong: a caller's transaction may hold the lock for any time, also on
// a pool of Tidewire; other appends wait for it.
func TestAppendTx_HeldForLong(t *testing.T) {
	t.Parallel()
	db := setup(t)
	var log testkit.Log
	s := open(t, db.Pool, eventstore.Config{LockTimeout: 20 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
	pool, err := pg.Open(t.Context(), pg.PoolConfig{URL: db.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	tx := begin(t, pool)
	if _, err := s.AppendTx(t.Context(), tx, event("First")); err != nil {
		t.Fatal(err)
	}
	var appending sync.WaitGroup
	appending.Go(func() { mustAppend(t, s, event("Second")) })
	testkit.Eventually(t, "it tries several times", func() bool { return log.Count("\n") >= 5 }) // each time it looks whom to end
	if err := tx.Commit(t.Context()); err != nil {
		t.Errorf("the caller's transaction: %v", err)
	}
	appending.Wait()
	if log.Count("attempt=1 ") != 1 || log.Count("attempt=0 ") > 0 {
		t.Errorf("the attempts are not counted from 1: %s", log.String())
	}
	if all := everything(t, s); len(all) != 2 || all[0].Type != "First" || all[1].Type != "Second" {
		t.Errorf("events %+v, want First and Second", all)
	}
}

func TestClose_Abandons(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s, err := ensureStore(t.Context(), db.Pool, "", eventstore.Config{LockTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	holdLock(t, db.URL, "a stranger", s) // whom nobody may end
	var appending sync.WaitGroup
	for range 3 {
		appending.Go(func() {
			if _, err := s.Append(t.Context(), event("A")); !errors.Is(err, eventstore.ErrOutcomeUnknown) && !errors.Is(err, eventstore.ErrClosed) {
				t.Errorf("%v, want ErrOutcomeUnknown, or ErrClosed if it came late", err)
			}
		})
	}
	waitForLock(t, db.Pool)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, eventstore.ErrOutcomeUnknown) {
		t.Errorf("%v, want ErrOutcomeUnknown", err)
	}
	appending.Wait()
}

// waitForLock waits until a session waits for a lock.
func waitForLock(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	testkit.Eventually(t, "a session waits for a lock", func() bool {
		var waiting int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting > 0
	})
}

// TestClose_AnswersWhatWasAccepted closes several times under load, with callers that wait for room in a batch: every append is
// answered with positions that hold its event, or was not accepted.
func TestClose_AnswersWhatWasAccepted(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s, reader := open(t, db.Pool, eventstore.Config{MaxBatch: 2}), open(t, poolOf(t, db.URL), eventstore.Config{})
	var answered sync.Map
	var answers atomic.Int64
	var running sync.WaitGroup
	begun := make(chan struct{}, 1000)
	for c := range 20 {
		running.Go(func() {
			for n := 0; ; n++ {
				name := fmt.Sprint(c, " ", n)
				at, err := s.Append(t.Context(), event("A", name))
				if errors.Is(err, eventstore.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				answered.Store(at.First, name)
				answers.Add(1)
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 100 {
		<-begun
	}
	for range 5 {
		running.Go(func() {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	all := everything(t, reader)
	if int64(len(all)) != answers.Load() {
		t.Errorf("%d events stored, %d answered", len(all), answers.Load())
	}
	for _, e := range all {
		if name, _ := answered.Load(e.Position); name != e.Tags[0] {
			t.Errorf("%q at %d, answered was %q", e.Tags[0], e.Position, name)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := reader.Close(ended); err != nil { // it abandons nothing
		t.Error(err)
	}
}

// TestQueryStream_LargeEvents reads in pages that are limited by their bytes.
func TestQueryStream_LargeEvents(t *testing.T) {
	slow(t)
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	const events = 9
	for n := range events {
		mustAppend(t, s, eventstore.Event{Type: "Large", Tags: []string{"t"}, Data: bytes.Repeat([]byte{byte(n)}, 400<<10)}, event("Small", "t"))
	}
	for _, q := range []eventstore.Query{eventstore.Everything(), eventstore.Tagged("t"), eventstore.AnyOf(eventstore.Typed("Large"), eventstore.Tagged("t"))} {
		for _, o := range []eventstore.ReadOptions{{}, {Backwards: true}, {Limit: 7}, {After: 3, Before: 12, Backwards: true}} {
			want, err := s.Query(t.Context(), q, o)
			if err != nil {
				t.Fatal(err)
			}
			var got []eventstore.Event
			for e, err := range s.QueryStream(t.Context(), q, o) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e)
			}
			if !slices.EqualFunc(got, want, func(a, b eventstore.Event) bool { return a.Position == b.Position && bytes.Equal(a.Data, b.Data) }) {
				t.Errorf("%+v %+v: %d events streamed, %d queried", q, o, len(got), len(want))
			}
		}
	}
}

// TestQuery_Allocations: a page takes a few allocations, independent of its number of
// events.
func TestQuery_Allocations(t *testing.T) {
	s := open(t, setup(t).Pool, eventstore.Config{})
	for n := range 100 {
		mustAppend(t, s, event("Enrolled", "course:1", fmt.Sprint("student:", n)))
	}
	allocs := testing.AllocsPerRun(20, func() {
		if events, err := s.Query(t.Context(), eventstore.Tagged("course:1"), eventstore.ReadOptions{}); err != nil || len(events) != 100 {
			t.Error(len(events), err)
		}
	})
	if allocs > 100 {
		t.Errorf("%.0f allocations for 100 events, want at most 100", allocs)
	}
}

// TestDrop waits for a reader, ends what is open, and leaves nothing. Subscriptions and Watch end too, although another store gets
// the name.
func TestDrop(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s := open(t, db.Pool, eventstore.Config{Poll: 10 * time.Millisecond})
	sub := follow(t, s, eventstore.Everything(), mustAppend(t, s, event("A"))[0])
	ended := make(chan error, 2)
	go func() { ended <- nextError(t, sub) }()
	go func() {
		ended <- s.Watch(t.Context(), eventstore.Condition{FailIfEventsMatch: eventstore.Typed("none")})
	}()
	reader := begin(t, db.Pool)
	mustExec(t, reader, fmt.Sprintf(`SELECT FROM tidewire.events_%d`, s.ID()))
	dropped := make(chan error, 1)
	go func() { dropped <- eventstore.Drop(t.Context(), db.Pool, s.Name()) }()
	mustAppend(t, s, event("B")) // nobody waits after the drop
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-dropped; err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), event("C")); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("append to a dropped store: %v", err)
	}
	if _, err := s.Query(t.Context(), eventstore.Everything(), eventstore.ReadOptions{}); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("query of a dropped store: %v", err)
	}
	if err := eventstore.Drop(t.Context(), db.Pool, s.Name()); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("drop again: %v", err)
	}
	var left int
	err := db.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'events\_%') + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'events\_%')`).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d tables and functions are left, %v", left, err)
	}
	if again := open(t, db.Pool, eventstore.Config{}); again.ID() == s.ID() {
		t.Error("the id was used again")
	}
	for range 2 {
		if err := <-ended; !errors.Is(err, eventstore.ErrNotFound) {
			t.Errorf("a subscription or Watch: %v, want ErrNotFound", err)
		}
	}
}
