package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// TestAlter_RunningNodesTakeIt: a node of another process delivers by the new options, without a restart.
func TestAlter_RunningNodesTakeIt(t *testing.T) {
	t.Parallel()
	eachKind(t, queue.Options{RetryMin: time.Hour, RetryMax: time.Hour}, func(t *testing.T, db pgtest.DB, q *queue.Queue) {
		opts := q.Options()
		_, far := elsewhere(t, db.URL, q.Name())
		n, _ := start(t, far, queue.NodeConfig{})
		c := n.Consume(queue.ConsumerOptions{})
		changed, err := q.Alter(t.Context(), queue.Changes{MaxAttempts: 2, RetryMin: 2 * time.Millisecond, RetryMax: 3 * time.Millisecond})
		want := q.Options()
		if err != nil || changed != want || want.MaxAttempts != 2 || want.RetryMin != 2*time.Millisecond || want.RetryMax != 3*time.Millisecond ||
			want.Priorities != opts.Priorities || want.Partitions != opts.Partitions {
			t.Fatalf("%+v, %v, the queue has %+v", changed, err, want)
		}
		testkit.Eventually(t, "the node has the options", func() bool { return far.Options() == want })
		enqueue(t, n, "x")
		for range 2 {
			mustNack(t, receive(t, c, 1)[0], queue.NackOptions{})
		}
		if letters, err := q.DeadLetters(t.Context(), 0, 10); err != nil || len(letters) != 1 {
			t.Errorf("%d dead letters, %v, want 1", len(letters), err)
		}
		if again, err := queue.Ensure(t.Context(), db.Pool, q.Name(), want); err != nil || again.Options() != want {
			t.Errorf("ensured with the new options: %v", err)
		}
		if _, err := queue.Ensure(t.Context(), db.Pool, q.Name(), opts); !errors.Is(err, queue.ErrExists) {
			t.Errorf("ensured with the old options: %v, want ErrExists", err)
		}
	})
}

// TestAlter_FewerAttempts: a message that was delivered more often than is allowed now dies when it is next due.
func TestAlter_FewerAttempts(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{MaxAttempts: 10})
	n, _ := start(t, q, queue.NodeConfig{})
	c := n.Consume(queue.ConsumerOptions{})
	enqueue(t, n, "x")
	for range 2 {
		mustNack(t, receive(t, c, 1)[0], queue.NackOptions{Delay: time.Millisecond, Reason: "bad"})
	}
	mustNack(t, receive(t, c, 1)[0], queue.NackOptions{Delay: 2 * time.Second, Reason: "bad"})
	if _, err := q.Alter(t.Context(), queue.Changes{MaxAttempts: 3}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is dead", func() bool {
		letters, err := q.DeadLetters(t.Context(), 0, 10)
		return err == nil && len(letters) == 1 && letters[0].Attempts == 3
	})
}

func TestAlter_KeepsWhatIsNotGiven(t *testing.T) {
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{MaxAttempts: 4, RetryMin: time.Second, RetryMax: time.Minute})
	for _, c := range []struct {
		changes queue.Changes
		want    queue.Options
	}{
		{queue.Changes{}, queue.Options{MaxAttempts: 4, RetryMin: time.Second, RetryMax: time.Minute}},
		{queue.Changes{RetryMin: time.Hour}, queue.Options{MaxAttempts: 4, RetryMin: time.Hour, RetryMax: time.Hour}},
		{queue.Changes{RetryMax: time.Minute}, queue.Options{MaxAttempts: 4, RetryMin: time.Hour, RetryMax: time.Hour}},
		{queue.Changes{MaxAttempts: 7, RetryMin: time.Second, RetryMax: time.Minute}, queue.Options{MaxAttempts: 7, RetryMin: time.Second, RetryMax: time.Minute}},
	} {
		if got, err := q.Alter(t.Context(), c.changes); err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v, want %+v", c.changes, got, err, c.want)
		}
	}
	for _, bad := range []queue.Changes{
		{MaxAttempts: -1}, {MaxAttempts: queue.MaxAttempts + 1}, {RetryMin: -1}, {RetryMin: 1}, {RetryMax: queue.MaxRetry + 1},
	} {
		if _, err := q.Alter(t.Context(), bad); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", bad, err)
		}
	}
	if err := queue.Drop(t.Context(), db.Pool, q.Name()); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Alter(t.Context(), queue.Changes{MaxAttempts: 1}); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("a dropped queue: %v, want ErrNotFound", err)
	}
}
