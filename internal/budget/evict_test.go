package budget

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestReserve_SmallStaysWhileLargeAreEvicted: while the greedy holders are evicted already and have not closed yet, nobody is evicted in their place who
// holds next to nothing, or no more than the fair share.
func TestReserve_SmallStaysWhileLargeAreEvicted(t *testing.T) {
	for name, held := range map[string]int64{"next to nothing": 24 << 10, "less than the share": mib} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(48 * mib)
				small := open(b, 0)
				small.Join("small")
				small.Take(Follow, held)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for i := range 200 {
					h := b.Open(nil) // an evicted one does not close
					h.Join(fmt.Sprint("user ", i%20))
					go h.Reserve(ctx, Body, 1_800_000)
				}
				time.Sleep(4 * Patience)
				if small.evicted.Load() || b.Stats().Evictions == 0 {
					t.Errorf("evicted: the small one %v, and %d in all", small.evicted.Load(), b.Stats().Evictions)
				}
			})
		})
	}
}

// TestReserve_NextToNothingStays: if all others hold next to nothing, the one that waits for more than its share is evicted.
func TestReserve_NextToNothingStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(16 * mib)
		var small []*client
		for range 12 * mib / smallest {
			c := open(b, time.Hour)
			c.Take(Output, smallest)
			small = append(small, c)
		}
		large := open(b, 0)
		check(t, "the large one", <-large.reserve(8*mib), ErrEvicted)
		synctest.Wait()
		for _, c := range small {
			if c.evicted.Load() {
				t.Fatal("a small one is evicted")
			}
			c.Close()
		}
	})
}

// TestReserve_FitsAfterAnEviction: who fits exactly once an evicted holder has closed waits for that, however long it takes.
func TestReserve_FitsAfterAnEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(128 * mib) // the mark is 96 MiB
		stuck, other, waiter := open(b, 4*Patience), open(b, 0), open(b, 0)
		stuck.Take(Page, 50*mib)
		other.Take(Page, 46*mib)
		check(t, "the one that waits", <-waiter.reserve(50*mib), nil)
		if !stuck.evicted.Load() || other.evicted.Load() || waiter.evicted.Load() {
			t.Errorf("evicted: stuck %v, the other %v, the one that waits %v", stuck.evicted.Load(), other.evicted.Load(), waiter.evicted.Load())
		}
		other.Close()
		waiter.Close()
	})
}
