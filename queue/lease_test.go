package queue_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// holdAll takes all connections of a pool, including those that are lent to writers, so that no other caller gets one before
// release.
func holdAll(t *testing.T, pool *pgxpool.Pool) (release func()) {
	t.Helper()
	var releases []func()
	release = sync.OnceFunc(func() {
		for _, release := range releases {
			release()
		}
	})
	t.Cleanup(release)
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
	return release
}

// TestNode_LostLease has a second node take over from one that cannot reach PostgreSQL for longer than its lease. Deliveries
// that end with their node are not counted, and what was refused goes to the other node too.
func TestNode_LostLease(t *testing.T) {
	slow(t)
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{})
	pool, far := elsewhere(t, db.URL, q.Name())
	cfg := queue.NodeConfig{Lease: 3 * time.Second}
	n, _ := start(t, far, cfg)
	c := n.Consume(queue.ConsumerOptions{})
	n2, _ := start(t, q, cfg)
	enqueue(t, n2, numbered(6)...)
	first := receiveUpTo(t, c, 6)
	mustAck(t, first[0])
	mustNack(t, first[5], queue.NackOptions{Delay: time.Millisecond})
	first[5] = receive(t, c, 1)[0]
	release := holdAll(t, pool)
	again := receiveUpTo(t, n2.Consume(queue.ConsumerOptions{}), 5)
	if got, want := attempts(again), map[string]int{"1": 1, "2": 1, "3": 1, "4": 1, "5": 2}; !maps.Equal(got, want) {
		t.Errorf("the second node got attempts %v, want %v", got, want)
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

// TestNode_UnfilledIsNotTried: a node dies whose claim reached beyond the end of the stream: messages that are enqueued there
// later do not count as delivered.
func TestNode_UnfilledIsNotTried(t *testing.T) {
	slow(t)
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	dead, c := doomed(t, db.URL, q.Name(), implicit(10))
	enqueue(t, n, "first")
	mustAck(t, receive(t, c, 1)...)
	dead.kill()
	c = n.Consume(queue.ConsumerOptions{})
	testkit.Eventually(t, "the dead node's lease is ended", func() bool { return queue.Leases(t, q) == 0 })
	enqueue(t, n, "second")
	wantFirst(t, receive(t, c, 1), 1)
}

// TestDelivery_TimeRunsOut: the message goes to another consumer, and the first one's ack is too late even if its delivery does
// not know that. A lease may also be made shorter.
func TestDelivery_TimeRunsOut(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	slow := n.Consume(queue.ConsumerOptions{Credits: 2, Visibility: 2 * time.Second})
	enqueue(t, n, "a", "b")
	ds := receive(t, slow, 2)
	if err := ds[1].Extend(time.Hour); err != nil {
		t.Error(err)
	}
	again := receive(t, n.Consume(queue.ConsumerOptions{Visibility: time.Hour}), 1)
	if got := texts(again); !slices.Equal(got, []string{"a"}) || again[0].Attempt != 2 {
		t.Errorf("got %q, attempt %d; want a, 2", got, again[0].Attempt)
	}
	late, extended, invalid := ds[0].Ack(t.Context()), ds[0].Extend(time.Second), ds[1].Extend(0)
	mustAck(t, ds[1], again[0])
	for _, c := range []struct {
		what      string
		err, want error
	}{
		{"late ack", late, queue.ErrLeaseLost}, {"late extension", extended, queue.ErrLeaseLost},
		{"extension by nothing", invalid, queue.ErrInvalid}, {"second ack", ds[1].Ack(t.Context()), queue.ErrSettled},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.err, c.want)
		}
	}
	slow.Close()
	enqueue(t, n, "c")
	long := n.Consume(queue.ConsumerOptions{Credits: 1, Visibility: time.Hour})
	if err := receive(t, long, 1)[0].Extend(time.Millisecond); err != nil {
		t.Error(err)
	}
	again = receive(t, n.Consume(queue.ConsumerOptions{Visibility: time.Hour}), 1)
	if again[0].Attempt != 2 {
		t.Errorf("attempt %d of what was let go, want 2", again[0].Attempt)
	}
	mustAck(t, again...)
	wantDone(t, q)
}

// TestNode_StoppingGivesBack: messages that were not acknowledged are delivered by the next node without waiting for the lease
// to end, and by a node that has claimed all the positions that it wants after the end of the stream.
func TestNode_StoppingGivesBack(t *testing.T) {
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{})
	cfg := queue.NodeConfig{Lease: time.Hour}
	n, stop := start(t, q, cfg)
	c := n.Consume(queue.ConsumerOptions{Credits: 10})
	enqueue(t, n, numbered(10)...)
	ds := receiveUpTo(t, c, 4)
	testkit.Eventually(t, "all are claimed", func() bool { return statsOf(t, q).Leased == 10 })
	if err := ds[0].AckLater(); err != nil {
		t.Error(err)
	}
	_, far := elsewhere(t, db.URL, q.Name())
	next, _ := start(t, far, cfg)
	c2 := next.Consume(queue.ConsumerOptions{})
	enqueue(t, next, "x")
	mustAck(t, receive(t, c2, 1)...)
	stop()
	if _, err := c.Receive(t.Context()); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("stopped node: %v, want ErrClosed", err)
	}
	if err := ds[1].Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("ack after the stop: %v, want ErrLeaseLost", err)
	}
	got := attempts(receiveUpTo(t, c2, 9))
	for text, want := range map[string]int{"0": 0, "1": 2, "3": 2, "4": 1, "9": 1} {
		if got[text] != want {
			t.Errorf("%s is attempt %d, want %d", text, got[text], want)
		}
	}
}

// TestNode_FrozenLockHolder: a session of Tidewire that holds the queue's lock and hears no more from its client is ended.
func TestNode_FrozenLockHolder(t *testing.T) {
	slow(t)
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
	mustExec(t, conn, `BEGIN; SELECT pg_advisory_xact_lock(1953064037, -1000)`)
	mustAck(t, d)
}
