package pg

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// commits is what a Group committed, and when.
type commits struct {
	group *Group[[]chan struct{}]
	start time.Time
	sizes []int
	at    []time.Duration // when each commit began
	stop  func()
}

// runGroup runs a Group whose commits take that long. Its callers wait for the answer.
func runGroup(t *testing.T, commit, linger time.Duration, rows int) *commits {
	c := &commits{start: time.Now()}
	c.group = NewGroup(new([]chan struct{}), new([]chan struct{}), rows, 1<<20).Linger(linger)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		c.group.Run(ctx, context.Background(), func(_ context.Context, b *[]chan struct{}) {
			c.at = append(c.at, time.Since(c.start))
			time.Sleep(commit) // synctest: only bubbles run it
			c.sizes = append(c.sizes, len(*b))
			for _, done := range *b {
				close(done)
			}
			*b = (*b)[:0]
		})
	})
	c.stop = func() { stop(); running.Wait() }
	return c
}

func (c *commits) call(t *testing.T) { c.callWith(t, 1) }

// callWith adds one row with that number of bytes.
func (c *commits) callWith(t *testing.T, bytes int) {
	done := make(chan struct{})
	if err := c.group.Add(t.Context(), 1, bytes, func(b *[]chan struct{}) { *b = append(*b, done) }); err != nil {
		t.Error(err)
	}
	<-done
}

// TestGroup_CallersComeBack: closed-loop callers that were answered together share the
// next batch, though each takes a different short time to call again.
func TestGroup_CallersComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runGroup(t, 300*time.Microsecond, 0, 1000)
		var callers sync.WaitGroup
		for i := range 10 {
			callers.Go(func() {
				for time.Since(c.start) < 20*time.Millisecond {
					c.call(t)
					time.Sleep(time.Duration(i) * 10 * time.Microsecond)
				}
			})
		}
		callers.Wait()
		c.stop()
		calls := 0
		for _, n := range c.sizes {
			calls += n
		}
		if calls < 6*len(c.sizes) { // without waiting it is five: one comes back at once, the others too late
			t.Errorf("%d commits for %d calls of ten callers: batches of %v", len(c.sizes), calls, c.sizes)
		}
	})
}

// TestGroup_OneAlone: a single caller never waits, except once after a crowd that does
// not come back.
func TestGroup_OneAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runGroup(t, 300*time.Microsecond, 0, 1000)
		for range 3 {
			c.call(t)
		}
		var crowd sync.WaitGroup
		for range 5 {
			crowd.Go(func() { c.call(t) })
		}
		crowd.Wait()
		for range 3 {
			c.call(t)
		}
		time.Sleep(time.Hour)
		began := time.Now()
		c.call(t)
		if took := time.Since(began); took != 300*time.Microsecond {
			t.Errorf("after an hour of nothing it took %v", took)
		}
		c.stop()
		c.sizes, c.at = c.sizes[:len(c.sizes)-1], c.at[:len(c.at)-1]
		sum := 0
		for _, n := range c.sizes {
			sum += n
		}
		last := c.at[len(c.at)-3:]
		if sum != 11 || last[1]-last[0] != 300*time.Microsecond || last[2]-last[1] != 300*time.Microsecond {
			t.Errorf("batches of %v began at %v: the last are to follow each other at once", c.sizes, c.at)
		}
		if waited := last[0] - c.at[len(c.at)-4] - 300*time.Microsecond; waited < 0 || waited > closedWait {
			t.Errorf("the first after the crowd waited for %v, want at most %v", waited, closedWait)
		}
	})
}

// TestGroup_OpenLoop: independent callers that arrive every 200 µs share commits, and
// none waits for long. After they have stopped, a single closed-loop caller is soon as fast as if there never was anybody else.
func TestGroup_OpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runGroup(t, 300*time.Microsecond, 0, 1000)
		var callers sync.WaitGroup
		for range 500 {
			callers.Go(func() {
				began := time.Now()
				c.call(t)
				if took := time.Since(began); took > openWait+2*300*time.Microsecond {
					t.Errorf("answered after %v", took)
				}
			})
			time.Sleep(200 * time.Microsecond)
		}
		callers.Wait()
		if n := len(c.sizes); n > 100 { // 333 without waiting, 43 if all waited
			t.Errorf("%d commits for 500 calls", n)
		}
		calls := 0
		for end := time.Now().Add(time.Second); time.Now().Before(end); calls++ {
			c.call(t)
		}
		c.stop()
		if alone := int(time.Second / (300 * time.Microsecond)); calls < alone*9/10 {
			t.Errorf("%d calls a second, %d if there never was anybody else", calls, alone)
		}
	})
}

func TestGroup_Linger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runGroup(t, 0, 5*time.Millisecond, 4)
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() { c.call(t) })
			time.Sleep(time.Millisecond)
		}
		callers.Wait()
		for range 4 { // a full batch does not linger
			callers.Go(func() { c.call(t) })
		}
		callers.Wait()
		c.stop()
		if want := []int{3, 4}; !slices.Equal(c.sizes, want) || c.at[0] != 5*time.Millisecond || c.at[1] != 5*time.Millisecond {
			t.Errorf("batches of %v, begun at %v", c.sizes, c.at)
		}
	})
}
