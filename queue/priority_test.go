package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/queue"
)

// graded is a message with a priority.
func graded(priority int, text string) queue.Message {
	return queue.Message{Payload: []byte(text), Priority: priority}
}

func mustEnqueue(t *testing.T, n *queue.Node, msgs ...queue.Message) (first int64) {
	t.Helper()
	first, err := firstOf(n.Enqueue(t.Context(), msgs...))
	if err != nil {
		t.Fatal(err)
	}
	return first
}

func TestPriorities_HighestFirst(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{Priorities: 3})
	n, _ := start(t, q, queue.NodeConfig{})
	for i := range 20 {
		for p := range 3 {
			mustEnqueue(t, n, graded(p, fmt.Sprint(p, " ", i)))
		}
	}
	c := n.Consume(queue.ConsumerOptions{Credits: 5})
	var got []string
	for len(got) < 60 {
		ds := receive(t, c, 1)
		if len(ds) > 5 {
			t.Fatalf("%d deliveries with 5 credits", len(ds))
		}
		for _, d := range ds {
			if d.Payload[0] != byte('0'+d.Priority) {
				t.Errorf("%q has priority %d", d.Payload, d.Priority)
			}
		}
		got = append(got, texts(ds)...)
		for _, err := range queue.AckAll(t.Context(), ds) {
			if err != nil {
				t.Error(err)
			}
		}
	}
	var want []string
	for p := 2; p >= 0; p-- {
		for i := range 20 {
			want = append(want, fmt.Sprint(p, " ", i))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	wantDone(t, q)
}

// TestPriorities_PastABacklog: a message of a high priority, also a retried
// one, is delivered before a backlog of low ones, however many of these the
// node has claimed.
func TestPriorities_PastABacklog(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{Priorities: 2})
	n, _ := start(t, q, queue.NodeConfig{Lease: time.Hour, PollJournal: time.Hour})
	low := make([]queue.Message, 10_000)
	for range 10 {
		mustEnqueue(t, n, low...)
	}
	c := n.Consume(queue.ConsumerOptions{Credits: 10})
	ds := receive(t, c, 10)
	for i := range 30 {
		text := fmt.Sprint("high ", i)
		mustEnqueue(t, n, graded(1, text))
		mustAck(t, ds[0])
		got := receive(t, c, 1)
		if string(got[0].Payload) != text || len(got) != 1 {
			t.Fatalf("got %q, want %q", texts(got), text)
		}
		ds = append(ds[1:], got...)
	}
	mustNack(t, ds[9], queue.NackOptions{Delay: time.Nanosecond})
	if got := receive(t, c, 1); got[0].Attempt != 2 || got[0].Priority != 1 {
		t.Errorf("after the refusal came %q, attempt %d", got[0].Payload, got[0].Attempt)
	}
	if s, err := q.Stats(t.Context()); err != nil || len(s.Shards) != 2 || s.Shards[0].Ready < 99_000 || s.Head != 100_030 {
		t.Errorf("%+v, %v", s, err)
	}
	if n := count(t, db.Pool, `SELECT count(*) FROM tidewire.queue_family`); n != 1 {
		t.Errorf("%d families", n)
	}
}

// TestPriorities_SeveralNodes: with work for all, every message is delivered.
func TestPriorities_SeveralNodes(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{Priorities: 3})
	producer, _ := start(t, q, queue.NodeConfig{})
	got := make(chan *queue.Delivery, 1000)
	var consuming sync.WaitGroup
	for range 2 {
		_, far := elsewhere(t, db.URL, "jobs")
		n, stop := start(t, far, queue.NodeConfig{})
		c := n.Consume(queue.ConsumerOptions{Credits: 7})
		consuming.Go(func() {
			for {
				ds, err := c.Receive(t.Context())
				if err != nil {
					return
				}
				for _, d := range ds {
					mustAck(t, d)
					got <- d
				}
			}
		})
		defer stop()
	}
	for i := range 300 {
		mustEnqueue(t, producer, graded(i%3, fmt.Sprint(i)))
	}
	seen := make(map[string]bool)
	for range 300 {
		d := <-got
		if seen[string(d.Payload)] {
			t.Errorf("%q came twice", d.Payload)
		}
		seen[string(d.Payload)] = true
	}
	wantDone(t, q)
	t.Cleanup(consuming.Wait)
}

