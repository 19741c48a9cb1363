package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// partition is what a part of an ordered queue knows besides: whether it may claim,
// and of which keys a message is delivered, or waits for its retry. Of such a
// key nothing else goes. All that came after waits here, still claimed, so that
// it comes again in order when the node dies.
type partition struct {
	ours    bool
	leaveBy time.Time     // not zero: it is to be given back, by then at the latest
	left    chan struct{} // closed when it is

	keys    map[string][]*item // of busy keys, what waits after the first, in order
	resting []*item            // the first of their keys, to be delivered later
}

func newPartition() *partition { return &partition{keys: make(map[string][]*item)} }

// open reports whether messages may be claimed and delivered.
func (l *partition) open() bool { return l.ours && l.leaveBy.IsZero() }

// enter reports whether the item is the first of its key; else it waits.
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

// next returns what comes after the first of a key, which is done, or nil.
func (l *partition) next(key string) *item {
	waiting, busy := l.keys[key]
	if !busy || len(waiting) == 0 {
		delete(l.keys, key)
		return nil
	}
	l.keys[key] = waiting[1:]
	return waiting[0]
}

// clear forgets all messages, and returns those that rest.
func (l *partition) clear() []*item {
	resting := l.resting
	l.resting = nil
	clear(l.keys)
	return resting
}

// keeps reports whether the item's key orders it.
func (n *shardNode) keeps(it *item) bool { return n.partition != nil && it.Key != "" }

// queueUp makes a message that was read ready, or lets it wait for the one
// before it. The caller holds mu.
func (n *shardNode) queueUp(it *item) {
	n.readyBytes += it.held()
	if !n.keeps(it) || n.partition.enter(it) {
		n.place(it)
	}
}

// place makes a message ready, at once or when its rest is over. One that was
// delivered too often becomes a dead letter.
func (n *shardNode) place(it *item) {
	switch {
	case it.attempts >= n.node.queue.opts.MaxAttempts:
		n.readyBytes -= it.held()
		n.bury(it)
	case time.Now().Before(it.rest):
		n.partition.resting = append(n.partition.resting, it)
		n.times.rest = earliest(n.times.rest, it.rest)
		pg.Signal(n.rearm)
	case it.unproven():
		n.prove(it)
	case it.attempts > 0 || it.deferred || it.suspect:
		n.again = append(n.again, it)
	default:
		n.ready = append(n.ready, it)
	}
}

// keyDone lets the next message of the item's key go, if there is one.
func (n *shardNode) keyDone(it *item) {
	if !n.keeps(it) || it.token != n.token {
		return
	}
	if next := n.partition.next(it.Key); next != nil {
		n.place(next)
	}
}

// rested makes those ready that have rested long enough. The caller holds mu.
func (n *shardNode) rested(now time.Time) {
	n.times.rest = time.Time{}
	resting := n.partition.resting
	n.partition.resting = nil
	for _, it := range resting {
		n.place(it)
	}
	n.node.changed()
}

// restAfter keeps a message that was refused at its place: it is delivered
// again after the delay, and until then nothing else of its key.
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
	pg.Signal(n.rearm) // a partition that is to be given back may have waited for this
	n.node.changed()
	return nil
}

// openLane has the part take the partition, once no other node has a lease there.
func (n *shardNode) openLane() (left <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.partition.ours, n.partition.leaveBy, n.partition.left = true, time.Time{}, make(chan struct{})
	n.times.look = time.Time{} // now
	pg.Signal(n.rearm)
	return n.partition.left
}

// leavePartition has the part give the partition back: when what was delivered is settled,
// or patience is at its end.
func (n *shardNode) leavePartition(patience time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.partition.leaveBy = time.Now().Add(patience); n.token == 0 {
		n.partition.giveBack()
	}
	pg.Signal(n.rearm)
}

// leavesNow reports whether the lease is to end, for the partition goes to another.
func (n *shardNode) leavesNow(now time.Time) bool {
	return n.partition != nil && !n.partition.leaveBy.IsZero() && (len(n.flight)+n.waiting == 0 || !now.Before(n.partition.leaveBy))
}

// giveBack notes that the partition is not ours any more.
func (l *partition) giveBack() {
	if l.ours && !l.leaveBy.IsZero() {
		l.ours, l.leaveBy = false, time.Time{}
		close(l.left)
	}
}
