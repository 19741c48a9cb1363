package queue_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/queue"
)

// TestReplaceDead: the dead letter goes and the new message comes, both or neither.
func TestReplaceDead(t *testing.T) {
	t.Parallel()
	eachKind(t, queue.Options{MaxAttempts: 1}, func(t *testing.T, _ pgtest.DB, q *queue.Queue) {
		n, _ := start(t, q, queue.NodeConfig{})
		at := bury(t, n, q, keyed("a", "bad"))[0].Position
		if done, err := q.ReplaceDead(t.Context(), at, graded(77, "never")); done || !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("priority 77: %v, %v", done, err)
		}
		if letters, _ := q.DeadLetters(t.Context(), 0, 10); len(letters) != 1 {
			t.Fatal("a message that is refused has taken the dead letter away")
		}
		if done, err := q.ReplaceDead(t.Context(), at+100, keyed("a", "never")); done || err != nil {
			t.Errorf("at another position: %v, %v", done, err)
		}
		for _, want := range []bool{true, false} {
			if done, err := q.ReplaceDead(t.Context(), at, keyed("a", "good")); done != want || err != nil {
				t.Errorf("%v, %v, want %v", done, err, want)
			}
		}
		d := receive(t, n.Consume(queue.ConsumerOptions{}), 1)[0]
		if string(d.Payload) != "good" || d.Attempt != 1 || d.Position == at {
			t.Errorf("got %q at %d, attempt %d", d.Payload, d.Position, d.Attempt)
		}
		mustAck(t, d)
		wantDone(t, q)
	})
}

// TestDead_ManyOperators: of replacements, redrives and purges of one dead letter at a time one takes it, and what was
// replaced is in the queue once.
func TestDead_ManyOperators(t *testing.T) {
	slow(t)
	t.Parallel()
	eachKind(t, queue.Options{MaxAttempts: 1}, func(t *testing.T, _ pgtest.DB, q *queue.Queue) {
		n, _ := start(t, q, queue.NodeConfig{})
		dead := bury(t, n, q, lettersOf(q.Options(), numbered(32)...)...)
		replaced, redriven, purged := operate(t, q, dead)
		got := make(map[string]int)
		c := n.Consume(queue.ConsumerOptions{})
		for range replaced + redriven {
			ds, err := c.ReceiveUpTo(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			got[string(ds[0].Payload)]++
			mustAck(t, ds[0])
		}
		wantDone(t, q)
		good, bad := 0, 0
		for _, d := range dead {
			again, replacement := got[string(d.Payload)], got["new "+string(d.Payload)]
			if good, bad = good+replacement, bad+again; again+replacement > 1 {
				t.Errorf("%s is there %d times, its replacement %d times", d.Payload, again, replacement)
			}
		}
		if good != int(replaced) || bad != int(redriven) || int(replaced+redriven+purged) != len(dead) {
			t.Errorf("%d replaced, answered %d, %d redriven, answered %d, %d purged", good, replaced, bad, redriven, purged)
		}
	})
}

// operate replaces, redrives and purges each of the dead letters at once, and returns what the operators were answered.
func operate(t *testing.T, q *queue.Queue, dead []queue.DeadLetter) (replaced, redriven, purged int64) {
	var sums [3]atomic.Int64
	var working sync.WaitGroup
	add := func(sum int, n int64, err error) {
		if sums[sum].Add(n); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		working.Go(func() {
			for _, d := range dead {
				done, err := q.ReplaceDead(t.Context(), d.Position, keyed(d.Key, "new "+string(d.Payload)))
				if err != nil {
					t.Error(err)
				}
				if done {
					sums[0].Add(1)
				}
			}
		})
	}
	working.Go(func() {
		for i := len(dead) - 1; i >= 0; i -= 3 {
			n, err := q.Redrive(t.Context(), dead[i].Position)
			add(1, n, err)
		}
	})
	working.Go(func() {
		for i := 0; i+2 < len(dead); i += 10 {
			n, err := q.PurgeDead(t.Context(), dead[i].Position, dead[i+2].Position)
			add(2, n, err)
		}
	})
	for sum, step := range map[int]func(context.Context, queue.DeadFilter, int64, int) (queue.DeadStep, error){1: q.RedriveStep, 2: q.PurgeStep} {
		working.Go(func() {
			for after, more := int64(0), true; more; more = after > 0 {
				done, err := step(t.Context(), queue.DeadFilter{}, after, 3+sum)
				add(sum, done.Changed, err)
				after = done.Next
			}
		})
	}
	working.Wait()
	return sums[0].Load(), sums[1].Load(), sums[2].Load()
}
