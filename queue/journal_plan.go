package queue

import (
	"math/rand/v2"
	"slices"
	"time"
)

// maxDeferred is how many deferred messages a Node claims at a time.
const maxDeferred = 100

// plan returns what is to be written now, and whether there is anything.
// Pending rows are written together with any other write, unless the batch is
// in doubt: then the batch must stay the same. The caller holds mu.
func (n *shardNode) plan(b *batch, now time.Time, doubt bool) (request, bool) {
	n.rejectOtherLeases(b)
	r := request{seen: n.state.seen, lease: n.cfg.Lease}
	if n.lostLeaseRace() {
		n.drop()
	}
	if n.wantsLease(now) {
		n.token = rand.Int64()>>1 + 1
		n.times.busy = now
	}
	if r.own = n.token; n.token != 0 {
		n.planLease(&r, now)
		n.planEnd(&r, b, now)
		if n.partition == nil || r.validUntil != nil { // else the lease request may fail
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
		// Without a row of the node's own, neither a late second run of this
		// request would be noticed, nor, if its answer is lost, that it was
		// written.
		r.entries = append([]entry{{kind: kindNote, token: n.token}}, r.entries...)
	}
	look := !n.finishing && len(n.node.consumers) > 0 && !now.Before(n.times.look)
	if look && r.side == nil {
		r.side = &sideRequest{}
	}
	n.planKnown(&r)
	return r, writes || look
}

// planBatch adds the batch before all other entries: positions must be released
// before the lease ends.
func (n *shardNode) planBatch(r *request, b *batch, doubt bool) {
	if !doubt {
		b.take(&n.pending)
		n.times.later = time.Time{}
		n.rejectOtherLeases(b)
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

// planKnown adds which deferred messages need not be returned. Those that are
// deferred again in this request are not among them: they may be due, and
// returned, at once.
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

// writes reports whether the request does more than read.
func (r *request) writes() bool {
	return len(r.entries) > 0 || r.claim > 0 || r.side != nil && (r.side.Want > 0 || len(r.side.Done)+len(r.side.Put)+len(r.side.Tried) > 0)
}

// ownEntry reports whether the request writes a row that only this Node can
// have written: other nodes may write the end of its lease.
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

// rejectOtherLeases answers ErrLeaseLost to settlements that belong to a lease that is over.
func (n *shardNode) rejectOtherLeases(b *batch) {
	b.resolve(func(s *settlement) (error, bool) { return ErrLeaseLost, s.item.token != n.token })
	b.tried = slices.DeleteFunc(b.tried, func(t try) bool { return t.item.token != n.token })
}

// wantsLease reports whether a Node without a lease has something to claim: an
// idle Node writes nothing. After a time without Consumers its state is old,
// and it reads the journal first.
func (n *shardNode) wantsLease(now time.Time) bool {
	if n.token != 0 || n.times.look.IsZero() || n.node.closed || n.state.paused || n.partition != nil && len(n.state.leases) > 0 {
		return false
	}
	return n.demand(now) > 0 && (n.claimable() || n.deferredDue(now)) && !n.heldUp(now)
}

// lostLeaseRace reports whether another node acquired the partition's lease while
// our request for it was stale, for example because the journal was compacted. A
// retry would succeed wrongly, because PostgreSQL only checks rows after the last
// one that we have read.
func (n *shardNode) lostLeaseRace() bool {
	if n.partition == nil || n.token == 0 {
		return false
	}
	_, known := n.state.leases[n.token]
	return !known && len(n.state.leases) > 0
}

// claimable reports whether there are messages that no node has claimed, as far
// as known.
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
			kind = kindLeaseExclusive
		}
		r.entries = append([]entry{{kind: kind, token: n.token}}, r.entries...)
	}
}

// planEnd ends the lease of a Node that stops, was idle for IdleAfter, or has
// to release the partition. All its positions are then free; the outcomes of
// its deliveries are in the batch.
func (n *shardNode) planEnd(r *request, b *batch, now time.Time) {
	leaves := n.leavesNow(now)
	if leaves {
		n.giveUpAll()
	}
	if n.finishing || leaves || n.idle(now) && b.empty() {
		r.entries = append(r.entries, entry{kind: kindEnd, token: n.token})
	}
}

