package queue_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// runHub runs a Hub until the test ends.
func runHub(t *testing.T, pool *pgxpool.Pool, cfg stream.HubConfig) *stream.Hub {
	t.Helper()
	h := stream.NewHub(pool, cfg)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return h
}

// onHint polls so rarely that a node only gets messages that it was notified of.
func onHint(h *stream.Hub) queue.NodeConfig {
	return queue.NodeConfig{Hub: h, Poll: time.Hour, PollJournal: time.Hour, Lease: time.Minute}
}

// TestNode_OneHint notifies a Node once of 2,000 messages of another process: more
// than it reads, or has claimed, at a time.
func TestNode_OneHint(t *testing.T) {
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{})
	pool, there := elsewhere(t, db.URL, q.Name())
	h := runHub(t, pool, stream.HubConfig{Poll: time.Hour})
	n, _ := start(t, there, onHint(h))
	c := n.Consume(queue.ConsumerOptions{Credits: 1000})
	enqueue(t, n, "first")
	mustAck(t, receive(t, c, 1)...)
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		return q.EnqueueTx(t.Context(), tx, make([]queue.Message, 2000)...)
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Notify(there.Stream())
	for got := 0; got < 2000; {
		ds := receive(t, c, 1)
		mustAck(t, ds...)
		got += len(ds)
	}
}

// TestNode_AtHand: messages that the process enqueues are delivered from memory, without a poll, and Notify reaches a Node that
// has a Hub.
func TestNode_AtHand(t *testing.T) {
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{})
	h := runHub(t, db.Pool, stream.HubConfig{Poll: time.Hour})
	cfg := onHint(h)
	cfg.Appender.Hub = h
	n, _ := start(t, q, cfg)
	c := n.Consume(queue.ConsumerOptions{Credits: 10})
	for i, want := range numbered(50) {
		if i%10 < 9 {
			enqueue(t, n, want)
		} else if err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
			return q.EnqueueTx(t.Context(), tx, keyed("", want))
		}); err != nil {
			t.Fatal(err)
		} else {
			q.Notify()
		}
		ds := receive(t, c, 1)
		if got := string(ds[0].Payload); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		mustAck(t, ds...)
	}
	wantDone(t, q)
}

// TestNode_SameHubOtherQueue: an idle Node is notified of the messages of an Enqueuer with the
// same Hub, though that has looked up the queue separately.
func TestNode_SameHubOtherQueue(t *testing.T) {
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{})
	h := runHub(t, db.Pool, stream.HubConfig{Poll: time.Hour})
	cfg := onHint(h)
	cfg.IdleAfter, cfg.Lease = 100*time.Millisecond, time.Minute
	n, _ := start(t, q, cfg)
	c := n.Consume(queue.ConsumerOptions{Credits: 10})
	again, err := queue.Lookup(t.Context(), db.Pool, q.Name())
	if err != nil {
		t.Fatal(err)
	}
	e := enqueuer(t, again, stream.AppenderConfig{Hub: h})
	for range 3 {
		if _, err := e.Enqueue(t.Context(), queue.Message{Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		mustAck(t, receive(t, c, 1)...)
		testkit.Eventually(t, "the lease ends", func() bool {
			return count(t, db.Pool, `SELECT kind FROM tidewire.queue_journal WHERE queue = $1 ORDER BY sequence DESC LIMIT 1`, q.Stream().ID()) == 3
		})
	}
}
