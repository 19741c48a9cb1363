package queue

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// ConsumerOptions configures a Consumer.
type ConsumerOptions struct {
	// Credits is the most messages that the Consumer has at a time and has not
	// acknowledged. The Node claims as many ahead. Defaults to 100.
	Credits int
	// Visibility is for how long a message may go unacknowledged until it is
	// handed out again. Extend puts it off. Defaults to 30 s.
	Visibility time.Duration
}

// Consumer receives messages of a Node. One goroutine at a time may call
// Receive; Close may be called by any.
type Consumer struct {
	node *Node
	cfg  ConsumerOptions
	wake chan struct{} // one slot

	// Guarded by the Node's mu.
	outstanding int  // handed out and not settled
	settling    int  // of these, those that are being recorded
	waiting     bool // in Receive
	calledAt    time.Time
	settledAt   time.Time
	closed      bool
}

// Consume returns a new Consumer, which must be closed. Before the Node runs it
// receives nothing.
func (n *Node) Consume(opts ConsumerOptions) *Consumer {
	if opts.Credits <= 0 {
		opts.Credits = 100
	}
	if opts.Visibility <= 0 {
		opts.Visibility = 30 * time.Second
	}
	c := &Consumer{node: n, cfg: opts, wake: make(chan struct{}, 1), calledAt: time.Now()}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.consumers = append(n.consumers, c)
	n.times.look, n.times.poll = time.Time{}, time.Time{} // now
	signal(n.rearm)
	return c
}

// Receive waits for messages and returns them, in the order of positions but
// for those that were handed out before; at most as many as the Consumer has
// credits left, and no more than its share if others wait as well. With no
// credit left it waits until something is acknowledged.
//
// The error is ctx's, or ErrClosed once the Consumer is closed or the Node
// stops, with what ended the Node if it failed.
func (c *Consumer) Receive(ctx context.Context) ([]*Delivery, error) {
	return c.ReceiveUpTo(ctx, c.cfg.Credits)
}

// ReceiveUpTo is Receive for at most limit messages. The error is ErrInvalid if
// limit is less than 1.
func (c *Consumer) ReceiveUpTo(ctx context.Context, limit int) ([]*Delivery, error) {
	if limit < 1 {
		return nil, fmt.Errorf("%w limit: %d, want at least 1", ErrInvalid, limit)
	}
	n := c.node
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n.mu.Lock()
		if c.closed || n.closed {
			defer n.mu.Unlock()
			if c.closed {
				return nil, ErrClosed
			}
			return nil, n.err
		}
		ds := n.handOut(c, limit)
		c.waiting = len(ds) == 0
		n.wantMore()
		n.wakeConsumers()
		n.mu.Unlock()
		if len(ds) > 0 {
			return ds, nil
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
		}
		n.mu.Lock()
		c.waiting = false
		c.calledAt = time.Now()
		n.mu.Unlock()
	}
}

// Close returns the Consumer's credits. What it did not acknowledge is void and
// is handed out to others at once: those of this Node, or of others. Closing
// again does nothing.
func (c *Consumer) Close() {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	n.consumers = slices.DeleteFunc(n.consumers, func(other *Consumer) bool { return other == c })
	var back []*Delivery
	for d := range n.flight {
		if d.consumer == c {
			back = append(back, d)
		}
	}
	slices.SortFunc(back, func(a, b *Delivery) int { return int(a.Position - b.Position) })
	for _, d := range back {
		n.void(d)
		d.item.reason = "consumer closed"
		n.handAgain(d.item)
	}
	n.shed(time.Now())
	n.wakeConsumers()
	signal(c.wake)
	signal(n.rearm)
}

// active reports whether the Consumer asks for messages: one that stopped
// asking must not keep them from others. The Node's mu is held.
func (c *Consumer) active(now time.Time) bool {
	since := now.Add(-c.node.cfg.StallAfter)
	return c.waiting || c.calledAt.After(since) || c.settledAt.After(since)
}

// handOut hands at most limit messages to the Consumer. The caller holds mu.
func (n *Node) handOut(c *Consumer, limit int) (ds []*Delivery) {
	now := time.Now()
	c.calledAt = now
	if n.state.paused || !now.Before(n.deadline) {
		return nil
	}
	most := min(limit, c.cfg.Credits-c.outstanding, n.share(c))
	for len(ds) < most {
		it := n.nextItem()
		if it == nil {
			break
		}
		if it.attempts >= n.queue.opts.MaxAttempts {
			n.bury(it)
			continue
		}
		it.attempts++
		d := &Delivery{Message: it.Message, Attempt: it.attempts, node: n, consumer: c, item: it, deadline: now.Add(c.cfg.Visibility)}
		n.flight[d] = struct{}{}
		c.outstanding++
		ds = append(ds, d)
	}
	if len(ds) > 0 {
		n.times.busy = now
		n.sweepBy(now.Add(c.cfg.Visibility))
	}
	return ds
}

// share is how many messages the Consumer may take while others wait too.
func (n *Node) share(c *Consumer) int {
	waiting := 1
	for _, other := range n.consumers {
		if other != c && other.wants() {
			waiting++
		}
	}
	return (len(n.ready) + len(n.again) + waiting - 1) / waiting
}

// wants reports whether the Consumer waits in Receive and has credits.
func (c *Consumer) wants() bool { return c.waiting && c.outstanding < c.cfg.Credits }

// nextItem takes the next message to be handed out, or nil.
func (n *Node) nextItem() *item {
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

// handAgain queues a message to be handed out again. The caller holds mu.
func (n *Node) handAgain(it *item) {
	if n.finishing || it.token != n.token {
		return
	}
	n.readyBytes += it.held()
	n.again = append(n.again, it)
}

// bury makes a message a dead letter that was handed out too often without an
// answer.
func (n *Node) bury(it *item) {
	reason := it.reason
	if reason == "" {
		reason = "not acknowledged"
	}
	put := &sidePut{Position: it.Position, Attempts: it.attempts, Dead: true, Reason: reason, Fresh: !it.aside}
	n.pending.settled = append(n.pending.settled, &settlement{item: it, put: put})
	n.later(0)
}

// sweepBy has the clock look for deliveries whose time has run out. The caller
// holds mu.
func (n *Node) sweepBy(at time.Time) {
	if n.times.sweep.IsZero() || at.Before(n.times.sweep) {
		n.times.sweep = at
		signal(n.rearm)
	}
}

// wakeConsumers wakes those that wait, as many as there are messages, not
// always the same first. The caller holds mu.
func (n *Node) wakeConsumers() {
	if n.closed || n.state.paused || !time.Now().Before(n.deadline) {
		return
	}
	messages := len(n.ready) + len(n.again)
	for i := range n.consumers {
		if messages == 0 {
			return
		}
		if c := n.consumers[(n.turn+i)%len(n.consumers)]; c.wants() {
			signal(c.wake)
			messages--
		}
	}
	n.turn++
}
