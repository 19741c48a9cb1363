package budget

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const mib = 1 << 20

// client is a holder that a test looks at. Like a connection, it closes some
// time after it was evicted.
type client struct {
	*Holder
	evicted atomic.Bool
}

func open(b *Budget, closes time.Duration) *client {
	c := &client{}
	c.Holder = b.Open(func() {
		if c.evicted.Swap(true) {
			panic("evicted twice")
		}
		time.AfterFunc(closes, c.Close)
	})
	return c
}

// reserve starts a Reserve. Its channel gets the answer.
func (c *client) reserve(n int64) chan error {
	done := make(chan error, 1)
	go func() { done <- c.Reserve(context.Background(), Page, n) }()
	return done
}

func check(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func waits(t *testing.T, what string, done chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("%s does not wait: %v", what, err)
	default:
	}
}

func TestBudget_counts(t *testing.T) {
	b := New(100 * mib)
	h, g := b.Open(nil), b.Open(nil)
	h.Take(Output, 3)
	h.Take(Output, -7)
	check(t, "Reserve", h.Reserve(t.Context(), Page, 5), nil)
	g.Take(Assembly, 10)
	h.Release(Output, 1)
	s := b.Stats()
	want := Stats{Limit: 100 * mib, Held: 17, Holders: 2, Largest: 10}
	want.ByKind[Output], want.ByKind[Page], want.ByKind[Assembly] = 2, 5, 10
	if s != want || h.Held() != 7 {
		t.Errorf("%+v, want %+v", s, want)
	}
	h.Release(Page, 6) // one too many
	h.Close()
	h.Close()
	h.Take(Page, 5)
	h.Release(Page, 5)
	check(t, "Reserve after Close", h.Reserve(t.Context(), Page, 1), ErrClosed)
	g.Close()
	if s := b.Stats(); s != (Stats{Limit: 100 * mib, Excess: 1}) {
		t.Errorf("at the end %+v", s)
	}
}

func TestBudget_none(t *testing.T) {
	var b *Budget
	h := b.Open(nil)
	h.Take(Page, 1)
	check(t, "Reserve", h.Reserve(t.Context(), Page, math.MaxInt64), nil)
	h.Release(Page, 1)
	h.Close()
	if h.Held() != 0 || b.Stats().Held != 0 {
		t.Error("something is held")
	}
	small := New(100).Open(nil)
	check(t, "three quarters", small.Reserve(t.Context(), Page, 75), nil)
	check(t, "more", small.Reserve(t.Context(), Page, 76), ErrTooLarge)
	unbounded := New(0).Open(nil)
	check(t, "Reserve", unbounded.Reserve(t.Context(), Page, 1<<60), nil)
}

// A greedy client waits and is evicted. A hundred small ones notice nothing.
func TestReserve_greedyWaitsSmallPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(128 * mib)
		greedy := open(b, time.Millisecond)
		for range 96 {
			check(t, "below the mark", greedy.Reserve(t.Context(), Page, mib), nil)
		}
		more := greedy.reserve(mib)
		waits(t, "the greedy one", more)
		small := make([]*client, 100)
		for i := range small {
			small[i] = open(b, 0)
			check(t, "a small one", small[i].Reserve(t.Context(), Output, 64<<10), nil)
		}
		waits(t, "the greedy one", more)
		start := time.Now()
		check(t, "the greedy one", <-more, ErrEvicted)
		synctest.Wait()
		if waited := time.Since(start); !greedy.evicted.Load() || waited > Patience+tick {
			t.Errorf("evicted: %v, after %v", greedy.evicted.Load(), waited)
		}
		check(t, "afterwards", greedy.Reserve(t.Context(), Page, 1), ErrEvicted)
		time.Sleep(time.Second)
		check(t, "when closed", greedy.Reserve(t.Context(), Page, 1), ErrClosed)
		if s := b.Stats(); s.Held != 100*64<<10 || s.Evictions != 1 || s.Waits != 1 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		for _, c := range small {
			c.Close()
		}
	})
}

// Above the mark the smallest holder is served first, whatever the order of the
// calls, and those who only waited are not evicted.
func TestReserve_smallestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(128 * mib)
		full := open(b, 0)
		full.Take(Page, 90*mib)
		clients := map[int64]*client{}
		done := map[int64]chan error{}
		for _, have := range []int64{3, 1, 2} {
			clients[have] = open(b, 0)
			clients[have].Take(Page, have*mib)
		}
		for _, have := range []int64{3, 1, 2} {
			done[have] = clients[have].reserve(60 * mib)
			waits(t, "a client", done[have])
		}
		before := full
		for _, have := range []int64{1, 2, 3} {
			for _, other := range []int64{have, 2, 3} {
				if other >= have {
					waits(t, "a client", done[other])
				}
			}
			before.Release(Page, 60*mib)
			before = clients[have]
			check(t, "the smallest client", <-done[have], nil)
		}
		if s := b.Stats(); s.Evictions != 0 || s.Waits != 3 {
			t.Errorf("%+v", s)
		}
		for _, c := range clients {
			c.Close()
		}
		full.Close()
	})
}

// More clients than the budget has room for take turns. Nobody is evicted as long
// as bytes are released.
func TestReserve_turns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(128 * mib)
		served := make([]int, 150)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		done := make(chan struct{})
		for i := range served {
			go func() {
				defer func() { done <- struct{}{} }()
				c := open(b, 0)
				defer c.Close()
				for c.Reserve(ctx, Page, 2*mib) == nil {
					time.Sleep(100 * time.Millisecond)
					c.Release(Page, 2*mib)
					served[i]++
				}
				if ctx.Err() == nil {
					t.Error("a client was evicted")
				}
			}()
		}
		for range served {
			<-done
		}
		// 48 at a time: 10 s / 0.1 s * 48 / 150.
		for i, n := range served {
			if n < 28 {
				t.Errorf("client %d was served %d times in 10 s, its share is 32", i, n)
			}
		}
		if s := b.Stats(); s.Held != 0 || s.Waiting != 0 || s.Evictions != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Clients that hold and never release are evicted together when others wait.
