package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// dispatch delivers at most limit messages to the Consumer: of the highest
// priority that has any, or of all partitions in turn (round robin). The caller
// holds mu.
func (n *Node) dispatch(c *Consumer, limit int) (ds []*Delivery) {
	now := time.Now()
	c.calledAt = now
	for i := range n.parts {
		p := n.parts[n.order(i)]
		ds = append(ds, p.dispatch(c, limit-len(ds), now)...)
		if len(ds) == limit || n.queue.opts.Priorities > 0 && !p.dry(now) {
			break
		}
	}
	if n.queue.ordered() {
		n.turn++
	}
	if len(ds) > 0 {
		n.served(c)
	}
	return ds
}

// order returns the index of the part that comes i-th: the highest priority
// first, and partitions in turn.
func (n *Node) order(i int) int {
	if n.queue.ordered() {
		return (n.turn + i) % len(n.parts)
	}
	return len(n.parts) - 1 - i
}

// available is how many messages could be delivered now. The caller holds mu.
func (n *Node) available(now time.Time) (messages int) {
	for i := range n.parts {
		p := n.parts[n.order(i)]
		if p.serves(now) {
			messages += len(p.ready) + len(p.again)
		}
		if n.queue.opts.Priorities > 0 && !p.dry(now) {
			break
		}
	}
	return messages
}

// changed is called whenever a part has learnt something new. The caller holds mu.
func (n *Node) changed() {
	if n.queue.opts.Priorities > 0 { // a lower priority may not have to wait for a higher one any more
		for _, p := range n.parts {
			p.wantMore()
		}
	}
	n.wakeConsumers()
}

// serves reports whether the part may deliver messages.
func (n *shardNode) serves(now time.Time) bool {
	return !n.state.paused && now.Before(n.deadline) && (n.partition == nil || n.partition.open())
}

// dry reports whether the part has nothing to deliver, now or after a claim, as
// far as known: then lower priorities are served.
func (n *shardNode) dry(now time.Time) bool {
	return n.state.paused || n.atHand() == 0 && !n.claimable() && !n.deferredDue(now)
}

// heldUp reports whether a higher priority has something to deliver, so that
// nothing of this one is delivered or claimed.
func (n *shardNode) heldUp(now time.Time) bool {
	if n.node.queue.opts.Priorities == 0 {
		return false
	}
	return slices.ContainsFunc(n.node.parts[n.queue.index+1:], func(p *shardNode) bool { return !p.dry(now) })
}

// dispatch delivers at most limit messages of this part to the Consumer. The caller holds mu.
func (n *shardNode) dispatch(c *Consumer, limit int, now time.Time) (ds []*Delivery) {
	if !n.serves(now) {
		return nil
	}
	most := min(limit, c.cfg.Credits-c.outstanding, n.share(c))
	for len(ds) < most {
		it := n.nextItem()
		if it == nil {
			break
		}
		d := &Delivery{Message: n.outward(it.Message), Attempt: it.attempts + 1, Priority: n.priority(), part: n, consumer: c, item: it, deadline: now.Add(c.cfg.Visibility)}
		if it.unbegun++; !c.cfg.ExplicitBegin || it.unbegun > mostUnbegun {
			d.start(now)
		}
		n.flight[d] = struct{}{}
		c.outstanding++
		ds = append(ds, d)
	}
	if len(ds) > 0 {
		c.pace.delivered(now, len(ds))
		n.node.stats.Delivered += int64(len(ds))
		n.times.busy = now
		n.sweepBy(now.Add(c.cfg.Visibility))
	}
	return ds
}

// share is how many messages the Consumer may take while others wait too: an equal share, or what it
// settles in paceTime, if that is more.
func (n *shardNode) share(c *Consumer) int {
	waiting := 1
	for _, other := range n.node.consumers {
		if other != c && other.wants() {
			waiting++
		}
	}
	return max((len(n.ready)+len(n.again)+waiting-1)/waiting, c.pace.perPage)
}

// wants reports whether the Consumer waits in Receive and has credits.
func (c *Consumer) wants() bool { return c.waiting && c.outstanding < c.cfg.Credits }

// nextItem takes the next message to be delivered, or nil.
func (n *shardNode) nextItem() *item {
	list := &n.again
	if len(*list) == 0 {
		list = &n.ready
	}
	if len(*list) == 0 {
		return nil
	}
	it := (*list)[0]
	(*list)[0] = nil
	*list = (*list)[1:]
	n.readyBytes -= it.held()
	return it
}

// redeliver queues a message to be delivered again. The caller holds mu.
func (n *shardNode) redeliver(it *item) {
	if n.finishing || it.token != n.token {
		return
	}
	n.readyBytes += it.held()
	n.failed(it)
	n.place(it)
}

// buryLarge makes a message that is too large to be read a dead letter, and reports whether it is one.
func (n *shardNode) buryLarge(it *item) bool {
	if !tooLarge(&it.Message) {
		return false
	}
	it.reason = "message_too_large: " + string(it.Headers) + " bytes"
	n.bury(it)
	return true
}

// takeBack voids the deliveries of a closed Consumer: their messages are delivered
// again, but after a pause those that a program had begun that crashed. The caller
// holds mu.
func (n *shardNode) takeBack(c *Consumer, crashed bool) {
	var back []*Delivery
	for d := range n.flight {
		if d.consumer == c {
			back = append(back, d)
		}
	}
	slices.SortFunc(back, func(a, b *Delivery) int { return cmp.Compare(a.item.Position, b.item.Position) })
	for _, d := range back {
		n.void(d)
		if crashed && !d.began.IsZero() {
			d.item.reason = "consumer lost"
			n.retryLater(d.item)
			continue
		}
		d.item.reason = "consumer closed"
		n.redeliver(d.item)
	}
	n.shed(time.Now())
}

// sweepBy schedules a sweep at that time or earlier. The caller holds mu.
func (n *shardNode) sweepBy(at time.Time) {
	if n.times.sweep.IsZero() || at.Before(n.times.sweep) {
		n.times.sweep = at
		pg.Signal(n.rearm)
	}
}
