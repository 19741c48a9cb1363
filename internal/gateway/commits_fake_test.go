package gateway_test

import (
	"context"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
)

// commits runs commits one after the other in a separate goroutine, unless it is held.
type commits struct {
	mu      sync.Mutex
	waiting []func()
	held    bool
	wake    chan struct{}
}

func newCommits(t *testing.T) *commits {
	c := &commits{wake: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-c.wake:
				c.drain()
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

func (c *commits) drain() {
	for {
		c.mu.Lock()
		if c.held || len(c.waiting) == 0 {
			c.mu.Unlock()
			return
		}
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.mu.Unlock()
		next()
	}
}

func (c *commits) later(f func()) {
	c.mu.Lock()
	c.waiting = append(c.waiting, f)
	c.mu.Unlock()
	c.nudge()
}

func (c *commits) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *commits) hold(held bool) {
	c.mu.Lock()
	c.held = held
	c.mu.Unlock()
	c.nudge()
}

// waits reports whether something waits for its commit.
func (c *commits) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) > 0
}

// wait is later, and waits for the commit, at most until ctx ends.
func (c *commits) wait(ctx context.Context, f func()) error {
	done := make(chan struct{})
	c.later(func() { f(); close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// busyStreams and busyRooms are at their limit until the test lets them go on.
type busyStreams struct {
	*fakeStreams
	let chan struct{}
}

func (s busyStreams) Publish(ctx context.Context, stream string, as *engine.RequestID, m []engine.Message, done func(engine.Place, error)) error {
	<-s.let
	return s.fakeStreams.Publish(ctx, stream, as, m, done)
}

type busyRooms struct {
	*memoryStore
	let chan struct{}
}

func (s busyRooms) Append(ctx context.Context, room string, as *engine.RequestID, payload []byte, done func(int64, bool, error)) error {
	<-s.let
	return s.memoryStore.Append(ctx, room, as, payload, done)
}