func TestReserve_stuckGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(128 * mib)
		stuck := make([]*client, 48)
		for i := range stuck {
			stuck[i] = open(b, 10*time.Millisecond)
			check(t, "a stuck client", stuck[i].Reserve(t.Context(), Page, 2*mib), nil)
		}
		start := time.Now()
		results := make(chan error)
		for range 40 {
			go func() {
				c := open(b, 0)
				defer c.Close()
				results <- c.Reserve(t.Context(), Page, 2*mib)
			}()
		}
		for range 40 {
			check(t, "a client", <-results, nil)
		}
		if waited := time.Since(start); waited > Patience+time.Second {
			t.Errorf("it took %v", waited)
		}
		for _, c := range stuck {
			c.Close()
		}
	})
}

// A client that makes progress is not evicted instead of a smaller one that has been
// stuck for long.
func TestReserve_stuckBeforeMoving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(128 * mib)
		moving, stuck := open(b, 0), open(b, 0)
		moving.Take(Page, 54*mib)
		stuck.Take(Page, 42*mib)
		waiter := open(b, 0)
		done := waiter.reserve(40 * mib)
		waits(t, "the third", done)
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			moving.Release(Page, mib)
			moving.Take(Page, mib)
		}
		check(t, "the third", <-done, nil)
		synctest.Wait()
		if moving.evicted.Load() || !stuck.evicted.Load() {
			t.Errorf("evicted: moving %v, stuck %v", moving.evicted.Load(), stuck.evicted.Load())
		}
		moving.Close()
		waiter.Close()
	})
}

// Bytes that cannot wait: at the limit the greediest holders are evicted at once, and not
// more than needed.
func TestTake_limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(128 * mib)
		clients := make([]*client, 4)
		for i := range clients {
			clients[i] = open(b, time.Hour)
			clients[i].Take(Output, int64(20+i)*mib)
		}
		clients[0].Take(Output, 42*mib) // 20+42, 21, 22, 23: 128 exactly
		if s := b.Stats(); s.Evictions != 0 {
			t.Fatalf("below the limit %+v", s)
		}
		clients[1].Take(Output, 1)
		for range 100 { // what the evicted one still holds is not counted twice
			clients[2].Take(Output, 1)
		}
		synctest.Wait()
		if s := b.Stats(); s.Evictions != 1 || !clients[0].evicted.Load() {
			t.Errorf("%+v", s)
		}
		clients[2].Take(Output, 70*mib)
		synctest.Wait()
		if s := b.Stats(); s.Evictions != 2 || !clients[2].evicted.Load() {
			t.Errorf("%+v", s)
		}
		for _, c := range clients {
			c.Close()
		}
		time.Sleep(time.Hour)
	})
}

// At the limit a small Reserve does not wait for long.
func TestReserve_smallAtLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(128 * mib)
		greedy, small := open(b, 0), open(b, 0)
		greedy.Take(Output, 128*mib)
		start := time.Now()
		check(t, "the small one", <-small.reserve(mib), nil)
		synctest.Wait()
		if waited := time.Since(start); !greedy.evicted.Load() || waited > 4*tick {
			t.Errorf("evicted: %v, after %v", greedy.evicted.Load(), waited)
		}
		small.Close()
	})
}

func TestReserve_context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(128 * mib)
		full, c, next := open(b, 0), open(b, 0), open(b, 0)
		full.Take(Page, 90*mib)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Reserve(ctx, Page, 90*mib) }()
		waits(t, "c", done)
		later := next.reserve(91 * mib)
		waits(t, "next", later)
		cancel()
		check(t, "c", <-done, context.Canceled)
		full.Close()
		check(t, "next", <-later, nil)
		next.Close()
		c.Close()
		if s := b.Stats(); s.Held != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Close ends the Reserves of its holder and lets others go on.
func TestClose_whileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(128 * mib)
		c, other := open(b, 0), open(b, 0)
		c.Take(Page, 90*mib)
		own, later := c.reserve(40*mib), other.reserve(91*mib)
		waits(t, "c", own)
		waits(t, "other", later)
		c.Close()
		check(t, "c", <-own, ErrClosed)
		check(t, "other", <-later, nil)
		other.Close()
	})
}

func TestBudget_tryReserve(t *testing.T) {
	b := New(100)
	h := b.Open(nil)
	defer h.Close()
	for _, c := range []struct {
		n    int64
		want bool
		held int64
	}{{-1, true, 0}, {70, true, 70}, {6, false, 70}, {5, true, 75}, {1, false, 75}} { // the mark is 75
		if got := h.TryReserve(Page, c.n); got != c.want || b.Stats().Held != c.held {
			t.Errorf("%d bytes: %t and %d held, want %t and %d", c.n, got, b.Stats().Held, c.want, c.held)
		}
	}
	if h.TryReserve(Page, math.MaxInt64) {
		t.Error("more than there is was granted")
	}
	var none *Holder
	if !none.TryReserve(Page, math.MaxInt64) {
		t.Error("no budget bounds nothing")
	}
	h.Close()
	if h.TryReserve(Page, 1) {
		t.Error("granted after Close")
	}
}
