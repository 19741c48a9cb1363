package pg

import (
	"context"
	"time"
)

const (
	// ShortWait is how long the first attempt waits for a lock. As a rule another
	// process commits its batch in less time.
	ShortWait = 20 * time.Millisecond
	// probeWait is how long an attempt waits that only tries whether a lock is free.
	probeWait = time.Millisecond
	// maxPause bounds the time between two such attempts.
	maxPause = 500 * time.Millisecond
)

// LockWait decides how the attempts to write one batch wait for its lock, so that one
// lock that is held for long does not delay the writers of other locks. The first
// attempt waits briefly. The later attempts wait in PostgreSQL's queue, on one of the
// sessions that are set aside for that, so that all waiters get the lock in turn. If all
// of these sessions are taken, the attempts poll the lock, with exponential back-off.
type LockWait struct {
	// Bound is the time after which the caller should find out who holds the lock.
	Bound time.Duration
	// AtATime bounds one wait in PostgreSQL's queue. Defaults to Bound.
	AtATime time.Duration

	since  time.Time // begin of the wait, again after each Bound; zero before the first attempt has failed
	looks  int       // polls since then
	queued bool      // the attempt has a session on which it can wait
}

// Hold borrows a session for the next attempt. Its error is ctx's.
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

// Next returns how long the next attempt waits for the lock.
func (l *LockWait) Next() time.Duration {
	switch {
	case l.since.IsZero():
		return min(ShortWait, l.Bound)
	case l.queued && l.AtATime > 0:
		return l.AtATime
	case l.queued:
		return l.Bound
	}
	return min(probeWait, l.Bound)
}

// GoesOn is called with the error of an attempt. It reports whether the attempt failed to
// get the lock, and less than Bound has passed in all. Then the caller releases the
// session and tries again at once.
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
