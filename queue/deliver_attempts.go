package queue

import "slices"

// An attempt is a delivery to a Consumer. One that ended without an acknowledgement is
// recorded soon after, in company. One that was under way when its node died is not
// counted, but its message is suspect from then on: each further delivery is
// recorded first, so that one that kills whoever takes it becomes a dead letter.

// try is how often a message was delivered, to be recorded.
type try struct {
	item     *item
	attempts int
	first    bool // the last of these comes once that is recorded
}

// prove has the next delivery of a suspect recorded, and then makes the message
// ready. The caller holds mu.
func (n *shardNode) prove(it *item) {
	n.pending.tried = append(n.pending.tried, try{it, it.attempts + 1, true})
	n.proving++
	n.later(0)
}

// failed has recorded how often a message was delivered that the node keeps. The
// caller holds mu.
func (n *shardNode) failed(it *item) {
	if it.token == n.token && it.recorded < it.attempts {
		n.pending.tried = append(n.pending.tried, try{it, it.attempts, false})
		n.later(n.cfg.LaterEvery)
	}
}

// tried takes in that the attempts are recorded. The caller holds mu.
func (n *shardNode) tried(t try) {
	if t.item.token != n.token {
		return
	}
	t.item.recorded = max(t.item.recorded, t.attempts)
	switch {
	case !t.first:
	case n.finishing:
		n.proving--
		n.giveBack(t.item) // as it is: it is not delivered after all
	default:
		n.proving--
		n.place(t.item)
	}
}

// dropProofs forgets the deliveries that are to be recorded first: there will be
// none. The caller holds mu.
func (n *shardNode) dropProofs() {
	n.pending.tried = slices.DeleteFunc(n.pending.tried, func(t try) bool {
		if t.first {
			n.proving--
		}
		return t.first
	})
}

// unproven reports whether the message's next delivery has to be recorded first.
func (it *item) unproven() bool { return it.suspect && it.recorded <= it.attempts }

// tries returns the rows of the journal that say how often messages of the token
// were delivered.
func (b *batch) tries(token int64) (entries []entry) {
	byAttempts := make(map[int][]span)
	for _, t := range b.tried {
		if !t.item.deferred {
			byAttempts[t.attempts] = append(byAttempts[t.attempts], span{t.item.Position, t.item.Position})
		}
	}
	for attempts, spans := range byAttempts {
		entries = append(entries, entry{kind: kindTried, token: token, lo: int64(attempts), body: encodeSpans(coalesce(spans))})
	}
	// The last word on a message is its highest number.
	slices.SortFunc(entries, func(a, b entry) int { return int(a.lo - b.lo) })
	return entries
}
