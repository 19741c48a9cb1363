package queue_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/queue"
)

// explicit are the options of a Consumer that says what it begins.
func explicit(credits int) queue.ConsumerOptions {
	return queue.ConsumerOptions{Credits: credits, ExplicitBegin: true}
}

// TestBegin_NeighboursDoNotCount: a worker crashes again and again with the first of its messages: the others go back at once, in their order, and
// are no attempts. The first one of each waits for its retry.
func TestBegin_NeighboursDoNotCount(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{MaxAttempts: 2, RetryMin: time.Hour})
	n, _ := start(t, q, queue.NodeConfig{})
	enqueue(t, n, numbered(10)...)
	for round := range 4 {
		c := n.Consume(explicit(10))
		ds := receive(t, c, 10-round)
		if want := numbered(10)[round:]; !slices.Equal(texts(ds), want) {
			t.Fatalf("got %q, want %q", texts(ds), want)
		}
		for _, d := range ds {
			if d.Attempt != 1 {
				t.Errorf("%s is attempt %d, want 1", d.Payload, d.Attempt)
			}
		}
		for range 2 { // a second time does nothing
			if err := ds[0].Begin(); err != nil {
				t.Fatal(err)
			}
		}
		c.Lost()
	}
	eventually(t, "four wait for their retry", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Delayed == 4 && s.Dead == 0
	})
}

// TestBegin_EndsOfDeliveries: however a delivery ends that was not acknowledged, it is an attempt if it had begun, and only then.
func TestBegin_EndsOfDeliveries(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *shard, *queue.Consumer, []*queue.Delivery){
		"closed":      func(_ *testing.T, _ *shard, c *queue.Consumer, _ []*queue.Delivery) { c.Close() },
		"lost":        func(_ *testing.T, _ *shard, c *queue.Consumer, _ []*queue.Delivery) { c.Lost() },
		"too late":    func(*testing.T, *shard, *queue.Consumer, []*queue.Delivery) {},
		"node stops":  func(_ *testing.T, m *shard, _ *queue.Consumer, _ []*queue.Delivery) { m.leave() },
		"node killed": func(_ *testing.T, m *shard, _ *queue.Consumer, _ []*queue.Delivery) { m.kill() },
		"nacked": func(t *testing.T, _ *shard, c *queue.Consumer, ds []*queue.Delivery) {
			if err := ds[0].Nack(t.Context(), queue.NackOptions{Delay: queue.AtOnce}); err != nil {
				t.Error(err)
			}
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, q := setup(t, queue.Options{RetryMin: time.Millisecond})
			n, _ := start(t, q, queue.NodeConfig{})
			m := joinNode(t, db.URL, queue.NodeConfig{Lease: 500 * time.Millisecond, LaterEvery: time.Millisecond, Drain: time.Millisecond})
			t.Cleanup(m.kill)
			opts := explicit(2)
			if name == "too late" {
				opts.Visibility = 200 * time.Millisecond
			}
			c := m.node.Consume(opts)
			enqueue(t, n, "begun", "not begun")
			ds := receive(t, c, 2)
			switch name {
			case "nacked":
			case "too late":
				if err := ds[0].Begin(); err != nil {
					t.Fatal(err)
				}
			default:
				if err := errors.Join(ds[0].Begin(), ds[1].Extend(time.Minute)); err != nil { // a lease that is kept is no attempt
					t.Fatal(err)
				}
				eventually(t, "what has begun is recorded", func() bool { return queue.RecordedAttempts(t, q, 1) == 1 })
			}
			end(t, m, c, ds)
			c.SetCredits(-1)
			got := attempts(receive(t, n.Consume(queue.ConsumerOptions{}), 2))
			if want := map[string]int{"begun": 2, "not begun": 1}; !maps.Equal(got, want) {
				t.Errorf("attempts %v, want %v", got, want)
			}
		})
	}
}

// TestBegin_NodesDie: messages that no program has begun do not become dead letters when nodes die, although each delivery of a message
// that a dead node had is recorded first.
func TestBegin_NodesDie(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{MaxAttempts: 1})
	n, _ := start(t, q, queue.NodeConfig{})
	enqueue(t, n, numbered(5)...)
	for range 3 {
		m := joinNode(t, db.URL, queue.NodeConfig{Lease: 500 * time.Millisecond, StallAfter: time.Hour})
		t.Cleanup(m.kill)
		receive(t, m.node.Consume(explicit(5)), 5)
		m.kill()
	}
	ds := receive(t, n.Consume(explicit(5)), 5)
	for _, d := range ds {
		if d.Attempt != 1 {
			t.Errorf("%s is attempt %d, want 1", d.Payload, d.Attempt)
		}
	}
	mustAck(t, ds...)
	wantDone(t, q)
}

// TestBegin_Bound: a message that no program ever begins becomes a dead letter too, also if nodes stop meanwhile.
func TestBegin_Bound(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{MaxAttempts: 2, RetryMin: time.Millisecond})
	n, stop := start(t, q, queue.NodeConfig{})
	enqueue(t, n, "x")
	deliver := func(times, attempt int) {
		t.Helper()
		for range times {
			c := n.Consume(explicit(1))
			if d := receive(t, c, 1)[0]; d.Attempt != attempt {
				t.Fatalf("attempt %d, want %d", d.Attempt, attempt)
			}
			c.Lost()
		}
	}
	deliver(60, 1)
	stop()
	n, _ = start(t, q, queue.NodeConfig{})
	deliver(40, 1)
	deliver(1, 1) // counts
	deliver(1, 2)
	c := n.Consume(explicit(1))
	defer c.Close()
	eventually(t, "it is a dead letter", func() bool {
		letters, err := q.DeadLetters(t.Context(), 0, 10)
		return err == nil && len(letters) == 1 && letters[0].Attempts == 2 && strings.Contains(letters[0].Reason, "without being begun")
	})
}
