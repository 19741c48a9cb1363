package queue_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

var migrated, mustExec = queue.Migrated, queue.MustExec

// setup is a queue in a database of its own.
func setup(t *testing.T, opts queue.Options) (pgtest.DB, *queue.Queue) {
	t.Helper()
	db := migrated.Open(t)
	q, err := queue.Ensure(t.Context(), db.Pool, "jobs", opts)
	if err != nil {
		t.Fatal(err)
	}
	return db, q
}

// shared migrates the database that tests share, which is that of the examples.
var shared = sync.OnceValue(func() error {
	pool, err := openMigrated(context.Background(), os.Getenv("DATABASE_URL"))
	if err == nil {
		pool.Close()
	}
	return err
})

// inShared returns the shared database, through a pool of the test.
func inShared(t *testing.T) pgtest.DB {
	t.Helper()
	if err := shared(); err != nil {
		t.Fatal(err)
	}
	db := pgtest.DB{URL: os.Getenv("DATABASE_URL")}
	db.Pool = newPool(t, db.URL)
	t.Cleanup(db.Pool.Close)
	return db
}

// queues counts the queues in the shared database.
var queues atomic.Int64

// ensureShared makes a queue in the shared database, for a test that looks at nothing else there.
func ensureShared(t *testing.T, db pgtest.DB, opts queue.Options) *queue.Queue {
	t.Helper()
	q, err := queue.Ensure(t.Context(), db.Pool, fmt.Sprint("jobs ", queues.Add(1)), opts)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// setupShared is setup in the shared database.
func setupShared(t *testing.T, opts queue.Options) *queue.Queue {
	t.Helper()
	return ensureShared(t, inShared(t), opts)
}

// kinds are queues of all kinds.
var kinds = map[string]queue.Options{"plain": {}, "priorities": {Priorities: 3}, "partitions": {Partitions: 3}}

// eachKind runs a test with a queue of each kind in the shared database, one after the other.
func eachKind(t *testing.T, opts queue.Options, test func(*testing.T, pgtest.DB, *queue.Queue)) {
	t.Helper()
	eachKindIn(t, inShared(t), opts, test)
}

func eachKindIn(t *testing.T, db pgtest.DB, opts queue.Options, test func(*testing.T, pgtest.DB, *queue.Queue)) {
	t.Helper()
	for name, kind := range kinds {
		opts.Priorities, opts.Partitions = kind.Priorities, kind.Partitions
		t.Run(name, func(t *testing.T) { test(t, db, ensureShared(t, db, opts)) })
	}
}

// newPool is the pool of a process of its own.
func newPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// tracer is called before each query, and before each batch of queries.
type tracer func(conn *pgx.Conn, queries ...*pgx.QueuedQuery)

func (f tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	f(conn, &pgx.QueuedQuery{SQL: q.SQL, Arguments: q.Args})
	return ctx
}

func (f tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	f(conn, b.Batch.QueuedQueries...)
	return ctx
}

func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// tracedPool is a pool whose queries a tracer sees.
func tracedPool(t *testing.T, url string, f tracer) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.Tracer, cfg.MaxConns = f, 12
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// elsewhere is the queue as another process sees it, through a pool of its own.
func elsewhere(t *testing.T, url, name string) (*pgxpool.Pool, *queue.Queue) {
	t.Helper()
	pool := newPool(t, url)
	t.Cleanup(pool.Close)
	q, err := queue.Lookup(t.Context(), pool, name)
	if err != nil {
		t.Fatal(err)
	}
	return pool, q
}

// start runs a Node until stop, which may be called more than once.
func start(t *testing.T, q *queue.Queue, cfg queue.NodeConfig) (n *queue.Node, stop func()) {
	t.Helper()
	n, cancel, ended := serveQueue(t, q, cfg)
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return n, stop
}

// quick is a Node that need not be waited for long.
func quick(cfg queue.NodeConfig) queue.NodeConfig {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&cfg.Poll, 100 * time.Millisecond}, {&cfg.PollJournal, 100 * time.Millisecond}, {&cfg.Lease, 5 * time.Second},
		{&cfg.Drain, 50 * time.Millisecond},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	return cfg
}

// enqueuer runs an Enqueuer to the queue until the test ends.
func enqueuer(t *testing.T, q *queue.Queue, cfg ...stream.AppenderConfig) *queue.Enqueuer {
	t.Helper()
	var all queue.EnqueuerConfig
	for _, c := range cfg {
		all.Appender = c
	}
	e := queue.NewEnqueuer(q, all)
	e.Start()
	t.Cleanup(e.Stop)
	return e
}

