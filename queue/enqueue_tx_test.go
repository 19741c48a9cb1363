package queue_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/queue"
)

// TestEnqueueTx stores if and only if the caller's transaction commits, and an
// idle transaction delays no other caller.
func TestEnqueueTx(t *testing.T) {
	t.Parallel()
	eachKind(t, queue.Options{}, func(t *testing.T, db pgtest.DB, q *queue.Queue) {
		n, _ := start(t, q, queue.NodeConfig{Poll: time.Hour, PollJournal: time.Hour, Lease: time.Hour})
		c := n.Consume(queue.ConsumerOptions{})
		high := max(0, q.Options().Priorities-1)
		begin := func(msgs ...queue.Message) pgx.Tx {
			t.Helper()
			tx, err := db.Pool.Begin(t.Context())
			if err == nil {
				err = q.EnqueueTx(t.Context(), tx, msgs...)
			}
			if err != nil {
				t.Fatal(err)
			}
			return tx
		}
		mustEnqueue(t, n, graded(0, "first"))
		mustAck(t, receive(t, c, 1)...)
		if err := begin(graded(0, "gone")).Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		later := keyed("b", "later")
		later.Due = time.Now().Add(300 * time.Millisecond)
		high1 := keyed("a", "one")
		high1.Priority = high
		tx := begin(later, high1)
		mustEnqueue(t, n, graded(high, "meanwhile")) // does not wait for tx
		ds := receive(t, c, 1)
		if string(ds[0].Payload) != "meanwhile" {
			t.Errorf("got %q", texts(ds))
		}
		mustAck(t, ds...)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		q.Notify()
		var got []string
		for range 2 { // in any order, if the commit took so long that both are due
			d := receive(t, c, 1)[0]
			if got = append(got, string(d.Payload)); string(d.Payload) == "later" && time.Now().Before(later.Due) {
				t.Error("a message came before it was due")
			}
			mustAck(t, d)
		}
		if slices.Sort(got); !slices.Equal(got, []string{"later", "one"}) {
			t.Errorf("got %q", got)
		}
		wantDone(t, q)
		bad := begin(graded(0, "never"))
		defer bad.Rollback(t.Context())
		if err := q.EnqueueTx(t.Context(), bad, graded(77, "")); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("priority 77: %v", err)
		}
		if err := q.EnqueueTx(t.Context(), bad); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("no messages: %v", err)
		}
	})
}
