package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// all is a queue.Assigner that gives all numbers to every member.
func all(ctx context.Context, _ string, numbers int, own func(context.Context, int, <-chan struct{})) error {
	var owning sync.WaitGroup
	for i := range numbers {
		owning.Go(func() { own(ctx, i, ctx.Done()) })
	}
	owning.Wait()
	return nil
}

// TestPartitions_KeepOrder goes through all outcomes of one message: only the others
// of its key have to wait.
func TestPartitions_KeepOrder(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{Partitions: 2, MaxAttempts: 3})
	n, _ := start(t, q, queue.NodeConfig{Lease: time.Hour})
	for i := range 4 {
		mustEnqueue(t, n, keyed("a", fmt.Sprint("a", i)))
		mustEnqueue(t, n, keyed("b", fmt.Sprint("b", i)))
	}
	mustEnqueue(t, n, keyed("", "free"), keyed("", "free"))
	c := n.Consume(queue.ConsumerOptions{Visibility: time.Hour})
	next := func(want string) *queue.Delivery {
		t.Helper()
		d := receive(t, c, 1)[0]
		if string(d.Payload) != want {
			t.Fatalf("got %q, want %q", d.Payload, want)
		}
		return d
	}
	ds := receive(t, c, 4)
	slices.SortFunc(ds, func(a, b *queue.Delivery) int { return slices.Compare(a.Payload, b.Payload) })
	if got := texts(ds); !slices.Equal(got, []string{"a0", "b0", "free", "free"}) {
		t.Fatalf("got %q", got)
	}
	wantNothing(t, c, 50*time.Millisecond)
	mustAck(t, ds[1])
	b1 := next("b1")
	mustNack(t, ds[0], queue.NackOptions{Delay: 2 * time.Second})
	mustNack(t, ds[2], queue.NackOptions{Delay: time.Hour})
	wantNothing(t, c, 50*time.Millisecond)
	a0 := next("a0")
	if a0.Attempt != 2 {
		t.Errorf("attempt %d, want 2", a0.Attempt)
	}
	mustNack(t, a0, queue.NackOptions{Dead: true})
	a1 := next("a1")
	if err := a1.AckLater(); err != nil {
		t.Error(err)
	}
	a2 := next("a2")
	if redriven, err := q.Redrive(t.Context()); err != nil || redriven != 1 {
		t.Fatal(redriven, err)
	}
	testkit.Eventually(t, "what was dead has been taken", func() bool {
		s := statsOf(t, q)
		return s.Dead == 0 && s.Delayed == 1
	})
	mustAck(t, a2)
	a3 := receive(t, c, 1)[0]
	if string(a3.Payload) != "a3" { // otherwise the redriven a0 was taken, but not read yet: it comes after a3
		if string(a3.Payload) != "a0" {
			t.Fatalf("got %q, want a0 or a3", a3.Payload)
		}
		mustAck(t, a3)
		a3 = next("a3")
	}
	c.Close()
	c = n.Consume(queue.ConsumerOptions{Visibility: 50 * time.Millisecond})
	again := receive(t, c, 3)
	if err := a3.Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("ack after Close: %v", err)
	}
	if err := b1.Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("ack after Close: %v", err)
	}
	if len(again) != 3 {
		t.Errorf("again came %q", texts(again))
	}
	for key, hash := range map[string]uint32{"a": 0xca978112, "b": 0x3e23e816, "c": 0x2e7d2c03} { // SHA-256: it never changes
		if partition := q.PartitionOf(key); partition != int(hash%2) {
			t.Errorf("%s is in partition %d, want %d", key, partition, hash%2)
		}
	}
}

