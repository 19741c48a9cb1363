package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// TestUnique_PeriodBeginsWithTheFirst: a key is stored again when a period has passed since it was stored, and not before.
func TestUnique_PeriodBeginsWithTheFirst(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	before := time.Now()
	first := mustEnqueue(t, n, only("a", "x", time.Second))
	testkit.Eventually(t, "it is stored again", func() bool {
		again, err := n.Enqueue(t.Context(), only("a", "x", time.Second))
		if err != nil && (!errors.Is(err, queue.ErrDuplicate) || again.First != first) {
			t.Fatalf("at %d: %v; the first is at %d", again.First, err, first)
		}
		return err == nil
	})
	if passed := time.Since(before); passed < time.Second {
		t.Errorf("it is stored again after %v", passed)
	}
	for _, msgs := range [][]queue.Message{
		{only("a", "", time.Millisecond)}, {only("a", "", time.Hour)}, {only("", "", time.Second)},
		{only(strings.Repeat("k", 1025), "", time.Second)}, {only("a", "", time.Second), {}},
	} {
		if _, err := n.Enqueue(t.Context(), msgs...); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%d bytes of key, %v: %v, want ErrInvalid", len(msgs[0].Unique.Key), msgs[0].Unique.Period, err)
		}
	}
}

// TestUnique_ConnectionLost cuts the connections on which the request of a unique message is looked up, and that of its
// duplicate is recorded: neither is an error, and the first of two is stored.
func TestUnique_ConnectionLost(t *testing.T) {
	t.Parallel()
	db, watcher := setup(t, queue.Options{})
	for _, text := range []string{"tidewire.find_requests", "tidewire.record_duplicates"} {
		var cut atomic.Bool
		pool := tracedPool(t, db.URL, func(conn *pgx.Conn, queries ...*pgx.QueuedQuery) {
			for _, q := range queries {
				if strings.Contains(q.SQL, text) && cut.CompareAndSwap(false, true) {
					conn.PgConn().Conn().Close()
				}
			}
		})
		q, err := queue.Lookup(t.Context(), pool, "jobs")
		if err != nil {
			t.Fatal(err)
		}
		e := enqueuer(t, q)
		for sequence := range int64(2) {
			at, err := e.EnqueueAs(t.Context(), stream.RequestID{Client: text, Sequence: sequence}, only(text, "", 10*time.Minute))
			if err != nil || at.Duplicate != (sequence > 0) {
				t.Errorf("%d, beside a cut of %q: %+v, %v", sequence, text, at, err)
			}
		}
		if !cut.Load() {
			t.Errorf("%q was not cut", text)
		}
	}
	if stored := statsOf(t, watcher).Head; stored != 2 {
		t.Errorf("the stream ends at %d, want 2 messages", stored)
	}
}

// TestSubmit_UniqueInOrder: one caller submits each job twice without waiting: the
// first is stored, and the second is its duplicate, also after it was done. Accepted
// calls are answered even if the Enqueuer stops, and nothing is accepted after that.
func TestSubmit_UniqueInOrder(t *testing.T) {
	t.Parallel()
	eachKind(t, queue.Options{}, func(t *testing.T, _ pgtest.DB, q *queue.Queue) {
		e := enqueuer(t, q)
		const pairs = 100
		key := strings.Repeat("k", 900)
		var mu sync.Mutex
		at, errs := make([]int64, 2*pairs), make([]error, 2*pairs)
		answers := 0
		for i := range 2 * pairs {
			err := e.Submit(t.Context(), []queue.Message{only(fmt.Sprint(i/2, key), "x", 10*time.Minute)}, func(stored queue.Enqueued, err error) {
				mu.Lock()
				defer mu.Unlock()
				at[i], errs[i] = stored.First, err
				answers++
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		e.Stop()
		if answers != 2*pairs {
			t.Errorf("%d answers, want %d", answers, 2*pairs)
		}
		for i := range pairs {
			var duplicate *queue.DuplicateError
			if errs[2*i] != nil || !errors.Is(errs[2*i+1], queue.ErrDuplicate) || at[2*i+1] != at[2*i] || !errors.As(errs[2*i+1], &duplicate) || duplicate.Position != at[2*i] {
				t.Errorf("pair %d: at %d, %v, and then at %d, %v", i, at[2*i], errs[2*i], at[2*i+1], errs[2*i+1])
			}
		}
		for _, m := range []queue.Message{only("late", "", time.Second), {}} {
			if err := e.Submit(t.Context(), []queue.Message{m}, nil); !errors.Is(err, queue.ErrClosed) {
				t.Errorf("after the end: %v, want ErrClosed", err)
			}
		}
		n, _ := start(t, q, queue.NodeConfig{})
		mustAck(t, receive(t, n.Consume(queue.ConsumerOptions{}), pairs)...)
		wantDone(t, q)
		if _, err := n.Enqueue(t.Context(), only("0"+key, "x", 10*time.Minute)); !errors.Is(err, queue.ErrDuplicate) {
			t.Errorf("again when it is done: %v, want ErrDuplicate", err)
		}
	})
}
