package queue

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// An attempt is a delivery that a program has begun: by Begin, or by Receive if the
// Consumer does not use Begin. If it ends without an acknowledgement it is recorded soon
// after, together with other rows. An attempt that was under way when its node died is
// counted if it had begun LaterEvery before, by Begin. In any case its message is suspect
// from then on: each further delivery is recorded before it is made, so that a message
// that kills its consumers becomes a dead letter.

// mostUnbegun is how often a message is delivered without an attempt. From then on a
// delivery is an attempt: otherwise a message that kills each client before it sends begin
// would be delivered forever.
const mostUnbegun = 100

// Begin says that a program begins to process the message: from now on the delivery is an attempt. Consumers with
// ConsumerOptions.ExplicitBegin call it; Ack, AckLater and Nack imply it. Calling it again does nothing. The error is
// ErrLeaseLost or ErrSettled. It does not contact PostgreSQL.
func (d *Delivery) Begin() error {
	n := d.part
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := d.stands(); err != nil {
		return err
	}
	d.start(time.Now())
	n.noteBegun(d)
	return nil
}

// start makes the delivery an attempt, unless it is one. The caller holds mu.
func (d *Delivery) start(now time.Time) {
	if !d.began.IsZero() {
		return
	}
	d.began = now
	d.item.unbegun--
	d.item.attempts++
}

// noteBegun has an attempt recorded that is still under way after LaterEvery: most are
// settled by then, and cost nothing. The caller holds mu.
func (n *shardNode) noteBegun(d *Delivery) {
	if n.times.begun.IsZero() && d.consumer.cfg.ExplicitBegin && !d.noted {
		n.times.begun = d.began.Add(n.cfg.LaterEvery)
		pg.Signal(n.rearm)
	}
}

// recordBegun records the attempts that have been under way for LaterEvery. The caller holds mu.
func (n *shardNode) recordBegun(now time.Time) {
	n.times.begun = time.Time{}
	for d := range n.flight {
		switch {
		case d.noted || d.began.IsZero() || !d.consumer.cfg.ExplicitBegin:
		case now.Before(d.began.Add(n.cfg.LaterEvery)):
			n.times.begun = earliest(n.times.begun, d.began.Add(n.cfg.LaterEvery))
		default:
			d.noted = true
			n.failed(d.item)
		}
	}
}

// try is how often a message was delivered, to be recorded.
type try struct {
	item *item
	tally
	first bool // the last of these deliveries is made once this is recorded
}

// recordFirst records the next delivery of a suspect message; once that is
// recorded, the message becomes ready. It counts as an attempt if any Consumer
// of the Node would begin it at once. The caller holds mu.
func (n *shardNode) recordFirst(it *item) {
	next := it.tally
	if begins := func(c *Consumer) bool { return !c.cfg.ExplicitBegin }; it.unbegun >= mostUnbegun || slices.ContainsFunc(n.node.consumers, begins) {
		next.attempts++
	} else {
		next.unbegun++
	}
	n.pending.tried = append(n.pending.tried, try{it, next, true})
	n.recordingFirst++
	n.later(0)
}

// failed adds to the next write how often a message was delivered that the node
// keeps. The caller holds mu.
func (n *shardNode) failed(it *item) {
	if it.token == n.token && it.recorded != it.tally {
		n.pending.tried = append(n.pending.tried, try{it, it.tally, false})
		n.later(n.cfg.LaterEvery)
	}
}

// tried is called once the attempts are recorded. The caller holds mu.
func (n *shardNode) tried(t try) {
	if t.item.token != n.token {
		return
	}
	t.item.recorded = t.tally
	switch {
	case !t.first:
	case n.finishing:
		n.recordingFirst--
		n.giveBack(t.item) // its attempts are unchanged: it is not delivered after all
	default:
		n.recordingFirst--
		n.place(t.item)
	}
}

// dropRecordFirst forgets the deliveries that recordFirst has added: they will
// not be made. The caller holds mu.
func (n *shardNode) dropRecordFirst() {
	n.pending.tried = slices.DeleteFunc(n.pending.tried, func(t try) bool {
		if t.first {
			n.recordingFirst--
		}
		return t.first
	})
}

// mustRecordFirst reports whether the message's next delivery has to be recorded before it is made.
func (it *item) mustRecordFirst() bool {
	return it.suspect && it.recorded.deliveries() <= it.deliveries()
}

// lastTried returns the tallies to be recorded, the last one of each message.
func (b *batch) lastTried() map[*item]tally {
	if len(b.tried) == 0 {
		return nil
	}
	last := make(map[*item]tally, len(b.tried))
	for _, t := range b.tried {
		last[t.item] = t.tally
	}
	return last
}

// tries returns the rows of the journal that say how often messages of the token
// were delivered.
func (b *batch) tries(token int64) []entry {
	positions := make(map[tally][]span)
	for it, t := range b.lastTried() {
		if !it.deferred {
			positions[t] = append(positions[t], span{it.Position, it.Position})
		}
	}
	return counted(kindTried, token, positions)
}

// retryLater delivers a message again after the pause that a nack without a delay gets: its
// program has crashed, perhaps because of it, or was too slow. The caller holds mu.
func (n *shardNode) retryLater(it *item) {
	if n.finishing || it.token != n.token {
		return
	}
	opts := n.node.queue.Options()
	pause := backoff(opts, it.attempts)
	if it.attempts >= opts.MaxAttempts || n.keeps(it) {
		it.rest = time.Now().Add(pause)
		n.redeliver(it)
		return
	}
	put := it.put()
	put.Delay = pause.Microseconds()
	n.pending.settled = append(n.pending.settled, &settlement{item: it, put: put})
	n.later(0)
}

// bury makes a message a dead letter, because it was delivered too often
// without an acknowledgement.
func (n *shardNode) bury(it *item) {
	put := it.put()
	put.Dead = true
	switch {
	case it.unbegun >= mostUnbegun:
		put.Reason = fmt.Sprintf("delivered %d times without being begun", it.unbegun)
	case put.Reason == "":
		put.Reason = "not acknowledged"
	}
	n.pending.settled = append(n.pending.settled, &settlement{item: it, put: put})
	n.later(0)
}

// put returns how the message is deferred: it is due at once.
func (it *item) put() *sidePut {
	return &sidePut{Position: it.Position, Attempts: it.attempts, Unbegun: it.unbegun, Reason: it.reason, Fresh: !it.deferred}
}
