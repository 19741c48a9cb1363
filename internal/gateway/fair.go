package gateway

import (
	"context"
	"slices"
	"sync"
)

// fairSlots is a semaphore that users share. One who holds some gets another only if more than that are free (dynamic
// thresholds: Choudhury and Hahne, 1998), so that a few users cannot hold all, and waits behind users who hold fewer.
type fairSlots struct {
	mu      sync.Mutex
	free    int
	held    map[string]int
	waiting []*slotWaiter // in the order of their coming
}

type slotWaiter struct {
	user  string
	given chan struct{}
}

func newFairSlots(n int) *fairSlots { return &fairSlots{free: n, held: make(map[string]int)} }

// acquire waits for a slot. Call release after its use.
func (f *fairSlots) acquire(ctx context.Context, user string) (release func(), err error) {
	w := &slotWaiter{user, make(chan struct{})}
	f.mu.Lock()
	f.waiting = append(f.waiting, w)
	f.give()
	f.mu.Unlock()
	select {
	case <-w.given:
		return func() { f.release(user) }, nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	at := slices.Index(f.waiting, w)
	if at >= 0 {
		f.waiting = slices.Delete(f.waiting, at, at+1)
	}
	f.mu.Unlock()
	if at < 0 { // it was given meanwhile
		f.release(user)
	}
	return nil, ctx.Err()
}

func (f *fairSlots) release(user string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free++
	if f.held[user]--; f.held[user] == 0 {
		delete(f.held, user)
	}
	f.give()
}

// give gives free slots to those who wait and may have one. The caller holds mu.
func (f *fairSlots) give() {
	for f.free > 0 && len(f.waiting) > 0 {
		least := 0
		for i, w := range f.waiting {
			if f.held[w.user] < f.held[f.waiting[least].user] {
				least = i
			}
		}
		w := f.waiting[least]
		if f.held[w.user] >= f.free {
			return
		}
		f.waiting = slices.Delete(f.waiting, least, least+1)
		f.free--
		f.held[w.user]++
		close(w.given)
	}
}
