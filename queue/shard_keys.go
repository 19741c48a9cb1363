package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// partition is the additional state of a part of an ordered queue: whether the part
// may claim, and which keys are busy. A key is busy while a message of it is
// delivered or waits for its retry; no other message of it is then delivered. The
// later ones wait here, still claimed, so that they are delivered again in order if
// the node dies.
type partition struct {
	ours    bool
	leaveBy time.Time     // not zero: the partition has to be released, by then at the latest
	left    chan struct{} // closed when it is released

	keys    map[string][]*item // messages of busy keys that wait after the first one, in order
	resting []*item            // first messages of their keys, to be delivered later
}

func newPartition() *partition { return &partition{keys: make(map[string][]*item)} }

// open reports whether messages may be claimed and delivered.
func (l *partition) open() bool { return l.ours && l.leaveBy.IsZero() }

// enter reports whether the item is the first of its key; if not, it adds it to the waiting ones.
func (l *partition) enter(it *item) bool {
	waiting, busy := l.keys[it.Key]
	if !busy {
		l.keys[it.Key] = nil
		return true
	}
	at, _ := slices.BinarySearchFunc(waiting, it.Position, func(w *item, p int64) int { return cmp.Compare(w.Position, p) })
	l.keys[it.Key] = slices.Insert(waiting, at, it)
	return false
}

// next returns the next message of a key whose first one is done, or nil.
func (l *partition) next(key string) *item {
	waiting, busy := l.keys[key]
	if !busy || len(waiting) == 0 {
		delete(l.keys, key)
		return nil
	}
	l.keys[key] = waiting[1:]
	return waiting[0]
}

// clear forgets all messages, and returns the resting ones.
func (l *partition) clear() []*item {
	resting := l.resting
	l.resting = nil
	clear(l.keys)
	return resting
}

// keeps reports whether the item has to be delivered in the order of its key.
func (n *shardNode) keeps(it *item) bool { return n.partition != nil && it.Key != "" }

// queueUp makes a message that was read ready, or lets it wait for an earlier
// one of its key. The caller holds mu.
func (n *shardNode) queueUp(it *item) {
	n.readyBytes += it.held()
	if !n.keeps(it) || n.partition.enter(it) {
		n.place(it)
	}
}

// place makes a message ready, at once or when its pause is over. A message
// that was delivered too often becomes a dead letter.
func (n *shardNode) place(it *item) {
	switch {
	case it.attempts >= n.node.queue.Options().MaxAttempts:
		n.readyBytes -= it.held()
		n.bury(it)
	case time.Now().Before(it.rest):
		n.partition.resting = append(n.partition.resting, it)
		n.times.rest = earliest(n.times.rest, it.rest)
		pg.Signal(n.rearm)
	case it.mustRecordFirst():
		n.recordFirst(it)
	case it.deliveries() > 0 || it.deferred || it.suspect:
		n.again = append(n.again, it)
	default:
		n.ready = append(n.ready, it)
	}
}

// keyDone makes the next message of the item's key ready, if there is one.
func (n *shardNode) keyDone(it *item) {
	if !n.keeps(it) || it.token != n.token {
		return
	}
	if next := n.partition.next(it.Key); next != nil {
		n.place(next)
	}
}

// rested makes the messages ready whose pause is over. The caller holds mu.
func (n *shardNode) rested(now time.Time) {
	n.times.rest = time.Time{}
	resting := n.partition.resting
	n.partition.resting = nil
	for _, it := range resting {
		n.place(it)
	}
	n.node.changed()
}

// restAfter keeps a nacked message in its place: it is delivered again after
// the delay, and until then no other message of its key is.
func (d *Delivery) restAfter(delay time.Duration, reason string) error {
	n := d.part
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := d.leave(); err != nil {
		return err
	}
	d.consumer.outstanding--
	d.consumer.settledAt = time.Now()
	d.item.rest, d.item.reason = time.Now().Add(delay), reason
	n.readyBytes += d.item.held()
	n.failed(d.item)
	n.place(d.item)
	pg.Signal(n.rearm) // the release of the partition may have waited for this
	n.node.changed()
	return nil
}

// openPartition lets the part claim in the partition, once no other node has a lease there.
func (n *shardNode) openPartition() (left <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.partition.ours, n.partition.leaveBy, n.partition.left = true, time.Time{}, make(chan struct{})
	n.times.look = time.Time{} // now
	pg.Signal(n.rearm)
	return n.partition.left
}

// leavePartition makes the part release the partition: when its deliveries are settled, or
// after patience.
func (n *shardNode) leavePartition(patience time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.partition.leaveBy = time.Now().Add(patience); n.token == 0 {
		n.partition.giveBack()
	}
	pg.Signal(n.rearm)
}

// leavesNow reports whether the lease has to end now, because the partition goes to another node.
func (n *shardNode) leavesNow(now time.Time) bool {
	return n.partition != nil && !n.partition.leaveBy.IsZero() && (len(n.flight)+n.waiting == 0 || !now.Before(n.partition.leaveBy))
}

// giveBack marks the partition as released, if it was to be.
func (l *partition) giveBack() {
	if l.ours && !l.leaveBy.IsZero() {
		l.ours, l.leaveBy = false, time.Time{}
		close(l.left)
	}
}
