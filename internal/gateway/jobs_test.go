package gateway

import (
	"context"
	"testing"
	"time"
)

// TestJobs_PerSecond: a job with a limit takes small steps, and can be stopped while it waits for the next one.
func TestJobs_PerSecond(t *testing.T) {
	t.Parallel()
	all := newJobs()
	defer all.close()
	limits := make(chan int, 1000)
	start := func(perSecond int) job {
		one, _ := all.start(&job{Queue: "q", Act: "redrive", PerSecond: perSecond}, func(ctx context.Context, after int64) (stepped, error) {
			n := stepOf(perSecond)
			limits <- n
			return stepped{changed: int64(n), next: after + 1}, ctx.Err()
		})
		return one
	}
	anyJob := func(*job) bool { return true }
	began := time.Now()
	fast := start(8)
	for range 3 {
		if n := <-limits; n != 2 {
			t.Fatalf("a step of %d, want 2", n)
		}
	}
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("4 of 8 a second took %v", took)
	}
	all.find(anyJob, fast.ID, true)
	slow := start(1)
	for n := range limits {
		if n == 1 {
			break // and now it waits for a second
		}
	}
	all.find(anyJob, slow.ID, true)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		select {
		case <-limits:
		default:
		}
		if one, _ := all.find(anyJob, slow.ID, false); one.State == jobStopped {
			return
		} else if time.Now().After(end) {
			t.Fatalf("it is %s", one.State)
		}
	}
}
