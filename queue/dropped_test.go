package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// never is a time that no test waits for.
const never = time.Hour

// serveQueue runs a Node until it fails, or the test ends.
func serveQueue(t *testing.T, q *queue.Queue, cfg queue.NodeConfig) (n *queue.Node, ended <-chan error) {
	t.Helper()
	n = queue.NewNode(q, quick(cfg))
	ctx, cancel := context.WithCancel(context.Background())
	errs, done := make(chan error, 1), make(chan struct{})
	go func() { errs <- n.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return n, errs
}

func wantDropped(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("Run: %v, want ErrNotFound", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the node of a dropped queue goes on")
	}
}

// TestNode_DroppedElsewhere: a Node without Consumers or partitions notices that its queue was
// dropped.
func TestNode_DroppedElsewhere(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]queue.Options{"plain": {}, "partitions": {Partitions: 2}, "priorities": {Priorities: 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, q := setup(t, opts)
			_, far := elsewhere(t, db.URL, q.Name())
			reads := queue.CountWrites(far)
			_, idle := serveQueue(t, far, queue.NodeConfig{})
			for reads.Load() < int64(len(far.Streams())) {
				time.Sleep(time.Millisecond)
			}
			sharing := make(chan struct{})
			none := func(ctx context.Context, _ string, _ int, _ func(context.Context, int, <-chan struct{})) error {
				close(sharing)
				<-ctx.Done()
				return nil
			}
			n, consuming := serveQueue(t, q, queue.NodeConfig{Assign: none})
			c := n.Consume(queue.ConsumerOptions{})
			if opts.Partitions > 0 {
				<-sharing
			} else {
				mustEnqueue(t, n, keyed("", "a"))
				mustAck(t, receive(t, c, 1)...)
			}
			if err := queue.Drop(t.Context(), db.Pool, q.Name()); err != nil {
				t.Fatal(err)
			}
			wantDropped(t, consuming)
			wantDropped(t, idle)
			if _, err := c.Receive(t.Context()); !errors.Is(err, queue.ErrNotFound) {
				t.Errorf("Receive: %v, want ErrNotFound", err)
			}
		})
	}
}

// TestNode_Dropped: a Node that is told of the drop tells its Consumers. Deliveries are void,
// whether they are acknowledged before or after.
func TestNode_Dropped(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]bool{"told": true, "finds out": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, q := setup(t, queue.Options{})
			n, ended := serveQueue(t, q, queue.NodeConfig{PollJournal: never, Poll: never})
			c := n.Consume(queue.ConsumerOptions{})
			mustEnqueue(t, n, keyed("", "a"), keyed("", "b"))
			ds := receive(t, c, 2)
			if err := queue.Drop(t.Context(), db.Pool, q.Name()); err != nil {
				t.Fatal(err)
			}
			if told {
				n.Dropped()
				n.Dropped()
			} else if err := ds[0].Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) && !errors.Is(err, queue.ErrOutcomeUnknown) {
				t.Errorf("Ack: %v, want ErrLeaseLost, or ErrUnknown from a Node that has just found out", err)
			}
			wantDropped(t, ended)
			if _, err := c.Receive(t.Context()); !errors.Is(err, queue.ErrNotFound) {
				t.Errorf("Receive: %v, want ErrNotFound", err)
			}
			if err := ds[1].Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
				t.Errorf("Ack after the end: %v, want ErrLeaseLost", err)
			}
		})
	}
}

// TestPartitions_AnotherOfItsName: a Node that has not noticed the drop of its queue does not get
// partitions of a new queue of the same name.
func TestPartitions_AnotherOfItsName(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{Partitions: 2})
	old, ended := serveQueue(t, q, queue.NodeConfig{PollJournal: never, Poll: never, IdleAfter: never})
	c := old.Consume(queue.ConsumerOptions{})
	mustEnqueue(t, old, keyed("k", "before"))
	receive(t, c, 1)
	if err := queue.Drop(t.Context(), db.Pool, q.Name()); err != nil {
		t.Fatal(err)
	}
	q, err := queue.Ensure(t.Context(), db.Pool, q.Name(), queue.Options{Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	n, _ := start(t, q, queue.NodeConfig{})
	c = n.Consume(queue.ConsumerOptions{})
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		mustEnqueue(t, n, keyed(key, "after"))
	}
	mustAck(t, receive(t, c, 6)...)
	wantDropped(t, ended)
}

// TestEnsure_SaysWhatIsInTheWay: the error says what has the name of a family or of a member.
func TestEnsure_SaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	if _, err := stream.Ensure(t.Context(), db.Pool, "s", stream.Options{}); err != nil {
		t.Fatal(err)
	}
	for name, stream := range map[string]bool{q.Name(): false, "s": true} {
		_, err := queue.Ensure(t.Context(), db.Pool, name, queue.Options{Partitions: 2})
		if !errors.Is(err, queue.ErrExists) || strings.Contains(err.Error(), "stream") != stream {
			t.Errorf("%s: %v", name, err)
		}
	}
}
