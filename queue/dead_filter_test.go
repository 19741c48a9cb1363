package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/queue"
)

// bury makes the messages dead letters, each with its text as the reason. The queue has no other messages.
func bury(t *testing.T, n *queue.Node, q *queue.Queue, msgs ...queue.Message) {
	t.Helper()
	for _, m := range msgs {
		mustEnqueue(t, n, m)
	}
	c := n.Consume(queue.ConsumerOptions{Credits: len(msgs)})
	defer c.Close()
	for got := 0; got < len(msgs); {
		for _, d := range receive(t, c, 1) {
			mustNack(t, d, queue.NackOptions{Dead: true, Reason: string(d.Payload)})
			got++
		}
	}
	eventually(t, "all are dead", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Leased == 0 && s.Ready == 0
	})
}

// found returns the texts that FindDead finds with pages of that many.
func found(t *testing.T, q *queue.Queue, f queue.DeadFilter, limit, bytes int) (all []string) {
	t.Helper()
	last := int64(0)
	for after := int64(0); ; {
		page, err := q.FindDead(t.Context(), f, after, limit, bytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Letters {
			if d.Position <= last || string(d.Payload) != d.Reason || d.Died.IsZero() {
				t.Errorf("%+v after %d", d, last)
			}
			last = d.Position
			all = append(all, string(d.Payload))
		}
		if len(page.Letters) > limit {
			t.Errorf("%d letters, want at most %d", len(page.Letters), limit)
		}
		if page.Next == 0 {
			slices.Sort(all)
			return all
		}
		if page.Next <= after {
			t.Fatalf("next is %d after %d", page.Next, after)
		}
		after = page.Next
	}
}

// TestFindDead_Filters: each part of the filter selects, in queues of all kinds and with pages of all sizes.
func TestFindDead_Filters(t *testing.T) {
	t.Parallel()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts.MaxAttempts = 2
			_, q := setup(t, opts)
			n, _ := start(t, q, queue.NodeConfig{})
			var msgs []queue.Message
			for i := range 8 {
				msgs = append(msgs, queue.Message{Key: fmt.Sprint("k", i%4), Payload: fmt.Append(nil, "Text ", i), Priority: i % max(1, opts.Priorities)})
			}
			bury(t, n, q, msgs...)
			letters, err := q.DeadLetters(t.Context(), 0, 100)
			if err != nil || len(letters) != 8 {
				t.Fatalf("%d dead letters, %v", len(letters), err)
			}
			died := letters[0].Died
			var early []string
			for _, d := range letters {
				if d.Died.Before(letters[3].Died) {
					early = append(early, string(d.Payload))
				}
			}
			slices.Sort(early)
			var every []string
			for i := range 8 {
				every = append(every, fmt.Sprint("Text ", i))
			}
			for what, c := range map[string]struct {
				filter queue.DeadFilter
				want   []string
			}{
				"all":               {queue.DeadFilter{}, every},
				"key":               {queue.DeadFilter{Key: "k1"}, []string{"Text 1", "Text 5"}},
				"reason":            {queue.DeadFilter{Reason: "tEXT 3"}, []string{"Text 3"}},
				"reason and key":    {queue.DeadFilter{Reason: "text", Key: "k3"}, []string{"Text 3", "Text 7"}},
				"attempts":          {queue.DeadFilter{MinAttempts: 1, MaxAttempts: 1}, every},
				"more attempts":     {queue.DeadFilter{MinAttempts: 2}, nil},
				"since":             {queue.DeadFilter{Since: died.Add(-time.Hour)}, every},
				"since later":       {queue.DeadFilter{Since: died.Add(time.Hour)}, nil},
				"before":            {queue.DeadFilter{Before: letters[3].Died}, early},
				"no key":            {queue.DeadFilter{Key: "k"}, nil},
				"a pattern of SQL":  {queue.DeadFilter{Reason: "%"}, nil},
				"a pattern for one": {queue.DeadFilter{Reason: "Text _"}, nil},
			} {
				for _, limit := range []int{1, 3, queue.MaxDeadStep} {
					if got := found(t, q, c.filter, limit, math.MaxInt); !slices.Equal(got, c.want) {
						t.Errorf("%s, %d at a time: %q, want %q", what, limit, got, c.want)
					}
				}
			}
			if got := found(t, q, queue.DeadFilter{}, 100, 1); !slices.Equal(got, every) {
				t.Errorf("in pages of a byte: %q", got)
			}
		})
	}
}

