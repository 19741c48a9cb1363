package queue_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// TestConsumer_Credits: never more than the credits, also if the node claimed messages for another Consumer, and a closed Consumer's
// messages go to others at once.
func TestConsumer_Credits(t *testing.T) {
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{StallAfter: time.Hour})
	idle := n.Consume(queue.ConsumerOptions{Credits: 20})
	a := n.Consume(queue.ConsumerOptions{Credits: 3})
	enqueue(t, n, numbered(5)...)
	held := receive(t, a, 3)
	wantNothing(t, a, 50*time.Millisecond)
	if err := held[0].AckLater(); err != nil {
		t.Error(err)
	}
	held = append(held, receive(t, a, 1)...)
	if got := texts(receive(t, idle, 1)); !slices.Equal(got, []string{"4"}) {
		t.Errorf("another consumer got %q, want 4", got)
	}
	idle.SetCredits(-1)
	_, far := elsewhere(t, db.URL, q.Name())
	n2, _ := start(t, far, queue.NodeConfig{})
	c := n2.Consume(queue.ConsumerOptions{})
	if _, err := c.ReceiveUpTo(t.Context(), 0); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("up to nothing: %v, want ErrInvalid", err)
	}
	a.Close()
	if _, err := a.Receive(t.Context()); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("closed consumer: %v, want ErrClosed", err)
	}
	got := receive(t, c, 3)
	if want := []string{"1", "2", "3"}; !slices.Equal(texts(got), want) || got[0].Attempt != 2 {
		t.Errorf("the other node got %q, attempt %d; want %q, 2", texts(got), got[0].Attempt, want)
	}
	if err := held[1].Ack(t.Context()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("ack after Close: %v, want ErrLeaseLost", err)
	}
	mustAck(t, got...)
}

// hoard lets a Consumer of the far node receive one of fifty messages, and the
// node claim all of them. It returns both nodes' Consumers; that of the near node
// has no credits so far.
func hoard(t *testing.T, far queue.NodeConfig) (q *queue.Queue, taker, other *queue.Consumer) {
	t.Helper()
	db := inShared(t)
	q = ensureShared(t, db, queue.Options{})
	near, _ := start(t, q, queue.NodeConfig{StallAfter: time.Hour})
	other = near.Consume(queue.ConsumerOptions{Credits: -1})
	_, there := elsewhere(t, db.URL, q.Name())
	node, _ := start(t, there, far)
	enqueue(t, near, numbered(50)...)
	taker = node.Consume(queue.ConsumerOptions{Credits: 50, Visibility: time.Hour})
	if ds, err := taker.ReceiveUpTo(t.Context(), 1); err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	return q, taker, other
}

// TestSetCredits: a Consumer lowers its credits; the messages claimed for it go
// to another node, and return when it raises them.
func TestSetCredits(t *testing.T) {
	t.Parallel()
	q, taker, other := hoard(t, queue.NodeConfig{StallAfter: time.Hour})
	wantClaimed := func(want int64) {
		t.Helper()
		if s := statsOf(t, q); s.Leased != want {
			t.Errorf("%d messages are claimed, want %d", s.Leased, want)
		}
	}
	wantClaimed(50)
	taker.SetCredits(1)
	testkit.Eventually(t, "all but one are free", func() bool { return statsOf(t, q).Leased == 1 })
	other.SetCredits(40)
	if got := receive(t, other, 40); len(got) != 40 {
		t.Errorf("%d messages, want the credits", len(got))
	}
	taker.SetCredits(10)
	if got := receive(t, taker, 9); len(got) != 9 {
		t.Errorf("%d messages, want all that is left", len(got))
	}
	wantClaimed(50)
}

// TestConsumer_StallGivesBack: messages claimed for a stalled Consumer go to
// another node, though its own node is otherwise idle.
func TestConsumer_StallGivesBack(t *testing.T) {
	t.Parallel()
	_, _, other := hoard(t, queue.NodeConfig{
		StallAfter: 50 * time.Millisecond, PollJournal: time.Hour, Poll: time.Hour, Lease: time.Hour,
	})
	other.SetCredits(49)
	receive(t, other, 49)
}

// TestClose_HandsBackInOrder: the messages of two closed Consumers are delivered
// in position order, those of one after those of the other, and before new ones.
func TestClose_HandsBackInOrder(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{StallAfter: time.Hour, Lease: time.Hour})
	a := n.Consume(queue.ConsumerOptions{Credits: 20, Visibility: time.Hour})
	b := n.Consume(queue.ConsumerOptions{Credits: 20, Visibility: time.Hour})
	enqueue(t, n, numbered(50)...)
	first := receiveUpTo(t, a, 20)
	second := receiveUpTo(t, b, 20)
	want := append(texts(second), texts(first)...)
	c := n.Consume(queue.ConsumerOptions{Credits: 50}) // so that all stays with this node
	b.Close()
	a.Close()
	want = append(want, numbered(50)[40:]...)
	got := texts(receiveUpTo(t, c, 50))
	if !slices.Equal(got, want) {
		t.Errorf("after Close came %q, want %q", got, want)
	}
}

// TestConsume_IdleOnesShare: of Consumers with unlimited credits that all wait, the one that was served least recently gets the next message.
func TestConsume_IdleOnesShare(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	served := make(chan int)
	for i := range 5 {
		c := n.Consume(queue.ConsumerOptions{Credits: math.MaxInt})
		go func() {
			for {
				ds, err := c.Receive(t.Context())
				if err != nil {
					return
				}
				for _, d := range ds {
					d.AckLater()
				}
				served <- i
			}
		}()
	}
	got := make(map[int]int)
	for range 20 {
		testkit.Eventually(t, "all wait", func() bool { return queue.Waiting(n) == 5 })
		enqueue(t, n, "x")
		got[<-served]++
	}
	if fmt.Sprint(got) != "map[0:4 1:4 2:4 3:4 4:4]" {
		t.Errorf("messages by Consumer: %v, want 4 each", got)
	}
}
