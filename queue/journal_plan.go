package queue

import (
	"math/rand/v2"
	"slices"
	"time"
)

// maxDeferred is how many deferred messages a Node takes at a time.
const maxDeferred = 100

// plan returns what is to be written now, and whether there is anything. What
// waits for company is written with whatever else is, unless the batch is in
// doubt: then it stays the same. The caller holds mu.
func (n *shardNode) plan(b *batch, now time.Time, doubt bool) (request, bool) {
	n.refuseStrangers(b)
	r := request{seen: n.state.seen, lease: n.cfg.Lease}
	if n.cameSecond() {
		n.drop()
	}
	if n.wantsLease(now) {
		n.token = rand.Int64()>>1 + 1
		n.times.busy = now
	}
	if r.own = n.token; n.token != 0 {
		n.planLease(&r, now)
		n.planEnd(&r, b, now)
		if n.partition == nil || r.validUntil != nil { // else it may not get the lease
			n.planClaims(&r, now)
		}
	}
	if !n.finishing && n.looks() {
		n.planTakeover(&r, now)
	}
	if !b.empty() || !r.empty() || n.times.laterDue(now) {
		n.planBatch(&r, b, doubt)
	}
	writes := !r.empty() || doubt && n.token != 0
	if writes && n.token != 0 && !r.ownEntry() {
		// Without a row of its own, a late second run of this request would not
		// be noticed; nor, if its answer is lost, that it was written.
		r.entries = append([]entry{{kind: kindNote, token: n.token}}, r.entries...)
	}
	look := !n.finishing && len(n.node.consumers) > 0 && !now.Before(n.times.look)
	if look && r.side == nil {
		r.side = &sideRequest{}
	}
	n.planKnown(&r)
	return r, writes || look
}

// planBatch adds what is to be recorded, before everything else: what is given
// up is, before the lease ends.
func (n *shardNode) planBatch(r *request, b *batch, doubt bool) {
	if !doubt {
		b.take(&n.pending)
		n.times.later = time.Time{}
		n.refuseStrangers(b)
	}
	if n.token == 0 {
		b.clear()
		return
	}
	r.entries = append(b.entries(n.token), r.entries...)
	if side := b.side(); side != nil {
		if r.side != nil {
			side.Want = r.side.Want
		}
		r.side = side
	}
}

// planKnown adds which deferred messages need not be returned. Those that go back
// may be had again at once.
func (n *shardNode) planKnown(r *request) {
	if r.side == nil {
		return
	}
	back := make(map[int64]bool)
	for _, p := range r.side.Put {
		back[p.Position] = true
	}
	for position := range n.deferred {
		if !back[position] {
			r.side.Known = append(r.side.Known, position)
		}
	}
}

// empty reports whether the request writes nothing.
func (r *request) empty() bool { return len(r.entries) == 0 && r.claim == 0 && r.side == nil }

// writes reports whether the request does more than look.
func (r *request) writes() bool {
	return len(r.entries) > 0 || r.claim > 0 || r.side != nil && (r.side.Want > 0 || len(r.side.Done)+len(r.side.Put)+len(r.side.Tried) > 0)
}

// ownEntry reports whether the request leaves a row that can be the Node's own
// alone: another may write the end of its lease.
func (r *request) ownEntry() bool {
	if r.claim > 0 {
		return true
	}
	for _, e := range r.entries {
		if e.token == r.own && e.kind != kindEnd {
			return true
		}
	}
	return false
}

// refuseStrangers answers what belongs to a lease that is over.
func (n *shardNode) refuseStrangers(b *batch) {
	b.resolve(func(s *settlement) (error, bool) { return ErrLeaseLost, s.item.token != n.token })
	b.tried = slices.DeleteFunc(b.tried, func(t try) bool { return t.item.token != n.token })
}

// wantsLease reports whether a Node without a lease has something to claim: an
// idle one writes nothing. Without Consumers it has not looked for long, and
// looks first.
func (n *shardNode) wantsLease(now time.Time) bool {
	if n.token != 0 || n.times.look.IsZero() || n.node.closed || n.state.paused || n.partition != nil && len(n.state.leases) > 0 {
		return false
	}
	return n.demand(now) > 0 && (n.claimable() || n.deferredDue(now)) && !n.heldUp(now)
}

