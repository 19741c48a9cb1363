package pg

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// add appends n to the open batch, one row and one byte.
func add(g *Group[[]int], ctx context.Context, n int) error {
	return g.Add(ctx, 1, 1, func(b *[]int) { *b = append(*b, n) })
}

func TestGroup_GathersWhileCommitting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		g := NewGroup(new([]int), new([]int), 100, 1<<20)
		var sizes []int
		var all []int
		var running sync.WaitGroup
		running.Go(func() {
			g.Run(ctx, context.Background(), func(_ context.Context, b *[]int) {
				time.Sleep(time.Millisecond) // a commit
				sizes = append(sizes, len(*b))
				all = append(all, *b...)
				*b = (*b)[:0]
			})
		})
		for i := range 10 {
			if err := add(g, ctx, i); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		time.Sleep(time.Second)
		stop()
		running.Wait()
		if want := []int{1, 9}; !slices.Equal(sizes, want) {
			t.Errorf("batches of %v, want %v: what comes during a commit shares the next", sizes, want)
		}
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(all, want) {
			t.Errorf("committed %v, want %v", all, want)
		}
	})
}

func TestGroup_FullBatchMakesCallersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(new([]int), new([]int), 2, 1<<20)
		for i := range 2 {
			if err := add(g, t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := add(g, short, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("third Add into a batch of two: %v, want the context's error", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		added := make(chan error, 1)
		go func() { added <- add(g, t.Context(), 3) }()
		synctest.Wait()
		var all []int
		var running sync.WaitGroup
		running.Go(func() {
			g.Run(ctx, context.Background(), func(_ context.Context, b *[]int) {
				all = append(all, *b...)
				*b = (*b)[:0]
			})
		})
		if err := <-added; err != nil {
			t.Fatal(err)
		}
		stop() // what is open is committed all the same
		running.Wait()
		if want := []int{0, 1, 3}; !slices.Equal(all, want) {
			t.Errorf("committed %v, want %v", all, want)
		}
	})
}

func TestBackoff_BoundsAndContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for failed, most := range map[int]time.Duration{0: 10 * time.Millisecond, 3: 80 * time.Millisecond, 50: time.Second} {
			start := time.Now()
			if err := Backoff(t.Context(), failed); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took < most/2 || took > most {
				t.Errorf("after %d failures: waited %v, want %v to %v", failed, took, most/2, most)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Backoff(ctx, 50); !errors.Is(err, context.Canceled) {
			t.Errorf("ended context: %v", err)
		}
	})
}
