package bench

import (
	"context"
	"time"
)

// timerSlack is how much later than due a timer of an idle Go process may fire:
// the runtime waits in whole milliseconds.
const timerSlack = 1500 * time.Microsecond

// Sleeper sleeps with a precision of about a tenth of a millisecond, while Go's own
// timers are up to a millisecond late. Only one goroutine may use it. Other
// goroutines keep running, as with any wait for a file.
type Sleeper struct{ alarm alarm }

// NewSleeper returns a Sleeper. If the system has no suitable clock, it is as
// precise as Go's timers.
func NewSleeper() *Sleeper { return &Sleeper{newAlarm()} }

// Close releases the system's timer.
func (s *Sleeper) Close() { s.alarm.close() }

// Until sleeps until due, and reports false if ctx ended before. If due has
// passed, it returns at once.
func (s *Sleeper) Until(ctx context.Context, due time.Time) bool {
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
		s.alarm.sleep(left)
	}
	return ctx.Err() == nil
}