// cameSecond reports whether another has the partition's lease, which was to be ours
// but is not yet: the request for it was refused because the journal had begun
// anew, say, and what was read then has the other's. Asked for once more it would
// be given, for PostgreSQL looks only after what has been read.
func (n *shardNode) cameSecond() bool {
	if n.partition == nil || n.token == 0 {
		return false
	}
	_, known := n.state.leases[n.token]
	return !known && len(n.state.leases) > 0
}

// claimable reports whether there are messages that nobody has, as far as
// known.
func (n *shardNode) claimable() bool {
	if n.head > n.state.top {
		return true
	}
	for _, g := range n.state.live {
		if g.owner == 0 {
			return g.lo <= n.head
		}
	}
	return false
}

// deferredDue reports whether a deferred message is due.
func (n *shardNode) deferredDue(now time.Time) bool {
	return !n.times.due.IsZero() && !now.Before(n.times.due)
}

// planLease begins the lease, or renews it.
func (n *shardNode) planLease(r *request, now time.Time) {
	until, known := n.state.leases[n.token]
	if known {
		r.validUntil = &until
	}
	if !known || !now.Before(n.renewAt) {
		kind := kindLease
		if !known && n.partition != nil {
			kind = kindLeaseAlone
		}
		r.entries = append([]entry{{kind: kind, token: n.token}}, r.entries...)
	}
}

// planEnd ends the lease of a Node that stops, or has had nothing to do for
// long, or is to give the partition back. Whatever it has is free then; what it
// delivered is in the batch.
func (n *shardNode) planEnd(r *request, b *batch, now time.Time) {
	leaves := n.leavesNow(now)
	if leaves {
		n.giveUpAll()
	}
	if n.finishing || leaves || n.idle(now) && b.empty() {
		r.entries = append(r.entries, entry{kind: kindEnd, token: n.token})
	}
}

// idle reports whether the lease has served for nothing for long.
func (n *shardNode) idle(now time.Time) bool {
	return n.waiting == 0 && !n.holds() && !now.Before(n.times.busy.Add(n.cfg.IdleAfter))
}

// holds reports whether the part has messages that were read, or are deferred.
func (n *shardNode) holds() bool {
	return len(n.flight)+len(n.ready)+len(n.again)+n.proving+len(n.deferred) > 0 || n.partition != nil && len(n.partition.keys) > 0
}

// ends reports whether the request ends the Node's own lease.
func (r *request) ends() bool {
	for _, e := range r.entries {
		if e.kind == kindEnd && e.token == r.own {
			return true
		}
	}
	return false
}

// planClaims claims what the Consumers have credits for: what others gave up
// first, then after all that was claimed. It waits until half of what may be
// had is used up, so that a claim is a row for many messages.
func (n *shardNode) planClaims(r *request, now time.Time) {
	if n.node.closed || n.state.paused || r.ends() || n.heldUp(now) {
		return
	}
	demand := n.demand(now)
	if want := demand - n.atHand(); want > 0 && n.deferredDue(now) {
		if r.side == nil {
			r.side = &sideRequest{}
		}
		r.side.Want = int(min(want, maxDeferred))
	}
	if want := n.wanted(demand); want > 0 {
		spans := n.givenUp(want)
		if len(spans) > 0 {
			r.entries = append(r.entries, entry{kind: kindTake, token: n.token, body: encodeSpans(spans)})
		}
		for _, s := range spans {
			want -= n.filled(s)
		}
		// Others may be in the way of what was given up, and never of what is after
		// the top: in a partition that must not come first.
		if n.partition == nil || len(spans) == 0 {
			n.planNext(r, want)
		}
	}
}

// planNext claims positions after all that was claimed: so many that may hold messages, and with them the empty
// ones before. A claim is of a number of positions, from wherever others' claims have got to meanwhile. Of a gap that
// would be far too many: a large one is done first, up to its end.
func (n *shardNode) planNext(r *request, want int64) {
	empty := n.emptyNext()
	if empty <= largestEmptyClaim {
		r.claim = want + empty
		return
	}
	r.entries = append(r.entries, entry{kind: kindPurge, token: n.token, hi: n.empty.hi})
}

// largestEmptyClaim is how many empty positions are claimed with others.
const largestEmptyClaim = 1000

