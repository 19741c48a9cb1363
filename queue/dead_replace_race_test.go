package queue_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidewire/tidewire/queue"
)

// TestReplaceDead_Concurrent: of a replacement, redrives and purges of one dead letter at a time one takes it, and what was replaced is in the queue once.
func TestReplaceDead_Concurrent(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]queue.Options{"plain": {}, "partitions": {Partitions: 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts.MaxAttempts = 1
			_, q := setup(t, opts)
			n, _ := start(t, q, queue.NodeConfig{})
			c := n.Consume(queue.ConsumerOptions{})
			const letters = 40
			for i := range letters {
				mustEnqueue(t, n, keyed(fmt.Sprint("k", i), fmt.Sprint("bad", i)))
			}
			for _, d := range receive(t, c, letters) {
				if err := d.Nack(t.Context(), queue.NackOptions{Dead: true}); err != nil {
					t.Fatal(err)
				}
			}
			var dead []queue.DeadLetter
			eventually(t, "all are dead", func() bool {
				dead, _ = q.DeadLetters(t.Context(), 0, 100)
				return len(dead) == letters
			})
			replaced, redriven, purged := takeDead(t, q, dead)
			got := make(map[string]int)
			left := int(replaced.Load() + redriven.Load())
			for _, d := range receive(t, c, left) {
				got[string(d.Payload)]++
				mustAck(t, d)
			}
			wantDone(t, q)
			good, bad := 0, 0
			for _, d := range dead {
				again, new := got[string(d.Payload)], got["new "+string(d.Payload)]
				if good, bad = good+new, bad+again; again+new > 1 {
					t.Errorf("%s is there %d times, its replacement %d times", d.Payload, again, new)
				}
			}
			if good != int(replaced.Load()) || bad != int(redriven.Load()) || left+int(purged.Load()) != letters {
				t.Errorf("%d replaced and %d told, %d redriven and %d told, %d purged", good, replaced.Load(), bad, redriven.Load(), purged.Load())
			}
		})
	}
}

// takeDead replaces, redrives and purges each of the dead letters at once.
func takeDead(t *testing.T, q *queue.Queue, dead []queue.DeadLetter) (replaced, redriven, purged *atomic.Int64) {
	replaced, redriven, purged = new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)
	var working sync.WaitGroup
	defer working.Wait()
	all := make([]int64, len(dead))
	for i, d := range dead {
		all[i] = d.Position
	}
	for range 2 {
		working.Go(func() {
			for _, d := range dead {
				done, err := q.ReplaceDead(t.Context(), d.Position, keyed(d.Key, "new "+string(d.Payload)))
				if err != nil {
					t.Error(err)
				}
				if done {
					replaced.Add(1)
				}
			}
		})
	}
	counts := func(to *atomic.Int64, n int64, err error) {
		if to.Add(n); err != nil && !errors.Is(err, t.Context().Err()) {
			t.Error(err)
		}
	}
	working.Go(func() {
		for i := len(all) - 1; i >= 0; i -= 3 {
			n, err := q.Redrive(t.Context(), all[i])
			counts(redriven, n, err)
		}
	})
	working.Go(func() {
		for i := 0; i+2 < len(all); i += 10 {
			n, err := q.PurgeDead(t.Context(), all[i], all[i+2])
			counts(purged, n, err)
		}
	})
	working.Go(func() {
		for after := int64(0); ; {
			step, err := q.RedriveStep(t.Context(), queue.DeadFilter{}, after, 7)
			if counts(redriven, step.Changed, err); err != nil || step.Next == 0 {
				return
			}
			after = step.Next
		}
	})
	return replaced, redriven, purged
}
