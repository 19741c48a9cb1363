package main

import "time"

// bucket is a token bucket, refilled continuously. Only one goroutine may use
// it.
type bucket struct {
	rate, burst float64 // tokens a second, and maximum number of tokens
	tokens      float64
	filled      time.Time
}

func newBucket(rate, burst float64, now time.Time) bucket {
	return bucket{rate: rate, burst: burst, tokens: burst, filled: now}
}

// take takes a token if there is one.
func (b *bucket) take(now time.Time) bool {
	b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.filled).Seconds())
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
