package main

import (
	"context"
	"testing"
)

// early is a context that has ended, and whose functions have not begun.
type early struct{ context.Context }

func (early) AfterFunc(func()) func() bool { return func() bool { return true } }

func TestTheEndOfAContextIsTold(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		want int
	}{"before the function has begun": {early{ended}, 1}, "at once": {ended, 1}, "never": {context.Background(), 0}} {
		told := 0
		watch(c.ctx, func() { told++ })()
		if told != c.want {
			t.Errorf("%s: told %d times, want %d", name, told, c.want)
		}
	}
	for range 1000 {
		ctx, cancel := context.WithCancel(context.Background())
		told := 0
		end := watch(ctx, func() { told++ })
		go cancel()
		<-ctx.Done()
		if end(); told != 1 {
			t.Fatalf("told %d times", told)
		}
	}
}
