package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestJobs_PerSecond: a job with a limit takes small steps, and can be stopped while it waits for the next one.
func TestJobs_PerSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newJobs()
		defer all.close()
		steps := make(map[int]int) // by their sizes
		start := func(perSecond int) job {
			one, _ := all.start(&job{Queue: "q", Act: "redrive", PerSecond: perSecond}, func(ctx context.Context, after int64) (stepped, error) {
				n := stepOf(perSecond)
				if ctx.Err() == nil {
					steps[n]++
				}
				return stepped{changed: int64(n), next: after + 1}, ctx.Err()
			})
			return one
		}
		fast := start(8)
		time.Sleep(2100 * time.Millisecond)
		anyJob := func(*job) bool { return true }
		all.find(anyJob, fast.ID, true)
		synctest.Wait()
		if steps[2] < 8 || steps[2] > 9 {
			t.Errorf("%v steps of 8 a second in 2 seconds", steps)
		}
		slow := start(1)
		time.Sleep(500 * time.Millisecond)
		all.find(anyJob, slow.ID, true)
		synctest.Wait()
		if one, _ := all.find(anyJob, slow.ID, false); one.State != jobStopped || steps[1] != 1 {
			t.Errorf("it is %s after %v steps", one.State, steps)
		}
	})
}
