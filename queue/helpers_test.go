package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
)

var migrated = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

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

// newPool is the pool of a process of its own.
func newPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
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
	n = queue.NewNode(q, quick(cfg))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = func() { cancel(); running.Wait() }
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

// enqueue enqueues messages with the texts given.
func enqueue(t *testing.T, n *queue.Node, texts ...string) (first int64) {
	t.Helper()
	var msgs []queue.Message
	for _, text := range texts {
		msgs = append(msgs, queue.Message{Payload: []byte(text)})
	}
	first, err := firstOf(n.Enqueue(t.Context(), msgs...))
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// numbered is n texts.
func numbered(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

// receive waits for at least n deliveries.
func receive(t *testing.T, c *queue.Consumer, n int) (ds []*queue.Delivery) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for len(ds) < n {
		more, err := c.Receive(ctx)
		if err != nil {
			t.Fatalf("%d of %d messages received: %v", len(ds), n, err)
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

// count is the number that a query returns.
func count(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (n int64) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// eventually waits for what must become true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// firstOf is the position of the first message.
func firstOf(at queue.Enqueued, err error) (int64, error) { return at.First, err }
