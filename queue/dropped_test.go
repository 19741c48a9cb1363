package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// never is a time that no test waits for.
const never = time.Hour

// serveQueue runs a Node until it fails, or the test ends.
func serveQueue(t *testing.T, q *queue.Queue, cfg queue.NodeConfig) (n *queue.Node, stop func(), ended <-chan error) {
	t.Helper()
	n = queue.NewNode(q, quick(cfg))
	ctx, cancel := context.WithCancel(context.Background())
	errs, done := make(chan error, 1), make(chan struct{})
	go func() { errs <- n.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return n, cancel, errs
}

func wantDropped(t *testing.T, ended <-chan error, c *queue.Consumer) {
	t.Helper()
	select {
	case err := <-ended:
		if !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("Run: %v, want ErrNotFound", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the node of a dropped queue goes on")
	}
	if _, err := c.Receive(t.Context()); !errors.Is(err, queue.ErrNotFound) || !errors.Is(err, queue.ErrClosed) {
		t.Errorf("Receive: %v, want ErrNotFound and ErrClosed", err)
	}
}

func mustDrop(t *testing.T, db pgtest.DB, q *queue.Queue) {
	t.Helper()
	if err := queue.Drop(t.Context(), db.Pool, q.Name()); err != nil {
		t.Fatal(err)
	}
}

// TestNode_DroppedElsewhere: a Node without Consumers or partitions notices that its queue was
// dropped.
func TestNode_DroppedElsewhere(t *testing.T) {
	t.Parallel()
	eachKind(t, queue.Options{}, func(t *testing.T, db pgtest.DB, q *queue.Queue) {
		_, far := elsewhere(t, db.URL, q.Name())
		reads := queue.CountWrites(far)
		idle, _, idleEnded := serveQueue(t, far, queue.NodeConfig{})
		testkit.Eventually(t, "it has read the journals", func() bool { return reads.Load() >= int64(len(far.Streams())) })
		sharing := make(chan struct{})
		none := func(ctx context.Context, _ string, _ int, _ func(context.Context, int, <-chan struct{})) error {
			close(sharing)
			<-ctx.Done()
			return nil
		}
		n, _, ended := serveQueue(t, q, queue.NodeConfig{Assign: none})
		c := n.Consume(queue.ConsumerOptions{})
		if q.Options().Partitions > 0 {
			<-sharing
		} else {
			mustEnqueue(t, n, keyed("", "a"))
			mustAck(t, receive(t, c, 1)...)
		}
		mustDrop(t, db, q)
		wantDropped(t, ended, c)
		wantDropped(t, idleEnded, idle.Consume(queue.ConsumerOptions{}))
	})
}

// TestNode_Dropped: a Node that gets the report of the drop, finds out by itself, or stops, ends its Consumers. Deliveries are void, whether
// they are acknowledged before or after.
func TestNode_Dropped(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"told", "acks", "stops"} {
		var opts queue.Options
		if how == "stops" {
			opts.Partitions = 3
		}
		db, q := setup(t, opts)
		n, stop, ended := serveQueue(t, q, queue.NodeConfig{PollJournal: never, Poll: never})
		c := n.Consume(queue.ConsumerOptions{})
		mustEnqueue(t, n, keyed("", "a"), keyed("", "b"))
		ds := receive(t, c, 2)
		if how == "stops" { // with something to write
			if err := ds[0].AckLater(); err != nil {
				t.Error(err)
			}
		}
		mustDrop(t, db, q)
		switch how {
		case "told":
			n.Dropped()
			n.Dropped()
		case "acks":
			if err := ds[0].Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) && !errors.Is(err, queue.ErrOutcomeUnknown) {
				t.Errorf("Ack: %v, want ErrLeaseLost, or ErrOutcomeUnknown from a Node that has just found out", err)
			}
		default:
			stop()
			<-ended // its error is of no interest here
			continue
		}
		wantDropped(t, ended, c)
		if err := ds[1].Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("Ack after the end: %v, want ErrLeaseLost", err)
		}
	}
}

// TestPartitions_AnotherOfItsName: a Node that has not noticed the drop of its queue does not get
// partitions of a new queue of the same name.
func TestPartitions_AnotherOfItsName(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{Partitions: 2})
	old, _, ended := serveQueue(t, q, queue.NodeConfig{PollJournal: never, Poll: never, IdleAfter: never})
	before := old.Consume(queue.ConsumerOptions{})
	mustEnqueue(t, old, keyed("k", "before"))
	receive(t, before, 1)
	mustDrop(t, db, q)
	q, err := queue.Ensure(t.Context(), db.Pool, q.Name(), queue.Options{Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	n, _ := start(t, q, queue.NodeConfig{})
	c := n.Consume(queue.ConsumerOptions{})
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		mustEnqueue(t, n, keyed(key, "after"))
	}
	mustAck(t, receive(t, c, 6)...)
	wantDropped(t, ended, before)
}
