package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// TestReceive_PassesOnTheWake wakes a Consumer for a message at the moment at
// which its caller's context ends: another waiting Consumer gets the message.
func TestReceive_PassesOnTheWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(nil, "jobs", newShard(nil, &stream.Stream{}, 0))
		q.opts = Options{}.withDefaults()
		n := NewNode(q, NodeConfig{})
		impatient, giveUp := context.WithCancel(t.Context())
		patient, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		got := make([]chan error, 2)
		for i, ctx := range []context.Context{impatient, patient} {
			c := n.Consume(ConsumerOptions{})
			got[i] = make(chan error, 1)
			go func() {
				_, err := c.Receive(ctx)
				got[i] <- err
			}()
			synctest.Wait() // until it waits
		}
		n.mu.Lock()
		p := n.parts[0]
		p.token, p.deadline = 1, time.Now().Add(time.Hour)
		p.queueUp(&item{Message: stream.Message{Position: 1}, token: 1})
		n.turn = 0
		n.wakeConsumers()
		giveUp()
		n.mu.Unlock()
		if err := <-got[0]; !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
		if err := <-got[1]; err != nil {
			t.Errorf("the second: %v", err)
		}
	})
}

// TestPace: a Consumer that settles fast may take maxPace messages, one that is slow takes no more than its
// share, and a Consumer that has become slow takes fewer again.
func TestPace(t *testing.T) {
	t.Parallel()
	page := func(p *pace, took time.Duration, count int) {
		p.delivered(time.Now().Add(-took), count)
		p.delivered(time.Now(), 5) // while the first is not settled: not counted
		for range count {
			p.settled()
		}
		p.settled() // of the second
	}
	var p pace
	for range 100 {
		page(&p, time.Second, 10)
	}
	if p.perPage != 0 {
		t.Errorf("slow: %d messages, want 0", p.perPage)
	}
	for range 100 {
		page(&p, -time.Hour, 10) // in no time
	}
	if p.perPage != maxPace {
		t.Errorf("fast: %d messages, want %d", p.perPage, maxPace)
	}
	for range 100 {
		page(&p, time.Second, 10)
	}
	if p.perPage > 3 { // the average ends above 0
		t.Errorf("slow again: %d messages, want at most 3", p.perPage)
	}
}