// TestDeadSteps_RedriveAndPurge: steps change what the filter selects, and nothing else.
func TestDeadSteps_RedriveAndPurge(t *testing.T) {
	t.Parallel()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, q := setup(t, opts)
			n, _ := start(t, q, queue.NodeConfig{})
			var msgs []queue.Message
			for i := range 12 {
				msgs = append(msgs, queue.Message{Key: fmt.Sprint("k", i%3), Payload: fmt.Append(nil, i%3, " ", i), Priority: i % max(1, opts.Priorities)})
			}
			bury(t, n, q, msgs...)
			steps := func(step func(f queue.DeadFilter, after int64) (queue.DeadStep, error), f queue.DeadFilter) (changed int64) {
				for after := int64(0); ; {
					done, err := step(f, after)
					if err != nil || done.Changed > 2 {
						t.Fatalf("%+v, %v", done, err)
					}
					changed += done.Changed
					if after = done.Next; after == 0 {
						return changed
					}
				}
			}
			purge := func(f queue.DeadFilter, after int64) (queue.DeadStep, error) {
				return q.PurgeStep(t.Context(), f, after, 2)
			}
			redrive := func(f queue.DeadFilter, after int64) (queue.DeadStep, error) {
				return q.RedriveStep(t.Context(), f, after, 2)
			}
			if n := steps(purge, queue.DeadFilter{Key: "k0"}); n != 4 {
				t.Errorf("purged %d, want 4", n)
			}
			if n := steps(redrive, queue.DeadFilter{Reason: "1 "}); n != 4 {
				t.Errorf("redriven %d, want 4", n)
			}
			c := n.Consume(queue.ConsumerOptions{})
			for came := 0; came < 4; {
				for _, d := range receive(t, c, 1) {
					if !strings.Contains(string(d.Payload), "1 ") || d.Attempt != 1 {
						t.Errorf("%q, attempt %d came", d.Payload, d.Attempt)
					}
					mustAck(t, d)
					came++
				}
			}
			if left := found(t, q, queue.DeadFilter{}, 2, math.MaxInt); len(left) != 4 {
				t.Errorf("left are %q", left)
			}
			letters, err := q.DeadLetters(t.Context(), 0, 1)
			if err != nil || len(letters) != 1 {
				t.Fatal(letters, err)
			}
			for _, want := range []int64{1, 0} {
				if n, err := q.PurgeDead(t.Context(), letters[0].Position, -5, 1<<40); err != nil || n != want {
					t.Errorf("purged %d, %v, want %d", n, err, want)
				}
			}
			if n, err := q.PurgeDead(t.Context()); err != nil || n != 0 {
				t.Errorf("no positions: purged %d, %v", n, err)
			}
			if n := steps(purge, queue.DeadFilter{}); n != 3 {
				t.Errorf("purged %d at last, want 3", n)
			}
			wantDone(t, q)
		})
	}
}

// TestDeadSteps_ManyOperators: several operators redrive and purge the same dead letters at the same time. Each letter
// is changed by one of them.
func TestDeadSteps_ManyOperators(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO tidewire.queue_side (queue, position, due_at, attempts, dead, reason)
		SELECT id, n, now(), 1, true, 'bad' FROM tidewire.queue, generate_series(1, 3000) AS n`); err != nil {
		t.Fatal(err)
	}
	var redriven, purged atomic.Int64
	var operating sync.WaitGroup
	for operator := range 8 {
		step, sum := q.RedriveStep, &redriven
		if operator%2 > 0 {
			step, sum = q.PurgeStep, &purged
		}
		operating.Go(func() {
			for after := int64(0); ; {
				done, err := step(t.Context(), queue.DeadFilter{Reason: "bad"}, after, 100+operator)
				if err != nil {
					t.Error(err)
					return
				}
				sum.Add(done.Changed)
				if after = done.Next; after == 0 {
					return
				}
			}
		})
	}
	operating.Wait()
	if n := redriven.Load() + purged.Load(); n != 3000 {
		t.Errorf("%d changed, want 3000", n)
	}
	if left := count(t, db.Pool, `SELECT count(*) FROM tidewire.queue_side`); left != redriven.Load() {
		t.Errorf("%d are left, %d were redriven", left, redriven.Load())
	}
}

// TestFindDead_LooksAtABoundedNumber: a call that finds nothing among many dead letters says where to continue.
func TestFindDead_LooksAtABoundedNumber(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO tidewire.queue_side (queue, position, due_at, attempts, dead, reason)
		SELECT id, n, now(), 1, true, CASE n WHEN 4900 THEN 'rare' ELSE 'common' END FROM tidewire.queue, generate_series(1, 5000) AS n`); err != nil {
		t.Fatal(err)
	}
	calls := 0
	var rare []int64
	for after, more := int64(0), true; more; calls++ {
		page, err := q.FindDead(t.Context(), queue.DeadFilter{Reason: "rare"}, after, 10, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Letters {
			rare = append(rare, d.Position)
		}
		after, more = page.Next, page.Next > 0
	}
	if !slices.Equal(rare, []int64{4900}) || calls < 3 {
		t.Errorf("found %d with %d calls, want 4900 with several", rare, calls)
	}
	for _, limit := range []int{0, queue.MaxDeadStep + 1} {
		if _, err := q.FindDead(t.Context(), queue.DeadFilter{}, 0, limit, 1); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("limit %d: %v, want ErrInvalid", limit, err)
		}
	}
	if _, err := q.RedriveStep(t.Context(), queue.DeadFilter{}, -1, 1); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("position -1: %v, want ErrInvalid", err)
	}
}

