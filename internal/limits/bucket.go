package limits

import (
	"math"
	"sync"
	"time"
)

// bucket is a pair of token buckets, one for requests and one for bytes, which decide together: a message is allowed if both have its tokens, and a
// message that is refused takes none from either.
//
// The algorithm is the token bucket (J. S. Turner, New directions in communications, IEEE Communications Magazine 24(10), 1986; RFC 2697, section 3,
// states it step by step): a bucket is filled continuously at its rate, up to its size, and a message takes tokens out. It differs from
// golang.org/x/time/rate in two points. The wait is computed, not reserved and given back: a reservation that another one follows cannot be given
// back in whole, so that refusals would cost tokens. And its clock never goes back: callers may pass the time of a read that is over, and no second
// fills the bucket twice.
//
// A nil *bucket has no limit. It is safe for concurrent use. The lock must be held for wait and spend.
type bucket struct {
	mu              sync.Mutex
	last            time.Time // the latest time that was passed
	requests, bytes tokens

	// notable, if not nil, is called once when a notable part of a second's tokens has been taken since takeUsed.
	notable func()
	told    bool
}

// tokens are the tokens of one rate. The zero tokens have no limit.
type tokens struct {
	rate  float64 // a second; 0 is no limit
	whole float64 // the rate, of which this server may have only a part
	size  float64
	least float64 // the size is at least that
	left  float64 // below 0 is a debt
	used  float64 // taken since takeUsed
}

// newBucket returns a full bucket for that many requests and bytes a second, which holds twice as many; nil if neither has a limit.
func newBucket(requests float64, bytes int64, maxMessage int) *bucket {
	if requests <= 0 && bytes <= 0 {
		return nil
	}
	return &bucket{requests: newTokens(requests, 1), bytes: newTokens(float64(bytes), float64(maxMessage))}
}

func newTokens(rate, least float64) tokens {
	if rate <= 0 {
		return tokens{}
	}
	size := max(2*rate, least)
	return tokens{rate: rate, whole: rate, size: size, least: least, left: size}
}

func (b *bucket) lock() {
	if b != nil {
		b.mu.Lock()
	}
}

func (b *bucket) unlock() {
	if b != nil {
		b.mu.Unlock()
	}
}

// fill adds the tokens since the last time. A time before that counts as that. b.mu is held.
func (b *bucket) fill(now time.Time) {
	passed := now.Sub(b.last)
	if passed <= 0 {
		return
	}
	b.last = now
	b.requests.fill(passed)
	b.bytes.fill(passed)
}

// wait returns after how long a message would be allowed, 0 if now. It takes nothing.
func (b *bucket) wait(now time.Time, requests, bytes int) time.Duration {
	if b == nil {
		return 0
	}
	b.fill(now)
	return max(b.requests.wait(requests), b.bytes.wait(bytes))
}

// spend takes the tokens of a message that wait allows.
func (b *bucket) spend(requests, bytes int) {
	if b == nil {
		return
	}
	b.requests.spend(requests)
	b.bytes.spend(bytes)
	b.note()
}

// note calls notable, if it is time for that. b.mu is held.
func (b *bucket) note() {
	if b.notable != nil && !b.told && (b.requests.isNotable() || b.bytes.isNotable()) {
		b.told = true
		b.notable()
	}
}

func (t *tokens) isNotable() bool { return t.rate > 0 && t.used >= notableShare*t.whole }

// takeUsed returns the tokens taken since the last call.
func (b *bucket) takeUsed() (requests, bytes float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests, bytes = b.requests.used, b.bytes.used
	b.requests.used, b.bytes.used, b.told = 0, 0, false
	return requests, bytes
}

// share is the part of a rate that this server has, and of what its bucket holds, from 0 to 1.
type share struct{ rate, size float64 }

// share sets the parts of this server.
func (b *bucket) share(now time.Time, requests, bytes share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	b.requests.share(requests)
	b.bytes.share(bytes)
}

func (t *tokens) share(s share) {
	if t.whole > 0 {
		t.rate, t.size = t.whole*s.rate, max(2*t.whole*s.size, t.least)
		t.left = min(t.left, t.size)
	}
}

// take takes the tokens of a message, or returns the wait until they are there. Then it takes nothing. It takes the lock.
func (b *bucket) take(now time.Time, requests, bytes int) (wait time.Duration, ok bool) {
	b.lock()
	defer b.unlock()
	if wait = b.wait(now, requests, bytes); wait > 0 {
		return wait, false
	}
	b.spend(requests, bytes)
	return 0, true
}

// owe takes tokens that may not be there yet, and returns the wait until they are. It takes the lock.
func (b *bucket) owe(now time.Time, requests, bytes int) (wait time.Duration) {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	b.requests.owe(requests)
	b.bytes.owe(bytes)
	b.note()
	return max(b.requests.debt(), b.bytes.debt())
}

// oweAtMost is owe with a debt of at most one second: so one client does not make the others of its user wait for longer.
func (b *bucket) oweAtMost(now time.Time, requests, bytes int) (wait time.Duration) {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	b.requests.oweAtMost(requests)
	b.bytes.oweAtMost(bytes)
	b.note()
	return max(b.requests.debt(), b.bytes.debt())
}

// oweAtMost never makes a debt of more than a second larger.
func (t *tokens) oweAtMost(n int) {
	t.used += float64(n)
	t.left = max(t.left-float64(n), min(t.left, -t.rate))
}

// full returns how long the bucket takes to be full again.
func (b *bucket) full(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	return max(b.requests.full(), b.bytes.full())
}

// full returns how long the tokens take to be all there.
func (t *tokens) full() time.Duration { return t.until(t.size - t.left) }

func (t *tokens) fill(passed time.Duration) { t.left = min(t.left+t.rate*passed.Seconds(), t.size) }

// wait returns the wait until n tokens are there, or as many as there can be. It is rounded up by more than the error of the arithmetic: after it they
// are there. Nothing needs no tokens: it does not wait for a debt.
func (t *tokens) wait(n int) time.Duration {
	if n == 0 {
		return 0
	}
	return t.until(min(float64(n), t.size) - t.left)
}

// debt returns the wait until there is no debt.
func (t *tokens) debt() time.Duration { return t.until(-t.left) }

func (t *tokens) until(missing float64) time.Duration {
	if missing <= 0 || t.rate == 0 {
		return 0
	}
	return seconds(missing/t.rate) + 2
}

// spend takes n tokens, or as many as there can be.
func (t *tokens) spend(n int) {
	t.used += float64(n)
	t.left -= min(float64(n), t.size)
}

func (t *tokens) owe(n int) {
	t.used += float64(n)
	t.left -= float64(n)
}

// seconds converts to a Duration, of 146 years at most.
func seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), math.MaxInt64/2))
}
