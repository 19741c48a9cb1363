package scenario

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

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