// TestPartitions_DelayedKeepsItsPlace: a message that is not due delays only its own key.
func TestPartitions_DelayedKeepsItsPlace(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{Partitions: 1})
	n, _ := start(t, q, queue.NodeConfig{})
	first, never := keyed("a", "a0"), keyed("c", "c0")
	first.Due, never.Due = time.Now().Add(500*time.Millisecond), time.Now().Add(time.Hour)
	mustEnqueue(t, n, never, first, keyed("c", "c1"), keyed("a", "a1"), keyed("b", "b0"))
	c := n.Consume(queue.ConsumerOptions{Credits: 1})
	var got []string
	for range 3 {
		d := receiveUpTo(t, c, 1)[0]
		if string(d.Payload) == "a0" && time.Now().Before(first.Due) {
			t.Error("a0 came before it is due")
		}
		got = append(got, string(d.Payload))
		mustAck(t, d)
	}
	if a0, a1 := slices.Index(got, "a0"), slices.Index(got, "a1"); a0 < 0 || a1 < a0 || !slices.Contains(got, "b0") {
		t.Errorf("got %q", got)
	}
}

// moving is the Assigner of two members: the first has all partitions, has to hand two of them to the second, and gets them back.
type moving struct {
	joined     chan struct{} // closed when the second begins
	free, back [2]chan struct{}
}

func (m *moving) first(ctx context.Context, _ string, numbers int, own func(context.Context, int, <-chan struct{})) error {
	var owning sync.WaitGroup
	for i := range numbers {
		owning.Go(func() {
			if i < len(m.free) {
				own(ctx, i, m.joined)
				close(m.free[i])
				select {
				case <-m.back[i]:
				case <-ctx.Done():
					return
				}
			}
			own(ctx, i, ctx.Done())
		})
	}
	owning.Wait()
	return nil
}

func (m *moving) second(ctx context.Context, _ string, _ int, own func(context.Context, int, <-chan struct{})) error {
	close(m.joined)
	var owning sync.WaitGroup
	for i := range m.free {
		owning.Go(func() {
			defer close(m.back[i])
			select {
			case <-m.free[i]:
				own(ctx, i, ctx.Done())
			case <-ctx.Done():
			}
		})
	}
	owning.Wait()
	return nil
}

// TestPartitions_SharedOut: partitions move to a node that joins, and back when it leaves, as soon as their deliveries are settled.
// Credits count once for all partitions.
func TestPartitions_SharedOut(t *testing.T) {
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{Partitions: 4})
	m := &moving{joined: make(chan struct{})}
	for i := range m.free {
		m.free[i], m.back[i] = make(chan struct{}), make(chan struct{})
	}
	cfg := queue.NodeConfig{Lease: time.Hour, StallAfter: time.Hour, Drain: time.Hour, Assign: m.first}
	n, _ := start(t, q, cfg)
	c := n.Consume(queue.ConsumerOptions{Credits: 3, Visibility: time.Hour})
	for i := range 40 {
		mustEnqueue(t, n, keyed(fmt.Sprint("k", i), fmt.Sprint(i)))
	}
	held := receive(t, c, 3)
	wantNothing(t, c, 50*time.Millisecond)
	c.SetCredits(100)
	held = append(held, receive(t, c, 37)...)
	_, far := elsewhere(t, db.URL, q.Name())
	cfg.Assign = m.second
	n2, stop := start(t, far, cfg)
	c2 := n2.Consume(queue.ConsumerOptions{})
	for i := range 40 {
		mustEnqueue(t, n, keyed(fmt.Sprint("k", i), fmt.Sprint("again ", i)))
	}
	wantNothing(t, c2, 200*time.Millisecond)
	for _, d := range held { // those of the last keys are refused: they are delivered again
		if n, _ := strconv.Atoi(string(d.Payload)); n < 30 {
			mustAck(t, d)
		}
	}
	for _, d := range held {
		if n, _ := strconv.Atoi(string(d.Payload)); n >= 30 {
			mustNack(t, d, queue.NackOptions{Delay: queue.AtOnce})
		}
	}
	mine, others := receive(t, c, 1), receive(t, c2, 1)
	mustAck(t, mine...)
	mustAck(t, others...)
	c2.Close()
	stop()
	for got := len(mine) + len(others); got < 50; {
		ds := receive(t, c, 1)
		mustAck(t, ds...)
		got += len(ds)
	}
	wantDone(t, q)
}