// TestDied_IsWhenTheLastDeliveryEnded: the pause that a retry would have had is not counted.
func TestDied_IsWhenTheLastDeliveryEnded(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{MaxAttempts: 1, RetryMin: time.Hour, RetryMax: time.Hour})
	n, _ := start(t, q, queue.NodeConfig{})
	enqueue(t, n, "x")
	mustNack(t, receive(t, n.Consume(queue.ConsumerOptions{}), 1)[0], queue.NackOptions{Reason: "x"})
	letters, err := q.DeadLetters(t.Context(), 0, 1)
	if err != nil || len(letters) != 1 {
		t.Fatal(letters, err)
	}
	var later bool
	if err := db.Pool.QueryRow(t.Context(), `SELECT $1 > clock_timestamp()`, letters[0].Died).Scan(&later); err != nil || later {
		t.Errorf("it died at %v, which is not over: %v", letters[0].Died, err)
	}
}

// TestPeekUpTo_Bytes: it returns fewer messages if they are large, and one at least.
func TestPeekUpTo_Bytes(t *testing.T) {
	t.Parallel()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, q := setup(t, opts)
			n, _ := start(t, q, queue.NodeConfig{})
			for i := range 40 {
				mustEnqueue(t, n, keyed(fmt.Sprint(i), strings.Repeat("x", 100)))
			}
			for bytes, want := range map[int]int{1: 1, 1000: 10, math.MaxInt: 40} {
				if msgs, err := q.PeekUpTo(t.Context(), 50, bytes); err != nil || len(msgs) != want {
					t.Errorf("%d messages within %d bytes, %v, want %d", len(msgs), bytes, err, want)
				}
			}
		})
	}
}

// TestRedriveStep_CountsWhatWasDone: a step that fails in one partition returns, with the error, how many it has redriven in others.
func TestRedriveStep_CountsWhatWasDone(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{Partitions: 2})
	other := newPool(t, db.URL) // the first one has few connections
	defer other.Close()
	n, _ := start(t, q, queue.NodeConfig{})
	var msgs []queue.Message
	for i := range 12 {
		msgs = append(msgs, queue.Message{Key: fmt.Sprint("k", i), Payload: fmt.Append(nil, i)})
	}
	bury(t, n, q, msgs...)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT FROM tidewire.queue_side WHERE queue = (SELECT max(queue) FROM tidewire.queue_side) FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		eventually(t, "the step waits for the row", func() bool {
			waits := false
			const sql = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"
			return other.QueryRow(t.Context(), sql).Scan(&waits) == nil && waits
		})
	}()
	step, err := q.RedriveStep(ctx, queue.DeadFilter{}, 0, 100)
	if err == nil || step.Next != 0 {
		t.Errorf("%+v, %v", step, err)
	}
	letters, err := q.DeadLetters(t.Context(), 0, 100)
	if err != nil || len(letters) == len(msgs) || step.Changed != int64(len(msgs)-len(letters)) {
		t.Errorf("%d are left of %d, and %d were redriven; %v", len(letters), len(msgs), step.Changed, err)
	}
}
