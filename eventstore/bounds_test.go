package eventstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
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

func TestQuery_TooLarge(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	item := eventstore.Item{}
	for n := range eventstore.MaxItemTypes {
		item.Types = append(item.Types, fmt.Sprint("type", n))
	}
	for n := range eventstore.MaxTags {
		item.Tags = append(item.Tags, fmt.Sprint(n, strings.Repeat("x", 1000)))
	}
	q := eventstore.Query{Items: []eventstore.Item{{}, item}}
	_, err := s.AppendIf(t.Context(), []eventstore.Event{event("A")}, eventstore.Condition{FailIfEventsMatch: q})
	var problem *eventstore.InvalidError
	if !errors.As(err, &problem) || problem.Field != "condition.items[1].tags" {
		t.Errorf("%v, want an InvalidError on condition.items[1].tags", err)
	}
}

func TestQuery_MaxBytes(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	for range 5 {
		mustAppend(t, s, eventstore.Event{Type: "A", Tags: []string{"t", strings.Repeat("x", 98)}, Data: make([]byte, 900)})
	}
	for _, c := range []struct{ maxBytes, want int }{{1, 1}, {1000, 1}, {1001, 2}, {3000, 3}, {4001, 5}, {1 << 30, 5}} {
		for _, q := range []eventstore.Query{eventstore.Everything(), eventstore.Tagged("t")} {
			for _, backwards := range []bool{false, true} {
				o := eventstore.ReadOptions{MaxBytes: c.maxBytes, Backwards: backwards}
				events, err := s.Query(t.Context(), q, o)
				streamed := 0
				for range s.QueryStream(t.Context(), q, o) {
					streamed++
				}
				if err != nil || len(events) != c.want || streamed != c.want {
					t.Errorf("%+v: %d events, %d streamed, want %d; %v", o, len(events), streamed, c.want, err)
				}
			}
		}
	}
	if _, err := s.Query(t.Context(), eventstore.Everything(), eventstore.ReadOptions{MaxBytes: -1}); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

// TestAppendIf_HistoryLostWhileIdle: the last event is lost, as in a failover, while the
// Store is idle. Its copy in memory must not cause a conflict.
func TestAppendIf_HistoryLostWhileIdle(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]time.Duration{"closed": time.Millisecond, "open": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			s := open(t, db.Pool, eventstore.Config{IdleTimeout: idle})
			mustAppend(t, s, event("A"))
			mustAppend(t, s, event("Lost", "x"))
			for _, sql := range []string{
				`DELETE FROM tidewire.events_1 WHERE position = 2`, `DELETE FROM tidewire.events_1_tag WHERE position = 2`,
				`DELETE FROM tidewire.events_1_batch WHERE position = 2`, `SELECT setval('tidewire.events_1_position_seq', 1)`,
			} {
				mustExec(t, db.Pool, sql)
			}
			time.Sleep(1100 * time.Millisecond) // longer than a connection is trusted
			_, err := s.AppendIf(t.Context(), []eventstore.Event{event("B")}, eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("x"), After: 1})
			if err != nil {
				t.Errorf("refused for an event that is gone: %v", err)
			}
		})
	}
}

// cutBehindAppend is a connection that is lost when a batch was sent; before
// that it calls sent. The answer to the batch never arrives: pgx reads already
// while a write takes long.
type cutBehindAppend struct {
	net.Conn
	sent func()
	lost atomic.Bool
}

func (c *cutBehindAppend) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte("_append\x00")) || !bytes.Contains(b, []byte(pg.StmtCommit)) {
		return c.Conn.Write(b)
	}
	c.lost.Store(true)
	n, err := c.Conn.Write(b)
	c.sent()
	c.Conn.Close()
	return n, err
}

