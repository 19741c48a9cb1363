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

	"github.com/tidewire/tidewire/queue"
)

func TestNode_DeliversInOrderAndOnce(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	n, stop := start(t, q, queue.NodeConfig{})
	c := n.Consume(queue.ConsumerOptions{Credits: 10})
	want := numbered(100)
	enqueue(t, n, want...)
	var got []string
	for len(got) < len(want) {
		ds := receive(t, c, 1)
		if len(ds) > 10 {
			t.Fatalf("%d deliveries, want at most the credits", len(ds))
		}
		got = append(got, texts(ds)...)
		mustAck(t, ds...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	stop()
	_, other := elsewhere(t, db.URL, "jobs")
	n, _ = start(t, other, queue.NodeConfig{})
	c = n.Consume(queue.ConsumerOptions{})
	enqueue(t, n, "later")
	if got := texts(receive(t, c, 1)); !slices.Equal(got, []string{"later"}) {
		t.Errorf("the next node got %q, want what is not acknowledged", got)
	}
}

// TestNode_SeveralInOrder: three nodes share a queue without faults: every
// message is delivered once, and each node's messages are in position order.
func TestNode_SeveralInOrder(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	producer, _ := start(t, q, queue.NodeConfig{})
	const messages = 600
	var mu sync.Mutex
	seen, last := make(map[int64]int), make([]int64, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var consuming sync.WaitGroup
	for i := range last {
		_, far := elsewhere(t, db.URL, "jobs")
		n, _ := start(t, far, queue.NodeConfig{RotateRows: 20, StallAfter: time.Hour, IdleAfter: time.Hour, Lease: time.Minute})
		c := n.Consume(queue.ConsumerOptions{Credits: 7})
		consuming.Go(func() {
			for {
				ds, err := c.Receive(ctx)
				if err != nil {
					return
				}
				mu.Lock()
				for _, d := range ds {
					if seen[d.Position]++; d.Position <= last[i] || d.Attempt != 1 {
						t.Errorf("node %d got %d, attempt %d, after %d", i, d.Position, d.Attempt, last[i])
					}
					last[i] = d.Position
				}
				mu.Unlock()
				mustAck(t, ds...)
			}
		})
	}
	for i := 0; i < messages; i += 20 {
		enqueue(t, producer, numbered(20)...)
		time.Sleep(time.Millisecond)
	}
	wantDone(t, q)
	cancel()
	consuming.Wait()
	if len(seen) != messages {
		t.Errorf("%d messages delivered, want %d", len(seen), messages)
	}
	for position, times := range seen {
		if times != 1 {
			t.Errorf("position %d was delivered %d times", position, times)
		}
	}
}

// TestNode_GapsAreDone: positions without a message delay nothing.
func TestNode_GapsAreDone(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	if _, err := db.Pool.Exec(t.Context(), `SELECT tidewire.own_stream(1000)`); err != nil {
		t.Fatal(err)
	}
	n, _ := start(t, q, queue.NodeConfig{})
	c := n.Consume(queue.ConsumerOptions{})
	for range 3 {
		enqueue(t, n, "x")
		if _, err := db.Pool.Exec(t.Context(), `SELECT setval('tidewire.stream_1000_position_seq', nextval('tidewire.stream_1000_position_seq') + 1000)`); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(t, n, "last")
	ds := receive(t, c, 4)
	mustAck(t, ds...)
	eventually(t, "the gaps are done", func() bool {
		return queue.Floor(t, q) >= ds[3].Position
	})
}

// TestNode_ManyEmptyPositions: transactions with old snapshots leave millions of positions
// without a message, which are claimed with a few entries of the journal.
func TestNode_ManyEmptyPositions(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	one, _ := start(t, q, queue.NodeConfig{RotateRows: 1 << 20})
	other, _ := start(t, q, queue.NodeConfig{RotateRows: 1 << 20})
	c, d := one.Consume(queue.ConsumerOptions{Credits: 5}), other.Consume(queue.ConsumerOptions{Credits: 5})
	enqueue(t, one, "before")
	mustAck(t, receive(t, c, 1)...)
	positions := make(chan int64, 100)
	var working sync.WaitGroup
	defer working.Wait()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for _, c := range []*queue.Consumer{c, d} {
		working.Go(func() {
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
		})
	}
	var last int64
	for n := range 3 {
		if _, err := db.Pool.Exec(t.Context(), `SELECT tidewire.raise_shared_top($1)`, 1_000_000*(n+1)); err != nil {
			t.Fatal(err)
		}
		jump(t, db.Pool, q)
		enqueue(t, other, numbered(10)...)
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
	eventually(t, "the empty positions are done", func() bool {
		return queue.Floor(t, q) >= last
	})
	if rows := count(t, db.Pool, `SELECT count(*) FROM tidewire.queue_journal`); rows > 1000 {
		t.Errorf("the journal has %d rows", rows)
	}
}

// jump enqueues "x" in a transaction that does not see the end of the stream, which leaves
// positions without a message if the stream is shared.
func jump(t *testing.T, pool *pgxpool.Pool, q *queue.Queue) {
	t.Helper()
	err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		return q.EnqueueTx(t.Context(), tx, queue.Message{Payload: []byte("x")})
	})
	if err != nil {
		t.Error(err)
	}
	q.Notify()
}

// TestReceiveUpTo, and Submit.
func TestReceiveUpTo(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	p := queue.NewEnqueuer(q, queue.EnqueuerConfig{})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	p.Start()
	running.Go(func() { <-ctx.Done(); p.Stop() })
	answered := make(chan int64, 1)
	err := p.Submit(t.Context(), make([]queue.Message, 5), func(at queue.Enqueued, err error) {
		if err != nil {
			t.Error(err)
		}
		answered <- at.First
	})
	if err != nil {
		t.Fatal(err)
	}
	if first := <-answered; first != 1 {
		t.Errorf("the first is at %d, want 1", first)
	}
	stop()
	running.Wait()
	if err := p.Submit(t.Context(), make([]queue.Message, 1), nil); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("Submit to a stopped producer: %v, want ErrClosed", err)
	}
	c := n.Consume(queue.ConsumerOptions{})
	for got := 0; got < 5; {
		ds, err := c.ReceiveUpTo(t.Context(), 2)
		if err != nil || len(ds) > 2 {
			t.Fatalf("%d deliveries, %v; want at most 2", len(ds), err)
		}
		got += len(ds)
	}
	if _, err := c.ReceiveUpTo(t.Context(), 0); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("up to nothing: %v, want ErrInvalid", err)
	}
}

// TestNodeStats_DeadLetters: each dead letter counts, whatever made it one.
func TestNodeStats_DeadLetters(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{MaxAttempts: 1})
	n, _ := start(t, q, queue.NodeConfig{})
	enqueue(t, n, "refused", "failed", "lost")
	c := n.Consume(queue.ConsumerOptions{})
	ds := receive(t, c, 3)
	for i, how := range []queue.NackOptions{{Dead: true}, {}} {
		if err := ds[i].Nack(t.Context(), how); err != nil {
			t.Fatal(err)
		}
	}
	c.Lost()
	eventually(t, "three dead letters", func() bool { return n.Stats().DeadLettered == 3 })
}