func TestSharded_IsOneThing(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{Priorities: 3, MaxAttempts: 2})
	again, err := queue.Lookup(t.Context(), db.Pool, "jobs")
	if err != nil || again.Options() != q.Options() || len(again.Streams()) != 3 {
		t.Fatalf("looked up: %v", err)
	}
	for _, opts := range []queue.Options{{}, {Priorities: 4, MaxAttempts: 2}, {Partitions: 3, MaxAttempts: 2}} {
		if _, err := queue.Ensure(t.Context(), db.Pool, "jobs", opts); !errors.Is(err, queue.ErrExists) {
			t.Errorf("Ensure with %+v: %v, want ErrOptions", opts, err)
		}
	}
	for _, opts := range []queue.Options{{Priorities: 1}, {Priorities: 11}, {Partitions: 65}, {Partitions: 2, Priorities: 2}} {
		if _, err := queue.Ensure(t.Context(), db.Pool, "other", opts); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("Ensure with %+v: %v, want ErrInvalid", opts, err)
		}
	}
	if _, err := queue.Lookup(t.Context(), db.Pool, "jobs/1"); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("a part of it: %v, want ErrInvalid", err)
	}
	if err := queue.Drop(t.Context(), db.Pool, "jobs/1"); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("Drop of a part: %v, want ErrInvalid", err)
	}
	if names, err := queue.List(t.Context(), db.Pool); err != nil || !slices.Equal(names, []string{"jobs"}) {
		t.Errorf("list: %q, %v", names, err)
	}
	n, stop := start(t, q, queue.NodeConfig{})
	for _, msgs := range [][]queue.Message{{graded(3, "")}, {graded(-1, "")}} {
		if _, err := n.Enqueue(t.Context(), msgs...); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("priority %d: %v, want ErrInvalid", msgs[0].Priority, err)
		}
	}
	if _, err := n.Enqueue(t.Context(), graded(1, ""), graded(2, "")); !errors.Is(err, queue.ErrCrossPartition) {
		t.Errorf("two priorities: %v, want ErrSpread", err)
	}
	first := mustEnqueue(t, n, graded(2, "a"), graded(2, "b"))
	mustEnqueue(t, n, graded(0, "c"))
	if msgs, err := q.Peek(t.Context(), 3); err != nil || len(msgs) != 3 || msgs[0].Position != first || msgs[1].Position != first+3 || string(msgs[2].Payload) != "c" {
		t.Errorf("peeked %+v, %v", msgs, err)
	}
	c := n.Consume(queue.ConsumerOptions{})
	for _, d := range receive(t, c, 3) {
		mustNack(t, d, queue.NackOptions{Dead: true, Reason: string(d.Payload)})
	}
	letters, err := q.DeadLetters(t.Context(), 0, 10)
	if err != nil || len(letters) != 3 || letters[1].Position != first || letters[1].Reason != "a" {
		t.Fatalf("dead: %+v, %v", letters, err)
	}
	if rest, err := q.DeadLetters(t.Context(), letters[0].Position, 1); err != nil || len(rest) != 1 || rest[0].Position != first {
		t.Errorf("dead after the first: %+v, %v", rest, err)
	}
	if redriven, err := q.Redrive(t.Context(), first); err != nil || redriven != 1 {
		t.Errorf("redriven %d, %v", redriven, err)
	}
	if ds := receive(t, c, 1); string(ds[0].Payload) != "a" || ds[0].Position != first {
		t.Errorf("redriven: %q", texts(ds))
	}
	c.Close()
	if err := q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err := q.Stats(t.Context()); err != nil || !s.Paused || s.Dead != 2 {
		t.Errorf("stats %+v, %v", s, err)
	}
	stop()
	if _, err := q.Purge(t.Context(), queue.PurgeOptions{Dead: true}); err != nil {
		t.Fatal(err)
	}
	if s, err := q.Stats(t.Context()); err != nil || s.Ready+s.Leased+s.Delayed+s.Dead != 0 {
		t.Errorf("purged, and there is %+v, %v", s, err)
	}
	if err := queue.Drop(t.Context(), db.Pool, "jobs"); err != nil {
		t.Fatal(err)
	}
	if left := count(t, db.Pool, `SELECT (SELECT count(*) FROM tidewire.stream) + (SELECT count(*) FROM tidewire.queue_family)`); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}

// TestSharded_HalfMadeAndDropped: interrupted calls of others are finished.
func TestSharded_HalfMadeAndDropped(t *testing.T) {
	t.Parallel()
	db, _ := setup(t, queue.Options{Partitions: 3})
	if _, err := db.Pool.Exec(t.Context(), `UPDATE tidewire.queue_family SET dropping = true`); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Lookup(t.Context(), db.Pool, "jobs"); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("half dropped: %v, want ErrNotFound", err)
	}
	q, err := queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{Partitions: 2})
	if err != nil || len(q.Streams()) != 2 {
		t.Fatalf("made anew: %v", err)
	}
	if streams := count(t, db.Pool, `SELECT count(*) FROM tidewire.stream`); streams != 2 {
		t.Errorf("%d streams", streams)
	}
	for _, name := range []string{"single", "single/0"} {
		if _, err := queue.Ensure(t.Context(), db.Pool, name, queue.Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := queue.Ensure(t.Context(), db.Pool, "single", queue.Options{Partitions: 1}); !errors.Is(err, queue.ErrExists) {
			t.Errorf("beside %s: %v, want ErrOptions", name, err)
		}
		if err := queue.Drop(t.Context(), db.Pool, name); err != nil {
			t.Error(err)
		}
	}
	var racing sync.WaitGroup
	for i := range 6 {
		racing.Go(func() {
			for range 4 {
				if i < 3 {
					if _, err := queue.Ensure(t.Context(), db.Pool, "flicker", queue.Options{Priorities: 2}); err != nil {
						t.Error(err)
					}
				} else if err := queue.Drop(t.Context(), db.Pool, "flicker"); err != nil && !errors.Is(err, queue.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	racing.Wait()
}
