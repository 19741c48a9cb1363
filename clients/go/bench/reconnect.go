package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/clients/go"
)

// reconnect opens clients with one subscription each, and waits until somebody restarts the server. It returns the time from the first
// client that is connected again to the last one that has got a message which was published after that.
func reconnect(ctx context.Context, t *tidewireTarget, count int) (time.Duration, error) {
	var lost, first, resumed atomic.Int64
	again := make(chan struct{})
	var once sync.Once
	done := make(chan struct{})
	for range count {
		up := false
		c, err := tidewire.Open(t.o.url, tidewire.Options{OnState: func(s tidewire.State) {
			switch {
			case s.Phase == tidewire.Waiting && up:
				up = false
				lost.Add(1)
			case s.Phase == tidewire.Connected && lost.Load() > 0:
				once.Do(func() { first.Store(time.Now().UnixNano()); close(again) })
			case s.Phase == tidewire.Connected:
				up = true
			}
		}})
		if err != nil {
			return 0, err
		}
		sub, err := c.Stream(t.o.name).Subscribe(ctx)
		if err != nil {
			return 0, err
		}
		go func() {
			for range sub.Messages(ctx) {
				if resumed.Add(1) == int64(count) {
					close(done)
				}
				return
			}
		}()
	}
	fmt.Fprintf(os.Stderr, "%d clients are connected: now end the server, and start it again\n", count)
	<-again
	if err := t.publish(ctx, []byte("again")); err != nil {
		return 0, err
	}
	<-done
	return time.Since(time.Unix(0, first.Load())), nil
}
