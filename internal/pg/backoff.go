package pg

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff waits before the next attempt after the given number of failed ones. It
// is an exponential back-off with jitter: 10 ms, doubled up to 1 s, minus a random part
// of up to half, so that many writers do not return to a restarted server at the same
// time. It returns ctx's error if ctx ends first.
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

// Jitter returns a random duration between 3/4 and 5/4 of d, so that periodic work of many processes does not happen at the
// same time.
func Jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2+1) }
