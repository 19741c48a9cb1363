package queue

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// TestReceive_PassesOnTheWake wakes a Consumer for a message at the moment at
// which its caller's context ends: another waiting Consumer gets the message.
func TestReceive_PassesOnTheWake(t *testing.T) {
	t.Parallel()
	q := newQueue(nil, "jobs", newShard(nil, &stream.Stream{}, 0))
	q.opts = Options{}.withDefaults()
	n := NewNode(q, NodeConfig{})
	first, second := n.Consume(ConsumerOptions{}), n.Consume(ConsumerOptions{})
	impatient, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	gaveUp, got := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := first.Receive(impatient)
		gaveUp <- err
	}()
	waits := func(c *Consumer) {
		for waiting := false; !waiting; time.Sleep(time.Millisecond) {
			n.mu.Lock()
			waiting = c.waiting
			n.mu.Unlock()
		}
	}
	waits(first)
	patient, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	go func() {
		_, err := second.Receive(patient)
		got <- err
	}()
	waits(second)

	n.mu.Lock()
	p := n.parts[0]
	p.token, p.deadline = 1, time.Now().Add(time.Hour)
	p.queueUp(&item{Message: stream.Message{Position: 1}, token: 1})
	n.turn = 0
	n.wakeConsumers()
	giveUp()
	n.mu.Unlock()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	if err := <-got; err != nil {
		t.Errorf("the second: %v", err)
	}
}

// TestConsume_UnlimitedCredits: Consumers with unlimited credits still ask for
// messages when there are several.
func TestConsume_UnlimitedCredits(t *testing.T) {
	t.Parallel()
	n := NewNode(newQueue(nil, "jobs", newShard(nil, &stream.Stream{}, 0)), NodeConfig{})
	for range 3 {
		n.Consume(ConsumerOptions{Credits: math.MaxInt})
		if credits := n.parts[0].demand(time.Now()); credits <= 0 {
			t.Errorf("%d Consumers ask for %d messages", len(n.consumers), credits)
		}
	}
}
