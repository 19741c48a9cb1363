package bench

import (
	"context"
	"time"
)

// timerSlack is how much later than due a timer of an idle Go process may fire:
// it waits for them in whole milliseconds.
const timerSlack = 1500 * time.Microsecond

// SleepUntil sleeps until due, to a tenth of a millisecond or so on Linux, and
// reports whether ctx did not end before. A time gone by is returned from at once.
func SleepUntil(ctx context.Context, due time.Time) bool {
	if left := time.Until(due) - timerSlack; left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	if left := time.Until(due); left > 0 {
		sleepPrecisely(left)
	}
	return ctx.Err() == nil
}
