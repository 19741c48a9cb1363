package scenario

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: the writers' calls together are even, without a burst at the start.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		load := QueueLoad{Writers: 4, Batch: 2, Rate: 800} // a call every 2.5 ms
		for n := range 100 {
			writer, call := n%4, n/4
			p := newPace(start, load, writer, sleepByClock)
			due, _, ok := p.wait(t.Context(), call)
			if want := start.Add(time.Duration(n) * 2500 * time.Microsecond); !ok || !due.Equal(want) || !time.Now().Equal(want) {
				t.Fatalf("call %d of writer %d is due after %v, want %v", call, writer, due.Sub(start), want.Sub(start))
			}
		}
	})
}

// sleepByClock uses the fake clock of a test.
func sleepByClock(ctx context.Context, until time.Time) bool {
	time.Sleep(time.Until(until)) // synctest: the fake clock
	return ctx.Err() == nil
}

func TestPace_LateCallsKeepTheirTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p := newPace(start, QueueLoad{Writers: 1, Batch: 1, Rate: 100}, 0, sleepByClock)
		time.Sleep(95 * time.Millisecond)
		due, _, ok := p.wait(t.Context(), 3)
		if !ok || due.Sub(start) != 30*time.Millisecond || time.Since(start) != 95*time.Millisecond {
			t.Errorf("call 3 is due after %v, %v", due.Sub(start), ok)
		}
		if missed := p.missed(3); missed != 7 { // calls 3 to 9
			t.Errorf("%d missed, want 7", missed)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, ok := p.wait(ctx, 50); ok {
			t.Error("a call after the end")
		}
	})
}
