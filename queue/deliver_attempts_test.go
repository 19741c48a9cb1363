package queue_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// doomed starts a process that will die, with a Consumer.
func doomed(t *testing.T, url, name string, opts queue.ConsumerOptions) (m *process, c *queue.Consumer) {
	t.Helper()
	m = joinNode(t, url, name, queue.NodeConfig{Lease: 3 * time.Second, StallAfter: time.Hour, LaterEvery: time.Millisecond, Drain: time.Millisecond})
	t.Cleanup(m.kill)
	return m, m.node.Consume(opts)
}

// attempts returns the number of each delivery, by text.
func attempts(ds []*queue.Delivery) map[string]int {
	all := make(map[string]int)
	for _, d := range ds {
		all[string(d.Payload)] = d.Attempt
	}
	return all
}

// explicit are the options of a Consumer that says what it begins, and of one that does not.
func explicit(credits int) queue.ConsumerOptions {
	return queue.ConsumerOptions{Credits: credits, ExplicitBegin: true, Visibility: time.Hour}
}

func implicit(credits int) queue.ConsumerOptions {
	return queue.ConsumerOptions{Credits: credits, Visibility: time.Hour}
}

// wantFirst wants the deliveries to be first attempts, of that many messages.
func wantFirst(t *testing.T, ds []*queue.Delivery, messages int) {
	t.Helper()
	all := attempts(ds)
	for text, attempt := range all {
		if attempt != 1 {
			t.Errorf("%s is attempt %d, want 1", text, attempt)
		}
	}
	if len(all) != messages {
		t.Errorf("%d messages came, want %d", len(all), messages)
	}
}

// TestAttempts_NodesDie: messages that no Consumer received, or that no program has begun, are not counted, although each
// delivery of a message that a dead node had is recorded first. Those under way when their node died are counted.
func TestAttempts_NodesDie(t *testing.T) {
	slow(t)
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{MaxAttempts: 1})
	n, _ := start(t, q, queue.NodeConfig{})
	enqueue(t, n, numbered(20)...)
	first, c := doomed(t, db.URL, q.Name(), implicit(20))
	receiveUpTo(t, c, 2)
	first.kill()
	second, c := doomed(t, db.URL, q.Name(), implicit(5))
	wantFirst(t, receiveUpTo(t, c, 5), 5)
	second.kill()
	third, c := doomed(t, db.URL, q.Name(), explicit(15))
	wantFirst(t, receiveUpTo(t, c, 15), 15)
	third.kill()

	// Five were delivered MaxAttempts times. The others were never begun.
	rest := receiveUpTo(t, n.Consume(queue.ConsumerOptions{}), 15)
	wantFirst(t, rest, 15)
	mustAck(t, rest...)
	testkit.Eventually(t, "the five are dead letters", func() bool {
		letters, err := q.DeadLetters(t.Context(), 0, 100)
		return err == nil && len(letters) == 5
	})
	if s := statsOf(t, q); s.Ready+s.Leased+s.Delayed != 0 {
		t.Errorf("left: %+v", s)
	}
}

// TestAttempts_AreRecorded: deliveries that were refused, or timed out, count after the death of their node. A delivery that
// ends with its node counts from the next one on.
func TestAttempts_AreRecorded(t *testing.T) {
	slow(t)
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{RetryMin: time.Millisecond})
	n, _ := start(t, q, queue.NodeConfig{})
	mustEnqueue(t, n, keyed("", "deferred"))
	for death := range 2 { // both die with attempt 2; the second was recorded first
		m, c := doomed(t, db.URL, q.Name(), implicit(1))
		d := receive(t, c, 1)[0]
		if death == 0 {
			mustNack(t, d, queue.NackOptions{Delay: queue.AtOnce})
			d = receive(t, c, 1)[0]
		}
		if d.Attempt != 2 {
			t.Errorf("attempt %d, want 2", d.Attempt)
		}
		m.kill()
	}
	c := n.Consume(implicit(1))
	d := receive(t, c, 1)[0]
	if d.Attempt != 3 {
		t.Errorf("attempt %d, want 3", d.Attempt)
	}
	mustAck(t, d)
	c.Close()

	mustEnqueue(t, n, keyed("", "timed out"))
	m, c := doomed(t, db.URL, q.Name(), queue.ConsumerOptions{Visibility: 2 * time.Second})
	for want := range 3 {
		if d := receive(t, c, 1)[0]; d.Attempt != want+1 {
			t.Fatalf("attempt %d, want %d", d.Attempt, want+1)
		}
	}
	m.kill()
	d = receive(t, n.Consume(queue.ConsumerOptions{}), 1)[0]
	if d.Attempt != 3 { // the third was under way
		t.Errorf("attempt %d, want 3", d.Attempt)
	}
	mustAck(t, d)
}

