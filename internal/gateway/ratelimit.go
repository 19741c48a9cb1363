package gateway

import (
	"time"

	"golang.org/x/time/rate"
)

// rateLimit limits the chats of a connection: a token bucket, refilled
// continuously.
type rateLimit struct{ *rate.Limiter }

func newRateLimit(cfg ChatConfig) rateLimit {
	return rateLimit{rate.NewLimiter(rate.Limit(cfg.RateLimit), int(cfg.RateBurst))}
}

// Tokens that one connection may send at once, and then one each renewEvery.
const (
	renewBurst = 10
	renewEvery = 6 * time.Second
)

func newRenewalLimit() rateLimit {
	return rateLimit{rate.NewLimiter(rate.Every(renewEvery), renewBurst)}
}

// take takes a token, or returns the wait until the next one.
func (l rateLimit) take(now time.Time) (wait time.Duration, ok bool) {
	if l.AllowN(now, 1) {
		return 0, true
	}
	r := l.ReserveN(now, 1)
	wait = r.DelayFrom(now)
	r.CancelAt(now)
	return wait, false
}
