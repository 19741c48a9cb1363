package queue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// ConsumerOptions configures a Consumer.
type ConsumerOptions struct {
	// Credits is the maximum number of unacknowledged messages that the
	// Consumer has at a time. The Node claims that many in advance, and other
	// Nodes do not get them meanwhile. Negative: none, until SetCredits.
	// Defaults to 100.
	Credits int
	// Visibility is how long a message may stay unacknowledged before it is
	// delivered again. Extend prolongs it. Defaults to 30 s.
	Visibility time.Duration
	// ExplicitBegin says that the program calls Delivery.Begin before it processes a message: until then a delivery is no
	// attempt, for a program that receives messages before it can process them. A message is delivered 100 times without
	// one; from then on Receive begins it. Defaults to false: Receive begins all.
	ExplicitBegin bool
}

// Consumer receives messages of a Node. One goroutine at a time may call
// Receive; any goroutine may call Close.
type Consumer struct {
	node *Node
	cfg  ConsumerOptions
	wake chan struct{} // one slot

	// Guarded by the Node's mu.
	outstanding int  // delivered and not settled
	settling    int  // of these, those that are being recorded
	waiting     bool // in Receive
	calledAt    time.Time
	settledAt   time.Time
	closed      bool
	pace        pace
}

// Consume returns a new Consumer, which must be closed. It receives nothing
// before the Node runs.
func (n *Node) Consume(opts ConsumerOptions) *Consumer {
	if opts.Credits == 0 {
		opts.Credits = 100
	}
	opts.Credits = bounded(opts.Credits)
	if opts.Visibility <= 0 {
		opts.Visibility = 30 * time.Second
	}
	c := &Consumer{node: n, cfg: opts, wake: make(chan struct{}, 1), calledAt: time.Now()}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.consumers = append(n.consumers, c)
	if len(n.consumers) == 1 {
		n.wakeUp()
	}
	return c
}

// bounded limits a number of credits, so that sums of them do not overflow.
func bounded(credits int) int { return min(max(credits, 0), math.MaxInt32) }

// SetCredits changes the maximum number of unacknowledged messages of the
// Consumer; negative is none. If it is lowered, the Consumer keeps its deliveries,
// and the messages that the Node has claimed for it and not delivered go to other
// Consumers at once, of this Node or of others. Any goroutine may call it.
func (c *Consumer) SetCredits(credits int) {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	old := c.cfg.Credits
	if c.cfg.Credits = bounded(credits); c.closed || c.cfg.Credits == old {
		return
	}
	now := time.Now()
	for _, p := range n.parts {
		if c.cfg.Credits < old {
			p.shed(now)
		} else {
			p.wantMore()
		}
	}
	n.wakeConsumers()
}

// stalls is when the Consumer counts as stalled, or the zero time if it cannot
// stall: it waits in Receive, or has used all its credits.
func (c *Consumer) stalls() time.Time {
	if c.waiting || c.outstanding >= c.cfg.Credits {
		return time.Time{}
	}
	last := c.calledAt
	if c.settledAt.After(last) {
		last = c.settledAt
	}
	return last.Add(c.node.cfg.StallAfter)
}

// Receive waits for messages and returns them, in position order except for
// those that were delivered before. It returns at most as many as the Consumer
// has credits left, and no more than its share if other Consumers wait as well.
// Without credit it waits until something is acknowledged.
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
			n.mu.Lock()
			defer n.mu.Unlock()
			n.wakeConsumers() // this Consumer may have taken the only wake-up for a message
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
		select {
		case <-c.wake: // what it was for is seen now: later it would take a message for which another Consumer is woken
		default:
		}
		ds := n.dispatch(c, limit)
		c.waiting = len(ds) == 0
		for _, p := range n.parts {
			p.wantMore()
		}
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

// Broken is closed when the Node fails, for example because the queue was dropped. From then on
// Receive returns the reason. It is not closed when the Node stops normally: the Node then
// still accepts acknowledgements.
func (c *Consumer) Broken() <-chan struct{} { return c.node.broken }

// Close returns the Consumer's credits. Deliveries that it did not acknowledge become void, and their
// messages are delivered to other Consumers at once, of this Node or of others. This Node delivers them
// in position order, after messages that were returned earlier, and before all that were never
// delivered. Closing again does nothing.
func (c *Consumer) Close() { c.close(false) }

// Lost is Close for a Consumer whose program has crashed, or cannot be reached any more: the messages that it
// had begun are delivered after the pause that a Nack without a delay gets, because one of them may be the reason.
func (c *Consumer) Lost() { c.close(true) }

func (c *Consumer) close(crashed bool) {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	n.consumers = slices.DeleteFunc(n.consumers, func(other *Consumer) bool { return other == c })
	for _, p := range n.parts {
		p.takeBack(c, crashed)
	}
	n.wakeConsumers()
	pg.Signal(c.wake)
	n.rearm()
	pg.Signal(n.members)
}

// active reports whether the Consumer asks for messages: a stalled one must not
// keep them from others. The caller holds the Node's mu.
func (c *Consumer) active(now time.Time) bool {
	since := now.Add(-c.node.cfg.StallAfter)
	return c.waiting || c.calledAt.After(since) || c.settledAt.After(since)
}