// enqueue enqueues messages with the texts given, all at once.
func enqueue(t *testing.T, n *queue.Node, texts ...string) {
	t.Helper()
	var msgs []queue.Message
	for _, text := range texts {
		msgs = append(msgs, queue.Message{Payload: []byte(text)})
	}
	mustEnqueue(t, n, msgs...)
}

func mustEnqueue(t *testing.T, n *queue.Node, msgs ...queue.Message) (first int64) {
	t.Helper()
	at, err := n.Enqueue(t.Context(), msgs...)
	if err != nil {
		t.Fatal(err)
	}
	return at.First
}

// keyed is a message with a key, graded one with a priority, and only one that is unique.
func keyed(key, text string) queue.Message { return queue.Message{Key: key, Payload: []byte(text)} }

func graded(priority int, text string) queue.Message {
	return queue.Message{Priority: priority, Payload: []byte(text)}
}

func only(key, text string, period time.Duration) queue.Message {
	return queue.Message{Payload: []byte(text), Unique: queue.Unique{Key: key, Period: period}}
}

// numbered is n texts.
func numbered(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

// receive waits for at least n deliveries, and receiveUpTo for exactly that many.
func receive(t *testing.T, c *queue.Consumer, n int) (ds []*queue.Delivery) {
	t.Helper()
	return receiveBy(t, n, false, func(ctx context.Context, _ int) ([]*queue.Delivery, error) { return c.Receive(ctx) })
}

func receiveUpTo(t *testing.T, c *queue.Consumer, n int) (ds []*queue.Delivery) {
	t.Helper()
	return receiveBy(t, n, true, c.ReceiveUpTo)
}

func receiveBy(t *testing.T, n int, exactly bool, some func(context.Context, int) ([]*queue.Delivery, error)) (ds []*queue.Delivery) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(ds) < n {
		more, err := some(ctx, n-len(ds))
		if err != nil {
			t.Fatalf("%d of %d messages received: %v", len(ds), n, err)
		}
		if exactly && len(more) > n-len(ds) {
			t.Fatalf("%d deliveries, want at most %d", len(more), n-len(ds))
		}
		ds = append(ds, more...)
	}
	return ds
}

// wantNothing wants no delivery for a while.
func wantNothing(t *testing.T, c *queue.Consumer, during time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), during)
	defer cancel()
	if ds, err := c.Receive(ctx); err == nil {
		t.Errorf("got %q at %d, attempt %d; want nothing", ds[0].Payload, ds[0].Position, ds[0].Attempt)
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
}

// texts returns the payloads.
func texts(ds []*queue.Delivery) (all []string) {
	for _, d := range ds {
		all = append(all, string(d.Payload))
	}
	return all
}

func mustAck(t *testing.T, ds ...*queue.Delivery) {
	t.Helper()
	var acking sync.WaitGroup
	for _, d := range ds {
		acking.Go(func() {
			if err := d.Ack(t.Context()); err != nil {
				t.Errorf("ack of %d: %v", d.Position, err)
			}
		})
	}
	acking.Wait()
}

func mustNack(t *testing.T, d *queue.Delivery, opts queue.NackOptions) {
	t.Helper()
	if err := d.Nack(t.Context(), opts); err != nil {
		t.Errorf("nack of %d: %v", d.Position, err)
	}
}

// statsOf returns the statistics of a queue.
func statsOf(t *testing.T, q *queue.Queue) queue.Stats {
	t.Helper()
	s, err := q.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantDone waits until nothing is left in the queue.
func wantDone(t *testing.T, q *queue.Queue) {
	t.Helper()
	var s queue.Stats
	defer func() {
		if t.Failed() {
			t.Logf("the queue has %+v", s)
		}
	}()
	testkit.Eventually(t, "all is acknowledged", func() bool {
		var err error
		s, err = q.Stats(t.Context())
		return err == nil && s.Ready+s.Leased+s.Delayed == 0
	})
	if s.Dead > 0 {
		t.Errorf("%d dead letters, want none", s.Dead)
	}
}

// count is the number that a query returns.
func count(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (n int64) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// waitForLocks returns how many sessions wait for locks.
func waitForLocks(t *testing.T, pool *pgxpool.Pool) int64 {
	t.Helper()
	return count(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
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
