package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// sweepEvery is the minimum time between two searches for deliveries whose time
// has run out: each looks at all deliveries.
const sweepEvery = 20 * time.Millisecond

// schedule holds when each timed action of a part is due. A zero time is never.
type schedule struct {
	look   time.Time // read the journal
	poll   time.Time // read the stream
	later  time.Time // write what is pending
	sweep  time.Time // a delivery's time may have run out
	begun  time.Time // an attempt that is under way may have to be recorded
	due    time.Time // a deferred message is due
	noted  int       // how often dueBy was called
	rest   time.Time // the pause of a message of a partition ends
	busy   time.Time // when the lease was last used
	rotate time.Time // from then on the journal may be compacted
}

// laterDue reports whether the pending rows have waited long enough.
func (s *schedule) laterDue(now time.Time) bool {
	return !s.later.IsZero() && !now.Before(s.later)
}

// heard sets when to read the journal next, and when a deferred message is due, from an answer.
func (s *schedule) heard(a *answer, cfg *NodeConfig) {
	if !a.looked {
		return
	}
	now := time.Now()
	s.look = now.Add(pg.Jitter(cfg.PollJournal))
	s.due = time.Time{}
	if a.due != nil {
		s.due = now.Add(max(0, a.due.Sub(a.now)))
	}
}

// dueBy notes when a message that was deferred is due.
func (s *schedule) dueBy(p *sidePut, now time.Time) {
	at := now.Add(time.Duration(p.Delay) * time.Microsecond)
	if p.Due != nil {
		at = *p.Due
	}
	s.due = earliest(s.due, at)
	s.noted++
}

// earliest returns the first of the times that are not zero.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if first.IsZero() || !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

// later writes the pending rows within d. The caller holds mu.
func (n *shardNode) later(d time.Duration) {
	n.times.later = earliest(n.times.later, time.Now().Add(d))
	pg.Signal(n.rearm)
}

// clock does what is due, until ctx ends.
func (n *shardNode) clock(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-n.rearm:
		case <-ctx.Done():
			return
		}
		n.mu.Lock()
		now := time.Now()
		n.tick(now)
		next := n.next(now)
		n.mu.Unlock()
		if wait := 24 * time.Hour; next.IsZero() {
			timer.Reset(wait)
		} else {
			timer.Reset(max(time.Millisecond, time.Until(next)))
		}
	}
}

// tick does what is due now. The caller holds mu.
func (n *shardNode) tick(now time.Time) {
	if !n.times.sweep.IsZero() && !now.Before(n.times.sweep) {
		n.sweep(now)
	}
	if !n.times.begun.IsZero() && !now.Before(n.times.begun) {
		n.recordBegun(now)
	}
	if !n.times.rest.IsZero() && !now.Before(n.times.rest) {
		n.rested(now)
	}
	if len(n.node.consumers) > 0 && !now.Before(n.times.poll) {
		n.times.poll = now.Add(pg.Jitter(n.cfg.Poll))
		n.polls = true
		pg.Signal(n.readNow)
	}
	n.shed(now)
	if write := n.nextWrite(now); !n.nudged && !write.IsZero() && !now.Before(write) {
		n.nudge()
	}
}

// next returns when tick is due. The caller holds mu.
func (n *shardNode) next(now time.Time) time.Time {
	next := earliest(n.times.sweep, n.times.begun, n.times.rest, n.nextStall(now))
	if len(n.node.consumers) > 0 {
		next = earliest(next, n.times.poll)
	}
	if !n.nudged { // else the writer signals rearm when it has finished
		next = earliest(next, n.nextWrite(now))
	}
	return next
}

// nextStall returns when the next Consumer stalls, so that the messages claimed
// for it go to others.
func (n *shardNode) nextStall(now time.Time) (next time.Time) {
	if n.token == 0 || n.atHand()+n.ahead() == 0 {
		return next
	}
	for _, c := range n.node.consumers {
		if at := c.stalls(); at.After(now) {
			next = earliest(next, at)
		}
	}
	return next
}

// nextWrite returns when the journal is next to be written or read.
func (n *shardNode) nextWrite(now time.Time) time.Time {
	next := n.times.later
	if n.token != 0 {
		next = earliest(next, n.renewAt)
		if n.idle(now) || n.leavesNow(now) {
			next = now
		} else if !n.holds() {
			next = earliest(next, n.times.busy.Add(n.cfg.IdleAfter))
		}
		if n.partition != nil {
			next = earliest(next, n.partition.leaveBy)
		}
	}
	if len(n.node.consumers) == 0 || !n.looks() {
		return next
	}
	if n.times.look.IsZero() {
		return now // for the first time
	}
	next = earliest(next, n.times.look)
	if !n.node.closed && !n.state.paused && n.demand(now) > n.atHand() && !n.heldUp(now) {
		next = earliest(next, n.times.due)
	}
	return next
}

// sweep voids the deliveries whose time has run out; their messages are
// delivered again, after a pause if a program had begun. The caller holds mu.
func (n *shardNode) sweep(now time.Time) {
	next := time.Time{}
	var late []*item // that no program had begun
	for d := range n.flight {
		if now.Before(d.deadline) {
			next = earliest(next, d.deadline)
			continue
		}
		n.void(d)
		if d.began.IsZero() {
			late = append(late, d.item)
			continue
		}
		d.item.reason = "not acknowledged in time"
		n.retryLater(d.item)
	}
	slices.SortFunc(late, func(a, b *item) int { return cmp.Compare(a.Position, b.Position) })
	for _, it := range late {
		n.redeliver(it)
	}
	if n.times.sweep = next; !next.IsZero() && next.Before(now.Add(sweepEvery)) {
		n.times.sweep = now.Add(sweepEvery)
	}
	n.node.changed()
}
