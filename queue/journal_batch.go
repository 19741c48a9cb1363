package queue

import (
	"slices"
	"time"
)

// batch is what one write records (group commit).
type batch struct {
	settled []*settlement
	gaps    []span    // positions without a message
	free    []segment // released
	tried   []try
}

// settlement is the outcome of one message.
type settlement struct {
	item *item
	put  *sidePut  // how it is deferred; nil: it is done
	to   *outcomes // nil: no caller waits
	at   int       // which of the outcomes
	// consumer whose credit it uses until it is answered, and the part it came
	// from; both may be nil.
	consumer *Consumer
	part     *shardNode
}

// empty reports whether there is nothing to record.
func (b *batch) empty() bool { return len(b.settled)+len(b.gaps)+len(b.free)+len(b.tried) == 0 }

// take moves what is in other to b.
func (b *batch) take(other *batch) {
	b.settled = append(b.settled, other.settled...)
	b.gaps = append(b.gaps, other.gaps...)
	b.free = append(b.free, other.free...)
	b.tried = append(b.tried, other.tried...)
	other.clear()
}

func (b *batch) clear() {
	clear(b.settled) // free the messages
	clear(b.tried)
	b.settled, b.gaps, b.free, b.tried = b.settled[:0], b.gaps[:0], b.free[:0], b.tried[:0]
}

// entries returns the journal rows of the batch, for the token.
func (b *batch) entries(token int64) (entries []entry) {
	entries = b.tries(token)
	done := slices.Clone(b.gaps)
	for _, s := range b.settled {
		if !s.item.deferred {
			done = append(done, span{s.item.Position, s.item.Position})
		}
	}
	if len(done) > 0 {
		entries = append(entries, entry{kind: kindDone, token: token, body: encodeSpans(coalesce(done))})
	}
	free := make(map[tally][]span)
	for _, g := range b.free {
		free[g.tally] = append(free[g.tally], g.span)
	}
	return append(entries, counted(kindFree, token, free)...)
}

// counted returns rows of a kind for positions with these tallies.
func counted(k kind, token int64, positions map[tally][]span) (entries []entry) {
	for t, spans := range positions {
		entries = append(entries, entry{kind: k, token: token, lo: int64(t.attempts), hi: int64(t.unbegun), body: encodeSpans(coalesce(spans))})
	}
	return entries
}

// side returns the changes of the batch to deferred messages, or nil.
func (b *batch) side() *sideRequest {
	var r sideRequest
	for _, s := range b.settled {
		switch {
		case s.put != nil:
			r.Put = append(r.Put, *s.put)
		case s.item.deferred:
			r.Done = append(r.Done, s.item.Position)
		}
	}
	for it, t := range b.lastTried() {
		if it.deferred {
			r.Tried = append(r.Tried, sideTry{it.Position, t.attempts, t.unbegun})
		}
	}
	if len(r.Put)+len(r.Done)+len(r.Tried) == 0 {
		return nil
	}
	return &r
}

// resolve answers the settlements for which verdict has an answer, and keeps
// the others. The caller holds the Node's mu.
func (b *batch) resolve(verdict func(*settlement) (err error, ok bool)) {
	b.settled = slices.DeleteFunc(b.settled, func(s *settlement) bool {
		err, ok := verdict(s)
		if ok {
			s.resolve(err)
		}
		return ok
	})
}

func (s *settlement) resolve(err error) {
	if s.consumer != nil {
		s.consumer.outstanding--
		s.consumer.settling--
		s.part.waiting--
		s.consumer.settledAt = time.Now()
		s.consumer = nil
	}
	if s.to != nil {
		s.to.report(s.at, err)
	}
}
