package standby

import (
	"errors"
	"sync"
)

var (
	errNotYet = errors.New("standby: not probed yet")
	errClosed = errors.New("standby: closed")
)

// breaker is a circuit breaker: it keeps reads from waiting, one after the other, for a standby that does not answer. Probes close it
// again, so no read has to test the standby. Safe for concurrent use.
// https://martinfowler.com/bliki/CircuitBreaker.html
type breaker struct {
	mu      sync.Mutex // guards the fields below
	failure error      // the last failure; nil if reads are admitted
	read    bool       // a read has succeeded since the last failure
	closed  bool
}

func newBreaker() *breaker { return &breaker{failure: errNotYet} }

// problem returns why reads are not admitted, or nil.
func (b *breaker) problem() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failure
}

// succeed notes that a probe or a read has succeeded; ofUse is true for a read. It reports whether it was the first read
// since the last failure.
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

// fail notes a failure, and reports whether it is the first one, or has another reason than the last.
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

// close rejects all reads from now on.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.failure = true, errClosed
}
