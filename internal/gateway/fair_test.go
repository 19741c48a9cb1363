package gateway

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestFairSlots: users who hold slots leave some to others, and who holds fewer is served first.
func TestFairSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFairSlots(8)
		ctx, cancel := context.WithCancel(t.Context())
		held := make(map[string][]func())
		want := func(user string, n int) {
			t.Helper()
			if synctest.Wait(); len(held[user]) != n {
				t.Errorf("%s holds %d slots, want %d", user, len(held[user]), n)
			}
		}
		ask := func(user string, n int) {
			for range n {
				go func() {
					if release, err := f.acquire(ctx, user); err == nil {
						held[user] = append(held[user], release)
					}
				}()
				synctest.Wait() // they come one after the other
			}
		}
		release := func(user string) {
			last := len(held[user]) - 1
			end := held[user][last]
			held[user] = held[user][:last]
			end()
		}
		ask("ann", 10)
		want("ann", 4)
		ask("bob", 10)
		want("bob", 2)
		ask("eve", 1) // who comes last, and has none
		want("eve", 1)
		release("ann")
		want("ann", 3) // no more: two are free
		release("ann")
		want("ann", 3) // of three that were free, to one who held two
		release("bob")
		want("bob", 2)
		cancel() // who waits gets none
		synctest.Wait()
		for user := range held {
			for len(held[user]) > 0 {
				release(user)
			}
		}
		if f.free != 8 || len(f.held) != 0 || len(f.waiting) != 0 {
			t.Errorf("after all: %d free, held %v, %d wait", f.free, f.held, len(f.waiting))
		}
	})
}
