package standby

import (
	"errors"
	"sync"
)

var (
	errNotYet = errors.New("standby: not looked at yet")
	errClosed = errors.New("standby: closed")
)

// breaker is a circuit breaker: it has reads not wait, one after the other, for a standby that does not answer. Probes close it
// again, so that no read has to try. Safe for concurrent use.
// https://martinfowler.com/bliki/CircuitBreaker.html
type breaker struct {
	mu      sync.Mutex // guards the fields below
	failure error      // the last one, or nil: reads are admitted
	read    bool       // a read has been of use since the last failure
	closed  bool
}

func newBreaker() *breaker { return &breaker{failure: errNotYet} }

// problem returns why reads are not admitted, or nil.
func (b *breaker) problem() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failure
}

// succeed notes that the standby has answered. It reports whether that was of use for the first time since the last failure.
func (b *breaker) succeed(ofUse bool) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	first = ofUse && !b.read
	b.failure, b.read = nil, b.read || ofUse
	return first
}

// fail notes a failure, and reports whether it is the first one, or of another kind than the last: with another reason.
func (b *breaker) fail(err error) (tell bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	tell = b.failure == nil || reason(b.failure) != reason(err)
	b.failure, b.read = err, false
	return tell
}

// close has no read admitted any more.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.failure = true, errClosed
}
