package queue

import (
	"context"
	"time"
)

const (
	// backoffAfter is how many writes in a row may have no effect. Some have
	// none normally, because other nodes were faster, or an answer got lost.
	backoffAfter = 5
	// backoffMin is the first pause after that; it doubles up to backoffMax (exponential back-off).
	backoffMin = 10 * time.Millisecond
	backoffMax = time.Second
)

// writeBackoff slows down a Node whose writes repeatedly have no effect. It protects
// PostgreSQL from bugs that are not found yet, which could otherwise cost thousands
// of calls a second. Only the writer uses it, except for off.
type writeBackoff struct {
	noEffect int           // writes in a row without an effect
	off      chan struct{} // one slot: there is something to record, so the pause ends
}

// note counts writes without an effect.
func (b *writeBackoff) note(effect bool) {
	if b.noEffect++; effect {
		b.noEffect = 0
	}
}

// on reports whether the next write has to wait.
func (b *writeBackoff) on() bool { return b.noEffect >= backoffAfter }

// wait pauses, at most until ctx ends. It returns false, at once, when there is
// something to record.
func (b *writeBackoff) wait(ctx context.Context) bool {
	timer := time.NewTimer(min(backoffMin<<min(b.noEffect-backoffAfter, 10), backoffMax))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-b.off:
		return false
	}
	return true
}

// slow is wait, and logs the first pause.
func (n *shardNode) slow(ctx context.Context) bool {
	if n.writeBackoff.noEffect == backoffAfter {
		n.cfg.Log.Warn("journal writes have no effect, slowing down", "queue", n.queue.Name(), "writes", n.writeBackoff.noEffect)
	}
	return n.writeBackoff.wait(ctx)
}
