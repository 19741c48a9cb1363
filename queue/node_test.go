package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

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

// TestNode_SeveralInOrder has three nodes share a queue in calm weather: every
// message is delivered once, and each node's are in the order of positions.
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
						t.Errorf("node %d got %d, attempt %d, behind %d", i, d.Position, d.Attempt, last[i])
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

// TestNode_GapsAreDone: positions without a message hold nothing up.
func TestNode_GapsAreDone(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
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
		floor, err := q.Floor(t.Context())
		return err == nil && floor >= ds[3].Position
	})
}

// TestReceiveUpTo, and Submit.
func TestReceiveUpTo(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	p := queue.NewProducer(q, queue.ProducerConfig{})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	answered := make(chan int64, 1)
	err := p.Submit(t.Context(), make([]queue.Message, 5), func(first int64, err error) {
		if err != nil {
			t.Error(err)
		}
		answered <- first
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
