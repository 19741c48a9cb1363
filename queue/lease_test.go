package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/queue"
)

// holdAll takes all connections of a pool, including those that are lent to writers,
// so that no other caller gets one.
func holdAll(t *testing.T, pool *pgxpool.Pool) (release func()) {
	t.Helper()
	var releases []func()
	// take continues until no connection is left: other callers hold theirs only briefly.
	take := func(one func(context.Context) (func(), error)) {
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			release, err := one(ctx)
			cancel()
			if err != nil {
				return
			}
			releases = append(releases, release)
		}
	}
	take(func(ctx context.Context) (func(), error) {
		b := pg.NewBorrower(pool)
		err := b.Hold(ctx)
		if err != nil {
			b.Close()
		}
		return b.Close, err
	})
	take(func(ctx context.Context) (func(), error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return conn.Release, nil
	})
	release = sync.OnceFunc(func() {
		for _, release := range releases {
			release()
		}
	})
	t.Cleanup(release)
	return release
}

// TestNode_LostLease has a second node take over from one that cannot reach
// PostgreSQL for longer than its lease.
func TestNode_LostLease(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	pool, far := elsewhere(t, db.URL, "jobs")
	cfg := queue.NodeConfig{Lease: time.Second}
	n, _ := start(t, far, cfg)
	c := n.Consume(queue.ConsumerOptions{})
	n2, _ := start(t, q, cfg)
	enqueue(t, n2, numbered(6)...)
	first := receive(t, c, 6)
	mustAck(t, first[0])
	release := holdAll(t, pool)
	c2 := n2.Consume(queue.ConsumerOptions{})
	again := receive(t, c2, 5)
	if got, want := texts(again), []string{"1", "2", "3", "4", "5"}; !slices.Equal(got, want) {
		t.Errorf("the second node got %q, want %q", got, want)
	}
	for _, d := range again {
		if d.Attempt != 1 { // deliveries that end with their node are not counted
			t.Errorf("%q is attempt %d, want 1", d.Payload, d.Attempt)
		}
	}
	mustAck(t, again[:2]...)
	wantNothing(t, c, 50*time.Millisecond)
	release()
	for _, d := range first[1:] {
		if err := d.Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("late ack of %q: %v, want ErrLeaseLost", d.Payload, err)
		}
	}
	mustAck(t, again[2:]...)
	wantDone(t, q)
}

// TestNode_UnfilledIsNotTried: a node dies whose claim reached beyond the end
// of the stream: messages that are enqueued there later do not count as
// delivered.
func TestNode_UnfilledIsNotTried(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	dead := join(t, db.URL, 1, newChecker(), queue.NodeConfig{Lease: 500 * time.Millisecond})
	enqueue(t, n, "first")
	wantDone(t, q)
	dead.kill()
	c := n.Consume(queue.ConsumerOptions{})
	eventually(t, "the dead node's lease is ended", func() bool {
		return queue.Leases(t, q) == 0
	})
	enqueue(t, n, "second")
	d := receive(t, c, 1)[0]
	if d.Attempt != 1 {
		t.Errorf("attempt %d, want 1", d.Attempt)
	}
	mustAck(t, d)
}

// TestDelivery_TimeRunsOut: the message goes to another consumer, and the first
// one's ack is too late even if its delivery does not know that.
func TestDelivery_TimeRunsOut(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	slow := n.Consume(queue.ConsumerOptions{Credits: 2, Visibility: 200 * time.Millisecond})
	enqueue(t, n, "a", "b")
	ds := receive(t, slow, 2)
	if err := ds[1].Extend(time.Hour); err != nil {
		t.Error(err)
	}
	other := n.Consume(queue.ConsumerOptions{})
	again := receive(t, other, 1)
	if got := texts(again); !slices.Equal(got, []string{"a"}) || again[0].Attempt != 2 {
		t.Errorf("got %q, attempt %d; want a, 2", got, again[0].Attempt)
	}
	if err := ds[0].Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("late ack: %v, want ErrLeaseLost", err)
	}
	if err := ds[0].Extend(time.Second); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("late extension: %v, want ErrLeaseLost", err)
	}
	if err := ds[1].Extend(0); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("extension by nothing: %v, want ErrInvalid", err)
	}
	mustAck(t, ds[1], again[0])
	if err := ds[1].Ack(t.Context()); !errors.Is(err, queue.ErrSettled) {
		t.Errorf("second ack: %v, want ErrSettled", err)
	}
	wantDone(t, q)
}

