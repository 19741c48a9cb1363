package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// MaxReason is how many bytes of a reason are kept.
const MaxReason = 1024

// Delivery is one attempt to process a message. Exactly one call of Ack, AckLater or
// Nack settles it; further calls return ErrSettled, or ErrLeaseLost if it is void.
//
// Safe for concurrent use.
type Delivery struct {
	stream.Message
	// Attempt is how often a program has begun to process the message, this delivery
	// included. An attempt is not counted if its node died before it ended, or less than
	// NodeConfig.LaterEvery after; one that began with Begin is, if that was longer ago. From
	// then on, deliveries of messages that the dead node had claimed are counted exactly.
	Attempt int
	// Priority is the message's priority; 0 in a queue without priorities.
	Priority int

	part     *shardNode
	consumer *Consumer
	item     *item
	settle   settlement

	// Guarded by the Node's mu.
	deadline time.Time
	began    time.Time // when the program began; zero if it has not
	noted    bool      // the attempt is or will be recorded before it ends
	state    deliveryState
}

type deliveryState int

const (
	underWay deliveryState = iota
	settled
	voided
)

// AtOnce, as a NackOptions.Delay, means that the message is delivered again without a pause.
const AtOnce = time.Nanosecond

// NackOptions says what happens to a nacked message.
type NackOptions struct {
	// Delay until it is delivered again. Defaults to a pause that doubles with
	// each attempt, as the queue's Options say; AtOnce is none.
	Delay time.Duration
	// Dead makes it a dead letter now. Defaults to false: it becomes one after
	// Options.MaxAttempts.
	Dead bool
	// Reason is stored with the message, up to MaxReason bytes. Defaults to none.
	Reason string
}

// Ack acknowledges the message, and returns once that is recorded: the message
// is then never delivered again. The acknowledgements of all Consumers share
// commits (group commit). While PostgreSQL is away Ack waits.
//
// With ErrLeaseLost the message is, or will be, delivered again, unless the queue was dropped. If ctx ends
// first, or with ErrOutcomeUnknown, the acknowledgement may be recorded or not; it is not canceled.
func (d *Delivery) Ack(ctx context.Context) error { return d.settleWith(ctx, nil) }

// Nack rejects the message: it is delivered again after a pause, or becomes a
// dead letter. It returns once that is recorded; the errors are those of Ack.
// In a queue that keeps the order of keys, the nack of a message with a key is
// only kept in memory: the message stays with the Node, and the next message of
// its key waits.
func (d *Delivery) Nack(ctx context.Context, opts NackOptions) error {
	o := d.part.node.queue.Options()
	dead, reason := opts.Dead || d.Attempt >= o.MaxAttempts, cleanReason(opts.Reason)
	delay := opts.Delay
	switch {
	case dead:
		delay = 0 // the due time of a dead letter is when it died
	case delay <= 0:
		delay = backoff(o, d.Attempt)
	}
	if d.part.keeps(d.item) && !dead {
		return d.restAfter(delay, reason)
	}
	return d.settleWith(ctx, &sidePut{
		Position: d.item.Position, Delay: delay.Microseconds(), Attempts: d.Attempt,
		Dead: dead, Reason: reason, Fresh: !d.item.deferred,
	})
}

// backoff returns the pause after that attempt: exponential back-off with jitter.
func backoff(o Options, attempt int) time.Duration {
	wait := o.RetryMax
	if shift := attempt - 1; shift < 40 && o.RetryMin<<shift>>shift == o.RetryMin {
		wait = min(wait, o.RetryMin<<shift)
	}
	return max(time.Microsecond, wait-rand.N(wait/2+1))
}

// cleanReason returns the part of a reason that PostgreSQL can store.
func cleanReason(reason string) string {
	if len(reason) > MaxReason {
		reason = reason[:MaxReason]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(reason, "?"), "\x00", "?")
}

// AckAll acknowledges many deliveries, which share commits, and returns once all
// are answered. It returns the error of each, as Ack would.
func AckAll(ctx context.Context, ds []*Delivery) []error {
	if len(ds) == 0 {
		return nil
	}
	o := newOutcomes(len(ds))
	for i, d := range ds {
		d.submit(nil, o, i)
	}
	return o.wait(ctx)
}

// settleWith records the outcome of the delivery, and waits until it is recorded.
func (d *Delivery) settleWith(ctx context.Context, put *sidePut) error {
	o := newOutcomes(1)
	d.submit(put, o, 0)
	return o.wait(ctx)[0]
}

// submit adds the outcome of the delivery to the next write; the result of that is the i-th of o.
func (d *Delivery) submit(put *sidePut, o *outcomes, i int) {
	n := d.part
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := d.leave(); err != nil {
		o.report(i, err)
		return
	}
	if put != nil {
		put.Unbegun = d.item.unbegun
	}
	d.settle = settlement{item: d.item, put: put, to: o, at: i, part: n, consumer: d.consumer}
	d.consumer.settling++
	n.waiting++
	n.nudged = true
	// Under mu, so that the last write of a Node includes everything that was
	// added earlier. Add never waits.
	n.group.Add(context.Background(), 1, 0, func(b *batch) { b.settled = append(b.settled, &d.settle) })
	pg.Signal(n.writeBackoff.off)
}

// AckLater acknowledges the message and does not wait. The acknowledgement is
// recorded soon. If that fails, the caller is not told, and the message is
// delivered again.
func (d *Delivery) AckLater() error {
	n := d.part
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := d.leave(); err != nil {
		return err
	}
	d.settle = settlement{item: d.item}
	d.consumer.outstanding--
	d.consumer.settledAt = time.Now()
	n.pending.settled = append(n.pending.settled, &d.settle)
	n.later(n.cfg.LaterEvery)
	n.wantMore()
	return nil
}

// Extend sets the deadline of the delivery to by from now, which may be later or
// earlier than before. The error is ErrLeaseLost, ErrSettled, or ErrInvalid if by
// is not positive. It does not contact PostgreSQL. It does not say that work has begun: a program may keep the lease of what waits.
func (d *Delivery) Extend(by time.Duration) error {
	if by <= 0 {
		return fmt.Errorf("%w extension: %v, want more than 0", ErrInvalid, by)
	}
	n := d.part
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := d.stands(); err != nil {
		return err
	}
	d.deadline = time.Now().Add(by)
	n.sweepBy(d.deadline)
	return nil
}

// stands returns why the delivery cannot be settled, or nil.
func (d *Delivery) stands() error {
	switch d.state {
	case settled:
		return fmt.Errorf("position %d: %w", d.Position, ErrSettled)
	case voided:
		return fmt.Errorf("position %d: %w", d.Position, ErrLeaseLost)
	}
	return nil
}

// leave removes the delivery from those under way, because it is being settled.
func (d *Delivery) leave() error {
	if err := d.stands(); err != nil {
		return err
	}
	now := time.Now()
	d.start(now)
	d.state = settled
	d.consumer.pace.settled()
	delete(d.part.flight, d)
	d.part.times.busy = now
	d.part.node.checkDrained()
	return nil
}

// void ends a delivery that was not settled. The caller holds mu.
func (n *shardNode) void(d *Delivery) {
	d.state = voided
	d.consumer.pace = pace{} // what it does not settle in time is not fast
	delete(n.flight, d)
	d.consumer.outstanding--
	n.node.checkDrained()
}