func (c *cutBehindAppend) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lost.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// TestAppend_OutcomeUnknown: the connection is lost after a batch was sent, and
// PostgreSQL rejects the next login.
func TestAppend_OutcomeUnknown(t *testing.T) {
	t.Parallel()
	db := setup(t)
	open(t, db.Pool, eventstore.Config{})
	other, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	name := other.Database
	other.Database = "postgres"
	admin, err := pgx.ConnectConfig(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	letIn := func(really bool) {
		if _, err := admin.Exec(context.Background(), fmt.Sprintf(`ALTER DATABASE %s ALLOW_CONNECTIONS %t`, name, really)); err != nil {
			t.Error(err)
		}
	}
	defer letIn(true)
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cutBehindAppend{Conn: conn, sent: func() { letIn(false) }}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := lookupStore(t.Context(), pool, "", eventstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if _, err := s.Append(t.Context(), event("A")); !errors.Is(err, eventstore.ErrOutcomeUnknown) {
		t.Errorf("%v, want ErrOutcomeUnknown", err)
	}
	if _, err := s.Append(t.Context(), event("B")); err == nil || errors.Is(err, eventstore.ErrOutcomeUnknown) {
		t.Errorf("%v, want that nothing was stored", err)
	}
}

// TestAppend_TakesTooLong: PostgreSQL cannot write one event of a batch in time. The
// other events are written, and the append of this one fails.
func TestAppend_TakesTooLong(t *testing.T) {
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
	waitFor(t, func() bool {
		var waiting int
		err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&waiting)
		return err == nil && waiting > 0
	})
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

// TestSubscription_LeavesConnections: more subscriptions read than there are
// connections, and none of their reads ends.
func TestSubscription_LeavesConnections(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db.URL, 4)
	s := open(t, pool, eventstore.Config{NoListen: true, Poll: time.Hour})
	lock, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), `LOCK TABLE tidewire.events_1_tag IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	defer lock.Rollback(context.Background())
	for range 10 {
		sub, err := s.Follow(eventstore.Tagged("x"), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		reading.Go(func() { sub.Next(ctx) })
	}
	waitFor(t, func() bool { return pool.Stat().AcquiredConns() >= 2 })
	short, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	for range 2 {
		conn, err := pool.Acquire(short)
		if err != nil {
			t.Fatalf("no connection is left for appends: %v", err)
		}
		defer conn.Release()
	}
}

// TestQuery_LeavesConnections: more queries wait for PostgreSQL than the pool has
// connections, but an append still gets one.
func TestQuery_LeavesConnections(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db.URL, 4)
	s := open(t, pool, eventstore.Config{NoListen: true})
	lock, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), `LOCK TABLE tidewire.events_1_tag IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	defer lock.Rollback(context.Background())
	var begun atomic.Int32
	for range 10 {
		reading.Go(func() {
			begun.Add(1)
			s.Query(ctx, eventstore.Tagged("x"), eventstore.ReadOptions{})
		})
	}
	waitFor(t, func() bool { return begun.Load() == 10 && pool.Stat().AcquiredConns() >= 2 })
	for range 50 { // for the others to try
		if taken := pool.Stat().AcquiredConns(); taken > 2 {
			t.Fatalf("queries have taken %d of 4 connections", taken)
		}
		time.Sleep(5 * time.Millisecond)
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
	sub, err := s.Follow(eventstore.Tagged("x", "y"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
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

// TestClose_ByMany closes while appends wait for room in a batch.
func TestClose_ByMany(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s := open(t, db.Pool, eventstore.Config{MaxBatch: 1})
	holder := holdLock(t, db.URL, "a stranger", s)
	var running sync.WaitGroup
	var begun atomic.Int32
	for range 20 {
		running.Go(func() {
			begun.Add(1)
			if _, err := s.Append(t.Context(), event("A")); err != nil && !errors.Is(err, eventstore.ErrClosed) {
				t.Error(err)
			}
		})
	}
	waitFor(t, func() bool { return begun.Load() == 20 })
	time.Sleep(20 * time.Millisecond) // most of them wait for room
	for range 10 {
		running.Go(func() {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	if _, err := holder.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	running.Wait()
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
