package bench

import (
	"context"
	"time"
)

// timerSlack is how much later than due a timer of an idle Go process may fire:
// it waits for them in whole milliseconds.
const timerSlack = 1500 * time.Microsecond

// Sleeper sleeps to a tenth of a millisecond or so, where Go's own timers are up to
// a millisecond late. It is one goroutine's; the others go on, as with any wait for
// a file.
type Sleeper struct{ alarm alarm }

// NewSleeper returns a Sleeper. Where the system has no clock for it, it is as
// precise as Go's timers.
func NewSleeper() *Sleeper { return &Sleeper{newAlarm()} }

// Close gives back what the system lent.
func (s *Sleeper) Close() { s.alarm.close() }

// Until sleeps until due, and reports whether ctx did not end before. A time gone
// by is returned from at once.
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
