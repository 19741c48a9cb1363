package limits

import (
	"time"

	"golang.org/x/time/rate"
)

// bucket is a token bucket for requests and one for bytes. A nil *bucket has no limit, and neither has a nil limiter. It is safe for concurrent use.
type bucket struct {
	requests, bytes *rate.Limiter
	fills           time.Duration // how long empty ones take to be full
}

// newBucket returns a bucket for that many requests and bytes a second, which holds twice as many; nil if neither has a limit.
func newBucket(requests float64, bytes int64, maxMessage int) *bucket {
	if requests <= 0 && bytes <= 0 {
		return nil
	}
	b := new(bucket)
	if requests > 0 {
		b.requests = b.limiter(requests, 1)
	}
	if bytes > 0 {
		b.bytes = b.limiter(float64(bytes), float64(maxMessage))
	}
	return b
}

func (b *bucket) limiter(a, least float64) *rate.Limiter {
	burst := max(2*a, least)
	b.fills = max(b.fills, time.Duration(burst/a*float64(time.Second)))
	return rate.NewLimiter(rate.Limit(a), int(burst))
}

// take takes n tokens, or returns the wait until they are there.
func take(l *rate.Limiter, now time.Time, n int) (wait time.Duration, ok bool) {
	if n = min(n, l.Burst()); l.AllowN(now, n) {
		return 0, true
	}
	r := l.ReserveN(now, n)
	wait = r.DelayFrom(now)
	r.CancelAt(now)
	return max(wait, 1), false
}

func (b *bucket) takeBytes(now time.Time, n int) (wait time.Duration, ok bool) {
	if b == nil || b.bytes == nil {
		return 0, true
	}
	return take(b.bytes, now, n)
}

func (b *bucket) takeRequest(now time.Time) (wait time.Duration, ok bool) {
	if b == nil || b.requests == nil {
		return 0, true
	}
	return take(b.requests, now, 1)
}

// owe takes tokens that may not be there yet, and returns the wait until they are.
func (b *bucket) owe(now time.Time, requests, bytes int) (wait time.Duration) {
	if b == nil {
		return 0
	}
	return max(owe(b.requests, now, requests), owe(b.bytes, now, bytes))
}

func owe(l *rate.Limiter, now time.Time, n int) (wait time.Duration) {
	if l == nil {
		return 0
	}
	for burst := l.Burst(); n > 0; n -= burst { // more cannot be reserved at once
		wait = l.ReserveN(now, min(n, burst)).DelayFrom(now)
	}
	return wait
}
