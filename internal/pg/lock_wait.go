package pg

import (
	"context"
	"time"
)

const (
	// ShortWait is for how long the first attempt waits for a lock. A batch of another
	// process is committed in less, as a rule.
	ShortWait = 20 * time.Millisecond
	// glance is for how long an attempt waits that only looks whether a lock is free.
	glance = time.Millisecond
	// maxPause bounds the time between two of them.
	maxPause = 500 * time.Millisecond
)

// LockWait is how the attempts to write one batch wait for its lock, so that a lock
// that somebody keeps does not hold up those who need others. The first waits briefly.
// Those after it wait in PostgreSQL's queue, on one of the connections that are set
// aside for that, where everybody gets the lock in turn. If all of these are taken,
// they look now and then whether the lock is free.
type LockWait struct {
	// Bound is from when on somebody should look who keeps the lock.
	Bound time.Duration
	// AtATime bounds one wait in PostgreSQL's queue. Defaults to Bound.
	AtATime time.Duration

	since  time.Time // zero while the first wait has not failed
	looks  int       // since then
	queued bool      // the attempt has a connection to wait on
}

// Hold has a session for the next attempt. Its error is ctx's.
func (l *LockWait) Hold(ctx context.Context, b *Borrower) error {
	if l.since.IsZero() || b.held != nil {
		return b.Hold(ctx)
	}
	if l.queued = b.holdAside(); l.queued {
		return nil
	}
	pause := time.NewTimer(min(10*time.Millisecond<<min(l.looks, 10), maxPause))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.looks++
	return b.Hold(ctx)
}

// Next is for how long the next attempt waits for a lock.
func (l *LockWait) Next() time.Duration {
	switch {
	case l.since.IsZero():
		return min(ShortWait, l.Bound)
	case l.queued && l.AtATime > 0:
		return l.AtATime
	case l.queued:
		return l.Bound
	}
	return min(glance, l.Bound)
}

// GoesOn takes the error of an attempt, and reports whether it was a wait for a lock
// that has not taken Bound yet: another attempt may follow at once, after the session
// was released.
func (l *LockWait) GoesOn(err error) bool {
	if Code(err) != CodeLockNotAvailable {
		return false
	}
	now := time.Now()
	if l.since.IsZero() {
		l.since = now.Add(-l.Next())
	}
	if now.Sub(l.since) < l.Bound {
		return true
	}
	l.since = now
	return false
}
