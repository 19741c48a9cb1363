package main

import "time"

// limiter is a token bucket that starts full. It has no lock, since only the
// reading goroutine of its connection uses it.
type limiter struct {
	perSecond, burst float64
	used             float64 // tokens taken and not refilled yet
	last             time.Time
}

// allow takes a token, or returns false if there is none.
func (l *limiter) allow(now time.Time) bool {
	if !l.last.IsZero() {
		l.used = max(0, l.used-l.perSecond*now.Sub(l.last).Seconds())
	}
	l.last = now
	if l.used+1 > l.burst {
		return false
	}
	l.used++
	return true
}
