package gateway

import (
	"context"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// TestJobs_PerSecond: a job with a limit takes small steps, and can be stopped while it waits for the next one.
func TestJobs_PerSecond(t *testing.T) {
	t.Parallel()
	all := newJobs()
	defer all.close()
	limits := make(chan int, 1000)
	step := func(ctx context.Context, after int64, limit int) (engine.DeadStep, error) {
		limits <- limit
		return engine.DeadStep{Changed: int64(limit), Next: after + 1}, ctx.Err()
	}
	began := time.Now()
	fast, _ := all.start("q", "redrive", 8, step)
	for range 3 {
		if n := <-limits; n != 2 {
			t.Fatalf("a step of %d, want 2", n)
		}
	}
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("4 of 8 a second took %v", took)
	}
	all.find("q", fast.ID, true)
	slow, _ := all.start("q", "redrive", 1, step)
	for n := range limits {
		if n == 1 {
			break // and now it waits for a second
		}
	}
	all.find("q", slow.ID, true)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		select {
		case <-limits:
		default:
		}
		if one, _ := all.find("q", slow.ID, false); one.State == jobStopped {
			return
		} else if time.Now().After(end) {
			t.Fatalf("it is %s", one.State)
		}
	}
}
