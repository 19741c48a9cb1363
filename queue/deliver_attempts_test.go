package queue_test

import (
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/queue"
)

// doomed starts a node that will die, with a Consumer with that many credits.
func doomed(t *testing.T, db pgtest.DB, credits int) (m *shard, c *queue.Consumer) {
	t.Helper()
	m = joinNode(t, db.URL, queue.NodeConfig{Lease: 500 * time.Millisecond, StallAfter: time.Hour})
	t.Cleanup(m.kill)
	return m, m.node.Consume(queue.ConsumerOptions{Credits: credits, Visibility: time.Hour})
}

// attempts returns the number of each delivery, by text.
func attempts(ds []*queue.Delivery) map[string]int {
	all := make(map[string]int)
	for _, d := range ds {
		all[string(d.Payload)] = d.Attempt
	}
	return all
}

// receiveUpTo waits for exactly that many deliveries.
func receiveUpTo(t *testing.T, c *queue.Consumer, n int) (ds []*queue.Delivery) {
	t.Helper()
	for len(ds) < n {
		more, err := c.ReceiveUpTo(t.Context(), n-len(ds))
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, more...)
	}
	return ds
}

// TestAttempts_NodesDie: messages that no Consumer received are not counted, and
// those under way when their node died are counted from the next delivery on.
func TestAttempts_NodesDie(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{MaxAttempts: 1})
	n, _ := start(t, q, queue.NodeConfig{})
	enqueue(t, n, numbered(20)...)

	first, c := doomed(t, db, 20)
	receiveUpTo(t, c, 2)
	first.kill()

	second, c := doomed(t, db, 5)
	for text, attempt := range attempts(receiveUpTo(t, c, 5)) {
		if attempt != 1 {
			t.Errorf("%s is attempt %d after the first death, want 1", text, attempt)
		}
	}
	second.kill()

	// The five were delivered MaxAttempts times. The others were never delivered.
	rest := receive(t, n.Consume(queue.ConsumerOptions{}), 15)
	for text, attempt := range attempts(rest) {
		if attempt != 1 {
			t.Errorf("%s is attempt %d after the second death, want 1", text, attempt)
		}
	}
	mustAck(t, rest...)
	eventually(t, "the five are dead letters", func() bool {
		letters, err := q.DeadLetters(t.Context(), 0, 100)
		return err == nil && len(letters) == 5
	})
	if s, err := q.Stats(t.Context()); err != nil || s.Ready+s.Leased+s.Delayed != 0 {
		t.Errorf("left: %+v, %v", s, err)
	}
}

// TestAttempts_OfDeferred: as above, for messages that were nacked before.
func TestAttempts_OfDeferred(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{MaxAttempts: 3})
	n, _ := start(t, q, queue.NodeConfig{})
	enqueue(t, n, "x")
	for want := range 2 { // both die with attempt 2; the second was recorded first
		m, c := doomed(t, db, 1)
		d := receive(t, c, 1)[0]
		if want == 0 {
			if err := d.Nack(t.Context(), queue.NackOptions{Delay: queue.AtOnce}); err != nil {
				t.Fatal(err)
			}
			d = receive(t, c, 1)[0]
		}
		if d.Attempt != 2 {
			t.Errorf("attempt %d, want 2", d.Attempt)
		}
		m.kill()
	}
	d := receive(t, n.Consume(queue.ConsumerOptions{}), 1)[0]
	if d.Attempt != 3 {
		t.Errorf("attempt %d, want 3", d.Attempt)
	}
	mustAck(t, d)
}

// TestAttempts_EndedAreRecorded: a delivery that timed out counts, even after the
// death of its node.
func TestAttempts_EndedAreRecorded(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{RetryMin: time.Millisecond})
	n, _ := start(t, q, queue.NodeConfig{})
	enqueue(t, n, "x")
	m := joinNode(t, db.URL, queue.NodeConfig{Lease: 500 * time.Millisecond, LaterEvery: time.Millisecond})
	t.Cleanup(m.kill)
	c := m.node.Consume(queue.ConsumerOptions{Visibility: 200 * time.Millisecond})
	for want := range 3 {
		if d := receive(t, c, 1)[0]; d.Attempt != want+1 {
			t.Fatalf("attempt %d, want %d", d.Attempt, want+1)
		}
	}
	m.kill()
	d := receive(t, n.Consume(queue.ConsumerOptions{}), 1)[0]
	if d.Attempt != 3 { // the third was under way
		t.Errorf("attempt %d, want 3", d.Attempt)
	}
	mustAck(t, d)
}
