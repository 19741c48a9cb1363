package queue

import (
	"context"
	"time"
)

const (
	// brakeAfter is how many writes in a row may change nothing. Some do: others
	// were faster, or an answer got lost.
	brakeAfter = 5
	// brakeMin is the first pause after that; it doubles up to brakeMax.
	brakeMin = 10 * time.Millisecond
	brakeMax = time.Second
)

// writeBackoff slows down a Node that writes again and again what changes nothing. It
// is for mistakes that nobody has found: they must not cost PostgreSQL
// thousands of calls a second. Only the writer uses it, but for off.
type writeBackoff struct {
	vain int           // writes in a row that changed nothing
	off  chan struct{} // one slot: there is something to record, which does not wait
}

// note takes in whether a write had an effect.
func (b *writeBackoff) note(effect bool) {
	if b.vain++; effect {
		b.vain = 0
	}
}

// on reports whether the next write is to wait.
func (b *writeBackoff) on() bool { return b.vain >= brakeAfter }

// wait waits for a while, or until ctx ends. It returns false, at once, when
// there is something to record.
func (b *writeBackoff) wait(ctx context.Context) bool {
	timer := time.NewTimer(min(brakeMin<<min(b.vain-brakeAfter, 10), brakeMax))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-b.off:
		return false
	}
	return true
}

// slow is wait, and says so once.
func (n *shardNode) slow(ctx context.Context) bool {
	if n.brake.vain == brakeAfter {
		n.cfg.Log.Warn("writes change nothing, slowing down", "queue", n.queue.Name(), "writes", n.brake.vain)
	}
	return n.brake.wait(ctx)
}
