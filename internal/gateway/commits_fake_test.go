package gateway_test

import (
	"context"
	"sync"

	"github.com/tidewire/tidewire/internal/engine"
)

// commits runs commits one after the other in a separate goroutine, unless it is held.
type commits struct {
	mu            sync.Mutex
	waiting       []func()
	held, running bool
}

func (c *commits) later(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, f)
	c.run()
}

func (c *commits) hold(held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = held
	c.run()
}

// run runs what waits. c.mu is held.
func (c *commits) run() {
	if c.running {
		return
	}
	c.running = true
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for !c.held && len(c.waiting) > 0 {
			next := c.waiting[0]
			c.waiting = c.waiting[1:]
			c.mu.Unlock()
			next()
			c.mu.Lock()
		}
		c.running = false
	}()
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
