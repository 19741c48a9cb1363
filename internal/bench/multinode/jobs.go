package multinode

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// lease is how long a consumer has a delivery. A node that cannot renew its own lease loses all its deliveries: short is a fault
// that no node loses it by, which is less than a third of it.
const (
	lease = 30 * time.Second
	short = 4 * time.Second
)

// jobs checks the queue: who holds a message, and whether it is settled. Safe for concurrent use.
type jobs struct {
	ledger *Ledger

	mu     sync.Mutex // guards the fields below
	held   map[int64]*job
	faults []outage
}

// job is a message of the queue.
type job struct {
	content content
	settled time.Time // when a consumer got the answer to its acknowledgement; zero before
	by      int       // the client
	unsure  bool      // an acknowledgement may have been recorded
	holder  *holding  // nil: nobody
}

// holding says who got a delivery, where, and when it was asked for.
type holding struct {
	client   int
	delivery string
	owner    life
	asked    time.Time
}

// outage is a time in which a node may lose its deliveries.
type outage struct {
	node     int
	from, to time.Time // to is zero until the repair
	kill     bool
}

func newJobs(l *Ledger) *jobs { return &jobs{ledger: l, held: make(map[int64]*job)} }

// fails records that a fault hits a node. The returned function records its repair.
func (j *jobs) fails(node int, at time.Time, kill bool) (repaired func(time.Time)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = append(j.faults, outage{node: node, from: at, kill: kill})
	i := len(j.faults) - 1
	return func(at time.Time) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.faults[i].to = at
	}
}

// take records a delivery that was asked for, and arrived, at these times.
func (j *jobs) take(d delivery, client int, owner life, asked, arrived time.Time) {
	c, err := parseContent(d.Payload)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.ledger.Break(PromiseKept, "%s: position %d: %v", queue, d.Position, err)
	}
	of := j.held[d.Position]
	if of == nil {
		of = &job{content: c}
		j.held[d.Position] = of
	}
	if of.content != c {
		j.ledger.Break(PromiseKept, "%s: position %d was %v, and is %v", queue, d.Position, of.content, c)
	}
	if !of.settled.IsZero() {
		j.ledger.Break(PromiseDone, "%s: %v, position %d, was settled by client %d, and is delivered to client %d %v later, attempt %d",
			queue, c, d.Position, of.by, client, arrived.Sub(of.settled).Round(time.Millisecond), d.Attempt)
	}
	if h := of.holder; h != nil && arrived.Before(h.asked.Add(lease)) && !j.loses(h, arrived) {
		j.ledger.Break(PromiseLease, "%s: %v, position %d, is held by client %d (node %d, %v ago), and is delivered to client %d (node %d), attempt %d",
			queue, c, d.Position, h.client, h.owner.node+1, arrived.Sub(h.asked).Round(time.Millisecond), client, owner.node+1, d.Attempt)
	}
	of.holder = &holding{client, d.Delivery, owner, asked}
}

// loses reports whether the node that has given out a delivery may have lost it by a fault. j.mu is held.
func (j *jobs) loses(h *holding, now time.Time) bool {
	return slices.ContainsFunc(j.faults, func(f outage) bool {
		if f.node != h.owner.node || f.from.After(now) || !f.to.IsZero() && f.to.Before(h.asked) {
			return false
		}
		end := f.to
		if end.IsZero() {
			end = now
		}
		return f.kill || end.Sub(f.from) >= short
	})
}

// settle records that an acknowledgement was answered.
func (j *jobs) settle(d delivery, client int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.held[d.Position]
	of.settled, of.by = time.Now(), client
	of.release(d)
}

// lost records that the delivery is not the consumer's any more. If it was asked to acknowledge it before, without a certain answer,
// that may be the reason.
func (j *jobs) lost(d delivery, asked bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.held[d.Position]
	of.unsure = of.unsure || asked
	of.release(d)
}

// unknown records that the outcome of an acknowledgement stays unknown.
func (j *jobs) unknown(d delivery) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held[d.Position].unsure = true
}

// release ends the holding by a delivery.
func (of *job) release(d delivery) {
	if of.holder != nil && of.holder.delivery == d.Delivery {
		of.holder = nil
	}
}

// isSettled reports whether a message is settled, or may be: then the queue's depth says whether it is.
func (j *jobs) isSettled(a stored) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.held[a.position]
	return of != nil && of.content == a.content && (!of.settled.IsZero() || of.unsure)
}

// unsettled returns the acknowledged messages that are not settled.
func (j *jobs) unsettled() (left []stored) {
	for _, a := range j.ledger.acknowledged(queue) {
		if !j.isSettled(a) {
			left = append(left, a)
		}
	}
	return left
}

// check checks that every acknowledged message is settled.
func (j *jobs) check() {
	for _, a := range j.unsettled() {
		j.ledger.Break(PromiseSettled, "%s: %v, acknowledged at position %d, is not settled", queue, a.content, a.position)
	}
}

// depth is how many messages a queue has: to deliver, delivered, delayed, and given up.
type depth struct{ Ready, Leased, Delayed, Dead int }

// left describes the depth, or is an empty string if there are no messages: then those are settled, too, whose acknowledgement has no
// certain answer.
func (d depth) left() string {
	if d == (depth{}) {
		return ""
	}
	return fmt.Sprintf("the queue has %d messages to deliver, %d that are leased, %d that are delayed, and %d dead letters", d.Ready, d.Leased, d.Delayed, d.Dead)
}
