package queue_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// delayed enqueues n messages that are due soon, and waits until they are
// deferred. It needs a Consumer with credits for them.
func delayed(t *testing.T, db pgtest.DB, node *queue.Node, n int, delay time.Duration) {
	t.Helper()
	msgs := make([]queue.Message, n)
	for i := range msgs {
		msgs[i] = queue.Message{Payload: []byte("delayed"), Due: time.Now().Add(delay)}
	}
	if _, err := node.Enqueue(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "all are deferred", func() bool { return count(t, db.Pool, `SELECT count(*) FROM tidewire.queue_side`) == int64(n) })
}

// TestNode_BacksOff: PostgreSQL never returns the due messages: a Node asks
// repeatedly, with growing pauses, and acknowledgements do not wait for these.
func TestNode_BacksOff(t *testing.T) {
	slow(t)
	t.Parallel()
	db, _ := setup(t, queue.Options{})
	mustExec(t, db.Pool, `
CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER never BEFORE UPDATE ON tidewire.queue_side FOR EACH ROW WHEN (NEW.token IS NOT NULL) EXECUTE FUNCTION never()`)
	_, q := elsewhere(t, db.URL, "jobs")
	writes := queue.CountWrites(q)
	var log testkit.Log
	n, _ := start(t, q, queue.NodeConfig{PollJournal: time.Minute, Lease: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})
	c := n.Consume(queue.ConsumerOptions{Credits: 10})
	delayed(t, db, n, 5, 5*time.Second)
	testkit.Eventually(t, "the back-off is on", func() bool { wantNothing(t, c, 10*time.Millisecond); return log.Count("slowing down") == 1 })
	before, began := writes.Load(), time.Now()
	for time.Since(began) < time.Second {
		wantNothing(t, c, 100*time.Millisecond)
	}
	if more := writes.Load() - before; more > 15 {
		t.Errorf("%d writes in a second", more)
	}
	enqueue(t, n, "x")
	mustAck(t, receive(t, c, 1)...)
	if times := log.Count("slowing down"); times > 2 { // again after the ack, which had an effect
		t.Errorf("%d lines in the log", times)
	}
}

// TestNode_TakesWhatIsDue: many deferred messages are due, and there are few
// credits. The Node claims no more than it has credits for. Positions after the
// end of the stream, even if they use all its credits, do not keep it from
// claiming due messages.
func TestNode_TakesWhatIsDue(t *testing.T) {
	slow(t)
	t.Parallel()
	db, _ := setup(t, queue.Options{})
	_, q := elsewhere(t, db.URL, "jobs")
	writes := queue.CountWrites(q)
	n, _ := start(t, q, queue.NodeConfig{Lease: time.Hour})
	c := n.Consume(queue.ConsumerOptions{Credits: 200})
	delayed(t, db, n, 200, 5*time.Second)
	c.Close()
	c = n.Consume(queue.ConsumerOptions{Credits: 10})
	before := writes.Load()
	for got := 0; got < 200; {
		if held := count(t, db.Pool, `SELECT count(*) FROM tidewire.queue_side WHERE token IS NOT NULL`); held > 10 {
			t.Fatalf("the node holds %d messages, with 10 credits", held)
		}
		ds := receive(t, c, 1)
		mustAck(t, ds...)
		got += len(ds)
	}
	if more := writes.Load() - before; more > 800 {
		t.Errorf("%d writes for 200 messages", more)
	}
}