// TestConsumer_CreditsAndClose: never more than the credits, and a closed
// Consumer's messages go to others at once.
func TestConsumer_CreditsAndClose(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	a := n.Consume(queue.ConsumerOptions{Credits: 3})
	enqueue(t, n, numbered(5)...)
	held := receive(t, a, 3)
	wantNothing(t, a, 50*time.Millisecond)
	if err := held[0].AckLater(); err != nil {
		t.Error(err)
	}
	held = append(held, receive(t, a, 1)...)
	b := n.Consume(queue.ConsumerOptions{Credits: 1})
	if got := texts(receive(t, b, 1)); !slices.Equal(got, []string{"4"}) {
		t.Errorf("another consumer got %q, want 4", got)
	}
	_, far := elsewhere(t, db.URL, "jobs")
	n2, _ := start(t, far, queue.NodeConfig{})
	c := n2.Consume(queue.ConsumerOptions{})
	a.Close()
	if _, err := a.Receive(t.Context()); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("closed consumer: %v, want ErrClosed", err)
	}
	got := receive(t, c, 3)
	if want := []string{"1", "2", "3"}; !slices.Equal(texts(got), want) || got[0].Attempt != 2 {
		t.Errorf("the other node got %q, attempt %d; want %q, 2", texts(got), got[0].Attempt, want)
	}
	if err := held[1].Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("ack after Close: %v, want ErrLeaseLost", err)
	}
	mustAck(t, got...)
}

// TestNode_StoppingGivesBack: messages that were not acknowledged are delivered
// by the next node without waiting for the lease to end.
func TestNode_StoppingGivesBack(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	n, stop := start(t, q, queue.NodeConfig{Lease: time.Hour})
	c := n.Consume(queue.ConsumerOptions{Credits: 4})
	enqueue(t, n, numbered(10)...)
	ds := receive(t, c, 4)
	if err := ds[0].AckLater(); err != nil {
		t.Error(err)
	}
	stop()
	if _, err := c.Receive(t.Context()); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("stopped node: %v, want ErrClosed", err)
	}
	if err := ds[1].Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("ack after the stop: %v, want ErrLeaseLost", err)
	}
	_, far := elsewhere(t, db.URL, "jobs")
	n, _ = start(t, far, queue.NodeConfig{Lease: time.Hour})
	got := receive(t, n.Consume(queue.ConsumerOptions{}), 9)
	attempts := make(map[string]int)
	for _, d := range got {
		attempts[string(d.Payload)] = d.Attempt
	}
	for text, want := range map[string]int{"0": 0, "1": 2, "3": 2, "4": 1, "9": 1} {
		if attempts[text] != want {
			t.Errorf("%s is attempt %d, want %d", text, attempts[text], want)
		}
	}
}

// TestReceive_WaitsForContext returns the context's error.
func TestReceive_WaitsForContext(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	c := n.Consume(queue.ConsumerOptions{})
	if _, err := c.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Receive: %v, want the context's error", err)
	}
}

// TestNode_FrozenLockHolder: a session of Tidewire that holds the queue's lock
// and hears no more from its client is ended.
func TestNode_FrozenLockHolder(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{Lease: time.Minute, Timeout: 3 * time.Second})
	c := n.Consume(queue.ConsumerOptions{})
	enqueue(t, n, "x")
	d := receive(t, c, 1)[0]
	cfg, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["application_name"] = pg.WriterName
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `BEGIN; SELECT pg_advisory_xact_lock(1953064037, -1000)`); err != nil {
		t.Fatal(err)
	}
	mustAck(t, d)
}

// TestConsumer_CreditsAreItsOwn: messages that the node claimed for another
// Consumer are not delivered beyond the credits of this one.
func TestConsumer_CreditsAreItsOwn(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{StallAfter: time.Hour})
	n.Consume(queue.ConsumerOptions{Credits: 20})
	c := n.Consume(queue.ConsumerOptions{Credits: 2})
	enqueue(t, n, numbered(10)...)
	receive(t, c, 2)
	wantNothing(t, c, 200*time.Millisecond)
}