// idle reports whether the lease was not used for IdleAfter.
func (n *shardNode) idle(now time.Time) bool {
	return n.waiting == 0 && !n.holds() && !now.Before(n.times.busy.Add(n.cfg.IdleAfter))
}

// holds reports whether the part has messages, read or deferred.
func (n *shardNode) holds() bool {
	return len(n.flight)+len(n.ready)+len(n.again)+n.recordingFirst+len(n.deferred) > 0 || n.partition != nil && len(n.partition.keys) > 0
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

// planClaims claims messages for the Consumers' credits: first released
// positions, then positions after all that were ever claimed. It waits until
// half of the credits are used up, so that one row claims many messages.
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
		spans := n.released(want)
		if len(spans) > 0 {
			r.entries = append(r.entries, entry{kind: kindTake, token: n.token, body: encodeSpans(spans)})
		}
		for _, s := range spans {
			want -= n.filled(s)
		}
		// A claim of released positions may conflict with other nodes', a claim
		// after the top never. In a partition the latter must not overtake the
		// former.
		if n.partition == nil || len(spans) == 0 {
			n.planNext(r, want)
		}
	}
}

// planNext claims positions after all that were ever claimed: want positions that may hold messages, and the empty
// ones before them. A claim is a number of positions; where it begins depends on the claims that other nodes make
// meanwhile. A large gap would take too many positions: it is marked as done first, up to its end.
func (n *shardNode) planNext(r *request, want int64) {
	empty := n.emptyNext()
	if empty <= largestEmptyClaim {
		r.claim = want + empty
		return
	}
	r.entries = append(r.entries, entry{kind: kindPurge, token: n.token, hi: n.empty.hi})
}

// largestEmptyClaim is the maximum number of empty positions in a claim.
const largestEmptyClaim = 1000

// emptyNext is how many empty positions come next after the top. A transaction with an old snapshot may leave millions, and a
// failover 10^13.
func (n *shardNode) emptyNext() int64 {
	if n.empty.lo > n.state.top+1 {
		return 0
	}
	return max(0, n.empty.hi-n.state.top)
}

// messagesIn is how many messages there may be in the span, up to the known end of the
// stream.
func (n *shardNode) messagesIn(s span) int64 {
	s.hi = min(s.hi, n.head)
	return max(0, n.filled(s))
}

// filled is how many positions of the span are not known to be empty.
func (n *shardNode) filled(s span) int64 {
	return s.size() - max(0, span{max(s.lo, n.empty.lo), min(s.hi, n.empty.hi)}.size())
}

// wanted is how many positions to claim: as many as there are messages for, and
// up to Ahead more, after the end of the stream. Messages that come to these
// cost no further claim, but other nodes do not get them, even if they are
// idle. These positions may stay empty for long, so they do not delay the claim
// of messages that exist.
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

// unclaimed is how many messages no node has claimed, as far as known.
func (n *shardNode) unclaimed() int64 {
	messages := n.messagesIn(span{n.state.top + 1, n.head})
	for _, g := range n.state.live {
		if g.owner == 0 {
			messages += n.messagesIn(g.span)
		}
	}
	return messages
}

// released returns the first released positions: at most that many that are not known
// to be empty.
func (n *shardNode) released(most int64) (spans []span) {
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

// demand is how many messages the Consumers would take: the free credits of
// those that have not stalled.
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

// atHand is how many messages the part has for that, read or not. It includes the
// deferred messages that are being read: without them the Node would claim more
// and more due messages until the first are read.
func (n *shardNode) atHand() int64 {
	have := int64(len(n.ready) + len(n.again) + len(n.fetch) + n.fetching + n.recordingFirst)
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

// planTakeover ends the leases that other nodes did not renew.
func (n *shardNode) planTakeover(r *request, now time.Time) {
	if len(n.node.consumers) == 0 {
		return
	}
	for _, token := range n.expired(now) {
		r.entries = append(r.entries, entry{kind: kindEnd, token: token, hi: n.head, until: n.state.leases[token]})
	}
}

// expired returns the leases of other nodes that are over. PostgreSQL's clock
// is at least as far as our estimate of it; the database checks again before it
// ends a lease.
func (n *shardNode) expired(now time.Time) (tokens []int64) {
	at := n.dbNow.Add(now.Sub(n.heardAt))
	for token, until := range n.state.leases {
		if token != n.token && until.Before(at) {
			tokens = append(tokens, token)
		}
	}
	return tokens
}
