package standby

import (
	"errors"
	"sync"
	"time"
)

// After a failure the standby is left alone for leastPause, and for twice as long after each further one, up to mostPause.
const (
	leastPause = time.Second
	mostPause  = 30 * time.Second
)

var errClosed = errors.New("standby: closed")

// breaker is a circuit breaker: it has reads not wait, one after the other, for a standby that does not answer. After a pause it lets
// one read try. The zero value admits all. Safe for concurrent use.
// https://martinfowler.com/bliki/CircuitBreaker.html
type breaker struct {
	mu      sync.Mutex // guards the fields below
	failure error      // the last one, or nil: reads are admitted
	pause   time.Duration
	retry   time.Time // when one read may try
	trying  bool      // it does
	read    bool      // a read has been of use since the last failure
	closed  bool
}

// admits reports whether a read may go to the standby.
func (b *breaker) admits() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure == nil {
		return true
	}
	if b.closed || time.Now().Before(b.retry) {
		return false
	}
	b.trying = true
	b.retry = time.Now().Add(b.pause) // the others wait for what it finds
	return true
}

// leave notes that a read that was admitted has not tried.
func (b *breaker) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trying {
		b.trying, b.retry = false, time.Now()
	}
}

// succeed notes that the standby has answered. It reports whether that was of use for the first time since the last failure.
func (b *breaker) succeed(ofUse bool) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	first = ofUse && !b.read
	b.failure, b.pause, b.trying, b.read = nil, 0, false, b.read || ofUse
	return first
}

// fail notes a failure, and reports whether it is the first one.
func (b *breaker) fail(err error) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	first = b.failure == nil
	if first || b.trying { // else it is one more of those that were under way
		b.pause = min(max(2*b.pause, leastPause), mostPause)
		b.retry = time.Now().Add(b.pause)
	}
	b.failure, b.trying, b.read = err, false, false
	return first
}

// problem returns the last failure if the standby has not answered since, or nil.
func (b *breaker) problem() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failure
}

// close has no read admitted any more.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.failure = true, errClosed
}
