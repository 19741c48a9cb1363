package pg

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff waits before the attempt that follows the given number of failed
// ones: 10 ms doubling up to 1 s, of which a random half is taken off, so that
// many writers do not return to a restarted server in step. It returns ctx's
// error if ctx ends first.
func Backoff(ctx context.Context, failed int) error {
	wait := min(10*time.Millisecond<<min(failed, 10), time.Second)
	wait -= rand.N(wait/2 + 1)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Jitter returns a duration around d, from three quarters of it to five: what many processes do again and again is not to happen
// at the same time.
func Jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2+1) }
