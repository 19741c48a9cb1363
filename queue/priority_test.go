package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidewire/tidewire/queue"
)

func TestPriorities_HighestFirst(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{Priorities: 3})
	n, _ := start(t, q, queue.NodeConfig{})
	for i := range 10 {
		for p := range 3 {
			mustEnqueue(t, n, graded(p, fmt.Sprint(p, " ", i)))
		}
	}
	c := n.Consume(queue.ConsumerOptions{Credits: 5})
	var got []string
	for len(got) < 30 {
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
		mustAck(t, ds...)
	}
	var want []string
	for p := 2; p >= 0; p-- {
		for i := range 10 {
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
	q := setupShared(t, queue.Options{Priorities: 2})
	n, _ := start(t, q, queue.NodeConfig{Lease: time.Hour, PollJournal: time.Hour})
	mustEnqueue(t, n, make([]queue.Message, 10_000)...)
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
	for low := 0; ; low++ { // some may be delivered before the refusal is recorded
		got := receive(t, c, 1)
		if got[0].Attempt == 2 && got[0].Priority == 1 {
			break
		}
		if low == 500 {
			t.Fatalf("%d messages of low priority come before the one that was refused", low)
		}
		mustAck(t, got...)
	}
	if s := statsOf(t, q); len(s.Shards) != 2 || s.Shards[0].Ready < 9_000 || s.Head != 10_030 {
		t.Errorf("%+v", s)
	}
}
