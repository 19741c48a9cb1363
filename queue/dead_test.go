package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// bury makes the messages dead letters, each with its text as the reason. The queue has no other messages.
func bury(t *testing.T, n *queue.Node, q *queue.Queue, msgs ...queue.Message) []queue.DeadLetter {
	t.Helper()
	for _, m := range msgs {
		mustEnqueue(t, n, m)
	}
	c := n.Consume(queue.ConsumerOptions{Credits: len(msgs)})
	defer c.Close()
	for range msgs {
		ds, err := c.ReceiveUpTo(t.Context(), 1) // of one key one after the other
		if err != nil {
			t.Fatal(err)
		}
		mustNack(t, ds[0], queue.NackOptions{Dead: true, Reason: string(ds[0].Payload)})
	}
	letters, err := q.DeadLetters(t.Context(), 0, 100)
	if err != nil || len(letters) != len(msgs) {
		t.Fatalf("%d dead letters, %v, want %d", len(letters), err, len(msgs))
	}
	return letters
}

// lettersOf returns messages with these texts for a queue of any kind, with the keys k0 to k3 in turn.
func lettersOf(opts queue.Options, texts ...string) (msgs []queue.Message) {
	for i, text := range texts {
		msgs = append(msgs, queue.Message{Key: fmt.Sprint("k", i%4), Payload: []byte(text), Priority: i % max(1, opts.Priorities)})
	}
	return msgs
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
		if len(page.Letters) > limit || page.Next != 0 && page.Next <= after {
			t.Fatalf("%d letters, want at most %d; next is %d after %d", len(page.Letters), limit, page.Next, after)
		}
		if after = page.Next; after == 0 {
			slices.Sort(all)
			return all
		}
	}
}

// TestFindDead_Filters: each part of the filter selects, with pages of all sizes. A message died when its last delivery ended: the
// pause that a retry would have had is not counted.
func TestFindDead_Filters(t *testing.T) {
	t.Parallel()
	eachKind(t, queue.Options{MaxAttempts: 1, RetryMin: time.Hour, RetryMax: time.Hour}, func(t *testing.T, db pgtest.DB, q *queue.Queue) {
		n, _ := start(t, q, queue.NodeConfig{})
		every := []string{"Text 0", "Text 1", "Text 2", "Text 3", "Text 4", "Text 5", "Text 6", "Text 7"}
		letters := bury(t, n, q, lettersOf(q.Options(), every...)...)
		died := letters[0].Died
		if later := count(t, db.Pool, `SELECT ($1 > clock_timestamp())::int`, died); later > 0 {
			t.Errorf("one died at %v, which is not over", died)
		}
		var early []string
		for _, d := range letters {
			if d.Died.Before(letters[3].Died) {
				early = append(early, string(d.Payload))
			}
		}
		slices.Sort(early)
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

// TestDeadSteps: steps redrive and purge what the filter selects, and nothing else.
func TestDeadSteps(t *testing.T) {
	t.Parallel()
	eachKind(t, queue.Options{}, func(t *testing.T, _ pgtest.DB, q *queue.Queue) {
		n, _ := start(t, q, queue.NodeConfig{})
		bury(t, n, q, lettersOf(q.Options(), "0 a", "1 b", "2 c", "3 d", "0 e", "1 f", "2 g", "3 h", "0 i", "1 j", "2 k", "3 l")...)
		steps := func(step func(context.Context, queue.DeadFilter, int64, int) (queue.DeadStep, error), f queue.DeadFilter, want int64) {
			t.Helper()
			changed := int64(0)
			for after, more := int64(0), true; more; more = after > 0 {
				done, err := step(t.Context(), f, after, 2)
				if err != nil || done.Changed > 2 {
					t.Fatalf("%+v, %v", done, err)
				}
				changed, after = changed+done.Changed, done.Next
			}
			if changed != want {
				t.Errorf("%d were changed, want %d", changed, want)
			}
		}
		steps(q.PurgeStep, queue.DeadFilter{Key: "k0"}, 3)
		steps(q.RedriveStep, queue.DeadFilter{Reason: "1 "}, 3)
		c := n.Consume(queue.ConsumerOptions{})
		for came := 0; came < 3; came++ {
			ds, err := c.ReceiveUpTo(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(ds[0].Payload), "1 ") || ds[0].Attempt != 1 {
				t.Errorf("%q, attempt %d came", ds[0].Payload, ds[0].Attempt)
			}
			mustAck(t, ds[0])
		}
		letters, err := q.DeadLetters(t.Context(), 0, 100)
		if err != nil || len(letters) != 6 {
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
		steps(q.PurgeStep, queue.DeadFilter{}, 5)
		wantDone(t, q)
	})
}

// TestFindDead_LooksAtABoundedNumber: a call that finds nothing among many dead letters says where to continue.
func TestFindDead_LooksAtABoundedNumber(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	mustExec(t, db.Pool, `INSERT INTO tidewire.queue_side (queue, position, due_at, attempts, dead, reason)
		SELECT id, n, now(), 1, true, CASE n WHEN 4900 THEN 'rare' ELSE 'common' END FROM tidewire.queue, generate_series(1, 5000) AS n`)
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

// TestRedriveStep_CountsWhatWasDone: a step that fails in one partition returns, with the error, how many it has redriven in others.
func TestRedriveStep_CountsWhatWasDone(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{Partitions: 2})
	other := newPool(t, db.URL) // the first one has few connections
	defer other.Close()
	n, _ := start(t, q, queue.NodeConfig{})
	const all = 8
	bury(t, n, q, lettersOf(q.Options(), numbered(all)...)...)
	tx := begin(t, db.Pool)
	mustExec(t, tx, "SELECT FROM tidewire.queue_side WHERE queue = (SELECT max(queue) FROM tidewire.queue_side) FOR UPDATE")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var step queue.DeadStep
	stepped := make(chan error, 1)
	go func() {
		var err error
		step, err = q.RedriveStep(ctx, queue.DeadFilter{}, 0, 100)
		stepped <- err
	}()
	testkit.Eventually(t, "the step waits for the row", func() bool { return waitForLocks(t, other) > 0 })
	cancel()
	if err := <-stepped; err == nil || step.Next != 0 {
		t.Errorf("%+v, %v", step, err)
	}
	letters, err := q.DeadLetters(t.Context(), 0, 100)
	if err != nil || len(letters) == all || step.Changed != int64(all-len(letters)) {
		t.Errorf("%d are left of %d, and %d were redriven; %v", len(letters), all, step.Changed, err)
	}
}
