package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// TestNode_SeveralInOrder: three nodes share a queue without faults: every message is delivered once, and each node's messages
// are in position order.
func TestNode_SeveralInOrder(t *testing.T) {
	t.Parallel()
	eachKind(t, queue.Options{}, func(t *testing.T, db pgtest.DB, q *queue.Queue) {
		producer := enqueuer(t, q)
		const calls, each = 20, 15
		var mu sync.Mutex
		seen, last := make(map[int64]bool), make([]int64, 3)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var consuming sync.WaitGroup
		for i := range last {
			_, far := elsewhere(t, db.URL, q.Name())
			n, _ := start(t, far, queue.NodeConfig{RotateRows: 20, StallAfter: time.Hour, IdleAfter: time.Hour, Lease: time.Minute, Drain: time.Minute})
			c := n.Consume(queue.ConsumerOptions{Credits: 7})
			consuming.Go(func() {
				for {
					ds, err := c.Receive(ctx)
					if err != nil {
						return
					}
					mu.Lock()
					for _, d := range ds {
						inOrder := d.Position > last[i] || len(q.Streams()) > 1
						if seen[d.Position] || !inOrder || d.Attempt != 1 || len(ds) > 7 {
							t.Errorf("node %d got %d, attempt %d, after %d; %d at once", i, d.Position, d.Attempt, last[i], len(ds))
						}
						seen[d.Position], last[i] = true, d.Position
					}
					mu.Unlock()
					mustAck(t, ds...)
				}
			})
		}
		for i := range calls {
			msgs := make([]queue.Message, each)
			for m := range msgs {
				msgs[m] = queue.Message{Key: fmt.Sprint(i), Priority: i % max(1, q.Options().Priorities)}
			}
			if _, err := producer.Enqueue(t.Context(), msgs...); err != nil {
				t.Fatal(err)
			}
		}
		wantDone(t, q)
		cancel()
		consuming.Wait()
		if len(seen) != calls*each {
			t.Errorf("%d messages delivered, want %d", len(seen), calls*each)
		}
	})
}

// TestNode_ManyEmptyPositions: transactions with old snapshots leave millions of positions without a message, which two nodes
// claim with a few entries of the journal.
func TestNode_ManyEmptyPositions(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	positions := make(chan int64, 100)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var n *queue.Node
	for range 2 {
		n, _ = start(t, q, queue.NodeConfig{RotateRows: 1 << 20})
		c := n.Consume(queue.ConsumerOptions{Credits: 5})
		go func() {
			for {
				ds, err := c.Receive(ctx)
				if err != nil {
					return
				}
				mustAck(t, ds...)
				for _, d := range ds {
					positions <- d.Position
				}
			}
		}()
	}
	last := int64(0)
	for round := range 3 {
		enqueue(t, n, numbered(10)...)
		mustExec(t, db.Pool, `SELECT tidewire.raise_shared_top($1)`, 1_000_000*(round+1))
		jump(t, db.Pool, q, "x")
		for range 11 {
			select {
			case position := <-positions:
				last = max(last, position)
			case <-ctx.Done():
				t.Fatal("not all messages were delivered")
			}
		}
	}
	if last < 3_000_000 {
		t.Errorf("the last position is %d, want more than three million", last)
	}
	testkit.Eventually(t, "the empty positions are done", func() bool { return queue.Floor(t, q) >= last })
	if rows := count(t, db.Pool, `SELECT count(*) FROM tidewire.queue_journal`); rows > 1000 {
		t.Errorf("the journal has %d rows", rows)
	}
}

// jump enqueues a message in a transaction that does not see the end of the stream, which leaves
// positions without a message if the stream is shared.
func jump(t *testing.T, pool *pgxpool.Pool, q *queue.Queue, text string) {
	t.Helper()
	err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		return q.EnqueueTx(t.Context(), tx, keyed("", text))
	})
	if err != nil {
		t.Error(err)
	}
	q.Notify()
}
