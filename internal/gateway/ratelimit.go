package gateway

import "time"

// bucket is a token bucket, refilled continuously. Not safe for concurrent use.
type bucket struct {
	rate, burst float64 // tokens a second, and at most
	tokens      float64
	at          time.Time
}

func newBucket(cfg ChatConfig, now time.Time) bucket {
	return bucket{rate: cfg.RateLimit, burst: cfg.RateBurst, tokens: cfg.RateBurst, at: now}
}

// take takes a token, or returns how long it is until there is one.
func (b *bucket) take(now time.Time) (wait time.Duration, ok bool) {
	b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.at).Seconds())
	b.at = now
	if b.tokens < 1 {
		return time.Duration((1 - b.tokens) / b.rate * float64(time.Second)), false
	}
	b.tokens--
	return 0, true
}