// emptyNext is how many positions hold no message that come next. A transaction with an old snapshot may leave millions, and a
// failover 10^13.
func (n *shardNode) emptyNext() int64 {
	if n.empty.lo > n.state.top+1 {
		return 0
	}
	return max(0, n.empty.hi-n.state.top)
}

// messagesIn is how many messages there may be in the span, as far as the stream is known to
// reach.
func (n *shardNode) messagesIn(s span) int64 {
	s.hi = min(s.hi, n.head)
	return max(0, n.filled(s))
}

// filled is how many positions of the span are not known to be empty.
func (n *shardNode) filled(s span) int64 {
	return s.size() - max(0, span{max(s.lo, n.empty.lo), min(s.hi, n.empty.hi)}.size())
}

// wanted is how many positions to claim: as many as there are messages for, and
// Ahead more, after the end of the stream. These cost nothing to deliver, but
// other nodes do not get them however idle they are. They may stay empty for
// long, so what there is does not wait for them to be used up.
func (n *shardNode) wanted(demand int64) int64 {
	hand, ahead := n.atHand(), n.ahead()
	messages := max(0, min(demand-hand, n.unclaimed()))
	more := max(0, min(demand-hand-ahead-messages, int64(n.cfg.Ahead)-ahead))
	have := hand
	if messages == 0 {
		have += ahead
	}
	if have > messages+more {
		return 0
	}
	return messages + more
}

// unclaimed is how many messages nobody has, as far as known.
func (n *shardNode) unclaimed() int64 {
	messages := n.messagesIn(span{n.state.top + 1, n.head})
	for _, g := range n.state.live {
		if g.owner == 0 {
			messages += n.messagesIn(g.span)
		}
	}
	return messages
}

// givenUp returns the first positions that others gave up, at most so many that are not
// known to be empty.
func (n *shardNode) givenUp(most int64) (spans []span) {
	for _, g := range n.state.live {
		if most == 0 {
			break
		}
		if g.owner == 0 {
			s := span{g.lo, g.lo + most - 1}
			if n.empty.lo <= s.hi && n.empty.hi >= s.lo {
				s.hi = n.empty.hi + most - max(0, n.empty.lo-s.lo)
			}
			s.hi = min(s.hi, g.hi)
			spans = append(spans, s)
			most -= n.filled(s)
		}
	}
	return coalesce(spans)
}

// demand is how many messages the Consumers would take: their free credits,
// unless they have not asked for long.
func (n *shardNode) demand(now time.Time) (credits int64) {
	if n.node.closed || n.partition != nil && !n.partition.open() {
		return 0
	}
	for _, c := range n.node.consumers {
		if c.active(now) {
			credits += int64(max(0, c.cfg.Credits-c.outstanding+c.settling))
		}
	}
	return credits
}

// atHand is how many messages there are for that, read or to be read: those too
// that are deferred and being read. Without them the Node would take more and more
// of what is due until the first are read.
func (n *shardNode) atHand() int64 {
	have := int64(len(n.ready) + len(n.again) + len(n.fetch) + n.fetching + n.proving)
	for _, g := range n.unread {
		have += n.messagesIn(g.span)
	}
	return have
}

// ahead is how many positions the Node has after the end of the stream.
func (n *shardNode) ahead() (have int64) {
	for _, g := range n.unread {
		if g.hi > n.head {
			have += g.hi - max(g.lo, n.head+1) + 1
		}
	}
	return have
}

// planTakeover ends the leases of nodes that did not renew them.
func (n *shardNode) planTakeover(r *request, now time.Time) {
	if len(n.node.consumers) == 0 {
		return
	}
	for _, token := range n.expired(now) {
		r.entries = append(r.entries, entry{kind: kindEnd, token: token, hi: n.head, until: n.state.leases[token]})
	}
}

// expired returns the leases of others that are over. PostgreSQL's clock is
// further than we think; it is asked again when they are ended.
func (n *shardNode) expired(now time.Time) (tokens []int64) {
	at := n.dbNow.Add(now.Sub(n.heardAt))
	for token, until := range n.state.leases {
		if token != n.token && until.Before(at) {
			tokens = append(tokens, token)
		}
	}
	return tokens
}