// TestBegin_NeighboursDoNotCount: a worker crashes again and again with the first of its messages: the others go back at once, in their order, and
// are no attempts. The first one of each waits for its retry.
func TestBegin_NeighboursDoNotCount(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{MaxAttempts: 2, RetryMin: time.Hour})
	n, _ := start(t, q, queue.NodeConfig{})
	enqueue(t, n, numbered(10)...)
	for round := range 4 {
		c := n.Consume(explicit(10))
		ds := receive(t, c, 10-round)
		if want := numbered(10)[round:]; !slices.Equal(texts(ds), want) {
			t.Fatalf("got %q, want %q", texts(ds), want)
		}
		wantFirst(t, ds, 10-round)
		for range 2 { // a second time does nothing
			if err := ds[0].Begin(); err != nil {
				t.Fatal(err)
			}
		}
		c.Lost()
	}
	testkit.Eventually(t, "four wait for their retry", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Delayed == 4 && s.Dead == 0
	})
}

// TestBegin_EndsOfDeliveries: however a delivery ends that was not acknowledged, it is an attempt if it had begun, and only then.
func TestBegin_EndsOfDeliveries(t *testing.T) {
	slow(t)
	t.Parallel()
	db := inShared(t)
	for name, end := range map[string]func(*testing.T, *process, *queue.Consumer, []*queue.Delivery){
		"closed":      func(_ *testing.T, _ *process, c *queue.Consumer, _ []*queue.Delivery) { c.Close() },
		"lost":        func(_ *testing.T, _ *process, c *queue.Consumer, _ []*queue.Delivery) { c.Lost() },
		"too late":    func(*testing.T, *process, *queue.Consumer, []*queue.Delivery) {},
		"node stops":  func(_ *testing.T, m *process, _ *queue.Consumer, _ []*queue.Delivery) { m.leave() },
		"node killed": func(_ *testing.T, m *process, _ *queue.Consumer, _ []*queue.Delivery) { m.kill() },
		"nacked": func(t *testing.T, _ *process, c *queue.Consumer, ds []*queue.Delivery) {
			mustNack(t, ds[0], queue.NackOptions{Delay: queue.AtOnce})
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := ensureShared(t, db, queue.Options{RetryMin: time.Millisecond})
			opts := explicit(2)
			if name == "too late" {
				opts.Visibility = 200 * time.Millisecond
			}
			m, c := doomed(t, db.URL, q.Name(), opts)
			mustEnqueue(t, m.node, keyed("", "begun"), keyed("", "not begun"))
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
				testkit.Eventually(t, "what has begun is recorded", func() bool { return queue.RecordedAttempts(t, q, 1) == 1 })
			}
			end(t, m, c, ds)
			c.SetCredits(-1)
			n, _ := start(t, q, queue.NodeConfig{})
			got := attempts(receive(t, n.Consume(queue.ConsumerOptions{}), 2))
			if want := map[string]int{"begun": 2, "not begun": 1}; !maps.Equal(got, want) {
				t.Errorf("attempts %v, want %v", got, want)
			}
		})
	}
}

// TestBegin_Bound: a message that no program ever begins becomes a dead letter too, also if nodes stop meanwhile.
func TestBegin_Bound(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{MaxAttempts: 2, RetryMin: time.Millisecond})
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
	deliver(41, 1) // the last one counts
	deliver(1, 2)
	c := n.Consume(explicit(1))
	defer c.Close()
	testkit.Eventually(t, "it is a dead letter", func() bool {
		letters, err := q.DeadLetters(t.Context(), 0, 10)
		return err == nil && len(letters) == 1 && letters[0].Attempts == 2 && strings.Contains(letters[0].Reason, "without being begun")
	})
}
