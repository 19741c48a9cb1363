package queue

import "slices"

// An attempt is a delivery to a Consumer. If it ends without an acknowledgement it is
// recorded soon after, together with other rows. An attempt that was under way when
// its node died is not counted, but its message is suspect from then on: each further
// delivery is recorded before it is made, so that a message that kills its consumers
// becomes a dead letter.

// try is a number of deliveries of a message that is to be recorded.
type try struct {
	item     *item
	attempts int
	first    bool // the last of these deliveries is made once this is recorded
}

// recordFirst records the next delivery of a suspect message; once that is
// recorded, the message becomes ready. The caller holds mu.
func (n *shardNode) recordFirst(it *item) {
	n.pending.tried = append(n.pending.tried, try{it, it.attempts + 1, true})
	n.recordingFirst++
	n.later(0)
}

// failed adds to the next write how often a message was delivered that the node
// keeps. The caller holds mu.
func (n *shardNode) failed(it *item) {
	if it.token == n.token && it.recorded < it.attempts {
		n.pending.tried = append(n.pending.tried, try{it, it.attempts, false})
		n.later(n.cfg.LaterEvery)
	}
}

// tried is called once the attempts are recorded. The caller holds mu.
func (n *shardNode) tried(t try) {
	if t.item.token != n.token {
		return
	}
	t.item.recorded = max(t.item.recorded, t.attempts)
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
func (it *item) mustRecordFirst() bool { return it.suspect && it.recorded <= it.attempts }

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
	// Rows with higher numbers come later, so that the highest number of a message wins.
	slices.SortFunc(entries, func(a, b entry) int { return int(a.lo - b.lo) })
	return entries
}
