package queue_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

func TestPauseResumePurge(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	if err := q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	enqueue(t, n, numbered(10)...)
	c := n.Consume(queue.ConsumerOptions{Credits: 2})
	wantNothing(t, c, 300*time.Millisecond)
	if s := statsOf(t, q); !s.Paused || s.Ready+s.Leased != 10 || s.OldestAge <= 0 {
		t.Errorf("stats %+v; want 10, paused", s)
	}
	if err := q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	ds := receive(t, c, 2)
	mustAck(t, ds[1])
	msgs, err := q.Peek(t.Context(), 3)
	if err != nil || len(msgs) != 3 || string(msgs[0].Payload) != "0" || string(msgs[1].Payload) != "2" {
		t.Errorf("peeked %v, %v; want 0, 2 and 3", msgs, err)
	}
	if _, err := q.Peek(t.Context(), 0); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("peek at nothing: %v, want ErrInvalid", err)
	}
	if floor := queue.Floor(t, q); floor != 0 {
		t.Errorf("floor %d, want 0", floor)
	}
	mustNack(t, ds[0], queue.NackOptions{Delay: time.Hour})
	removed, err := q.Purge(t.Context(), queue.PurgeOptions{})
	if err != nil || removed < 7 || removed > 9 { // the node may have one or two
		t.Errorf("purged %d, %v", removed, err)
	}
	for s := statsOf(t, q); s.Leased > 0; s = statsOf(t, q) {
		if s.Ready+s.Delayed > 0 {
			t.Errorf("stats %+v; want nothing that nobody has", s)
		}
		mustAck(t, receive(t, c, 1)...)
	}
	enqueue(t, n, "new")
	if got := texts(receive(t, c, 1)); !slices.Equal(got, []string{"new"}) {
		t.Errorf("after the purge came %q", got)
	}
}

// TestNode_IdleWritesNothing: an idle node, also of a queue with many parts, only looks whether there is something new.
func TestNode_IdleWritesNothing(t *testing.T) {
	slow(t)
	t.Parallel()
	db := migrated.Open(t)
	for name, opts := range map[string]queue.Options{"plain": {}, "partitions": {Partitions: 16}} {
		watcher, err := queue.Ensure(t.Context(), db.Pool, name, opts)
		if err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int64
		pool := tracedPool(t, db.URL, func(*pgx.Conn, ...*pgx.QueuedQuery) { asked.Add(1) })
		q, err := queue.Lookup(t.Context(), pool, name)
		if err != nil {
			t.Fatal(err)
		}
		n, stop := start(t, q, queue.NodeConfig{IdleAfter: 200 * time.Millisecond, Poll: 400 * time.Millisecond, PollJournal: 400 * time.Millisecond})
		c := n.Consume(queue.ConsumerOptions{})
		enqueue(t, n, "x")
		mustAck(t, receive(t, c, 1)...)
		testkit.Eventually(t, "the lease is given up", func() bool { return queue.Leases(t, watcher) == 0 })
		rows, made, began := statsOf(t, watcher).JournalRows, asked.Load(), time.Now()
		testkit.Eventually(t, "it looks several times", func() bool { return asked.Load() >= made+6 })
		if more := statsOf(t, watcher).JournalRows - rows; more != 0 {
			t.Errorf("%s: %d rows written by an idle node", name, more)
		}
		// Two queries each 300 ms at most. A machine that stalls makes them fewer.
		if took := time.Since(began); took < 500*time.Millisecond {
			t.Errorf("%s: 6 queries in %v", name, took)
		}
		enqueue(t, n, "y")
		mustAck(t, receive(t, c, 1)...)
		stop()
	}
}

// TestAckAll: each delivery gets an answer.
func TestAckAll(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	c := n.Consume(queue.ConsumerOptions{})
	enqueue(t, n, numbered(3)...)
	ds := receive(t, c, 3)
	mustAck(t, ds[1])
	errs := queue.AckAll(t.Context(), ds)
	if len(errs) != 3 || errs[0] != nil || !errors.Is(errs[1], queue.ErrSettled) || errs[2] != nil {
		t.Errorf("AckAll: %v, want ErrSettled for the second", errs)
	}
	wantDone(t, q)
	enqueue(t, n, "more")
	if err := errors.Join(queue.AckAll(t.Context(), receive(t, c, 1))...); err != nil {
		t.Errorf("AckAll: %v", err)
	}
}

func TestStats_RatesSince(t *testing.T) {
	t.Parallel()
	first := queue.Stats{Head: 100, Ready: 10, Leased: 5, Delayed: 3, Dead: 2}
	came, done := queue.Stats{Head: 160, Ready: 20, Leased: 5, Delayed: 3, Dead: 2}.RatesSince(first, 2*time.Second)
	if came != 30 || done != 25 {
		t.Errorf("%v came and %v were done a second", came, done)
	}
}
