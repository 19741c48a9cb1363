package queue

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"
)

// kind of a row of the journal. The numbers are in the SQL too.
type kind int16

const (
	kindReset          kind = 1 + iota // state of all rows before, in body (compaction)
	kindLease                          // token's lease lasts until that time
	kindEnd                            // token's lease is over; its positions up to hi may have been delivered
	kindNext                           // token claims lo to hi, after all positions ever claimed
	kindTake                           // token claims released positions
	kindDone                           // positions are done
	kindFree                           // token releases positions; lo and hi are their tally
	kindPurge                          // unclaimed positions in body, and all up to hi that were never claimed, are done
	kindPause                          // nothing is delivered if lo is 1
	kindNote                           // no effect: shows that the token wrote, where no other row does (see plan)
	kindLeaseExclusive                 // as kindLease, if no other token has one; stored as kindLease
	kindTried                          // lo and hi are the tally of positions of the token

	// Not in the journal: additional rows of queue_write's answer.
	kindDue  kind = 101
	kindSide kind = 102
)

// entry is one row of the journal.
type entry struct {
	sequence      int64
	kind          kind
	token, lo, hi int64
	until         time.Time
	body          []byte
}

// segment is a range of positions that are not done and have the same attributes.
type segment struct {
	span
	owner   int64 // token that has claimed them; 0 if none
	tally         // as far as recorded
	suspect bool  // a node that had them died, perhaps because of them
}

// tally is how often a message was delivered.
type tally struct {
	attempts int // deliveries that have begun
	unbegun  int // those that have not
}

// deliveries is how often the message was delivered.
func (t tally) deliveries() int { return t.attempts + t.unbegun }

// tally is that of an entry which says how often positions were delivered.
func (e *entry) tally() tally { return tally{int(e.lo), int(e.hi)} }

// over returns a segment with the same attributes and other positions.
func (g segment) over(s span) segment {
	g.span = s
	return g
}

// like reports whether two segments have the same attributes.
func (g segment) like(other segment) bool {
	return g.over(span{}) == other.over(span{})
}

// state is the fold over the journal. It is the same in all processes that have
// read up to the same row.
type state struct {
	seen   int64     // sequence of the last entry
	base   int64     // sequence of the first entry
	rows   int64     // number of entries from that one on
	top    int64     // highest position ever claimed
	live   []segment // in order; positions up to top that are in none are done
	leases map[int64]time.Time
	last   map[int64]mark
	paused bool
}

// mark is the last entry that a token wrote itself, and when its lease ends or
// ended. With it a node finds out whether a request was written whose answer
// was lost, even if the lease is over and the journal was compacted.
type mark struct {
	sequence int64
	until    time.Time
}

// keepMarks is how long the marks of ended leases are kept: longer than their
// nodes need to find out that the lease is over.
const keepMarks = 10 * time.Minute

// clone returns a state that does not change with s.
func (s *state) clone() *state {
	c := *s
	c.live, c.leases, c.last = slices.Clone(s.live), maps.Clone(s.leases), maps.Clone(s.last)
	return &c
}

// apply adds one entry.
func (s *state) apply(e entry) error {
	s.seen = e.sequence
	s.rows++
	spans, err := []span(nil), error(nil)
	if e.kind == kindTake || e.kind == kindDone || e.kind == kindFree || e.kind == kindPurge || e.kind == kindTried {
		if spans, err = decodeSpans(e.body); err != nil {
			return fmt.Errorf("entry %d: %w", e.sequence, err)
		}
	}
	if e.kind == kindReset {
		return s.reset(e)
	}
	if e.kind == kindLease {
		s.leases[e.token] = e.until
	}
	if e.token != 0 && e.kind != kindEnd { // other nodes may write this kind
		s.last[e.token] = mark{e.sequence, s.leases[e.token]}
	}
	switch e.kind {
	case kindEnd:
		s.end(e.token, e.hi)
	case kindNext:
		s.top = e.hi
		s.live = appendSegment(s.live, segment{span: span{e.lo, e.hi}, owner: e.token})
	case kindTake:
		s.each(spans, func(g segment) (segment, bool) { g.owner = e.token; return g, true })
	case kindDone:
		s.each(spans, func(g segment) (segment, bool) { return g, false })
	case kindFree:
		s.each(spans, func(g segment) (segment, bool) { g.owner, g.tally = 0, e.tally(); return g, true })
	case kindTried:
		s.each(spans, func(g segment) (segment, bool) {
			if g.owner == e.token {
				g.tally = e.tally()
			}
			return g, true
		})
	case kindPurge:
		s.each(spans, func(g segment) (segment, bool) { return g, false })
		s.top = max(s.top, e.hi)
	case kindPause:
		s.paused = e.lo == 1
	}
	return nil
}

// end releases the positions of the token. If other nodes end its lease, head is
// the end of the stream: positions up to it become suspect.
func (s *state) end(token, head int64) {
	delete(s.leases, token)
	for _, at := range s.owned(token) {
		s.edit(span{at.lo, min(at.hi, head)}, func(g segment) (segment, bool) {
			g.owner, g.suspect = 0, true
			return g, true
		})
		s.edit(span{max(at.lo, head+1), at.hi}, func(g segment) (segment, bool) { g.owner = 0; return g, true })
	}
}

// each edits several spans.
func (s *state) each(spans []span, change func(segment) (segment, bool)) {
	for _, at := range spans {
		s.edit(at, change)
	}
}

// edit changes the parts of segments within the span, or removes them if change
// returns false.
func (s *state) edit(at span, change func(segment) (segment, bool)) {
	from := sort.Search(len(s.live), func(i int) bool { return s.live[i].hi >= at.lo })
	to := from
	var changed []segment
	if from > 0 { // may be joined with the next segment
		from--
		changed = append(changed, s.live[from])
	}
	for ; to < len(s.live) && s.live[to].lo <= at.hi; to++ {
		g := s.live[to]
		if g.lo < at.lo {
			left := g
			left.hi = at.lo - 1
			changed = appendSegment(changed, left)
			g.lo = at.lo
		}
		right := g
		g.hi = min(g.hi, at.hi)
		if g, keep := change(g); keep {
			changed = appendSegment(changed, g)
		}
		if right.lo = at.hi + 1; right.lo <= right.hi {
			changed = appendSegment(changed, right)
		}
	}
	if to < len(s.live) {
		changed = appendSegment(changed, s.live[to])
		to++
	}
	s.live = slices.Replace(s.live, from, to, changed...)
}

// appendSegment appends g, or extends the last segment by it.
func appendSegment(all []segment, g segment) []segment {
	if n := len(all); n > 0 {
		if last := &all[n-1]; last.hi+1 == g.lo && last.like(g) {
			last.hi = g.hi
			return all
		}
	}
	return append(all, g)
}

// owned returns the segments of the owner in order; owner 0 means released positions.
func (s *state) owned(owner int64) (all []segment) {
	for _, g := range s.live {
		if g.owner == owner {
			all = append(all, g)
		}
	}
	return all
}

// has reports whether the token has the position.
func (s *state) has(token, position int64) bool {
	g, ok := s.find(position)
	return ok && g.owner == token
}

// done reports whether the position is done.
func (s *state) done(position int64) bool {
	_, live := s.find(position)
	return !live && position <= s.top
}

func (s *state) find(position int64) (segment, bool) {
	i := sort.Search(len(s.live), func(i int) bool { return s.live[i].hi >= position })
	if i == len(s.live) || s.live[i].lo > position {
		return segment{}, false
	}
	return s.live[i], true
}

// snapshot is a state as the body of a kindReset entry.
type snapshot struct {
	Top    int64           `json:"top"`
	Live   [][6]int64      `json:"live"` // lo, hi, owner, attempts, 1 if suspect, unbegun
	Leases map[int64]int64 `json:"leases"`
	// Last has the sequence and the end of the lease for each token.
	Last   map[int64][2]int64 `json:"last"`
	Paused bool               `json:"paused"`
}

// snapshot encodes the state; now is PostgreSQL's time.
func (s *state) snapshot(now time.Time) ([]byte, error) {
	out := snapshot{Top: s.top, Leases: make(map[int64]int64), Last: make(map[int64][2]int64), Paused: s.paused}
	for token, m := range s.last {
		if _, lasts := s.leases[token]; lasts || now.Sub(m.until) < keepMarks {
			out.Last[token] = [2]int64{m.sequence, m.until.UnixMicro()}
		}
	}
	for _, g := range s.live {
		suspect := int64(0)
		if g.suspect {
			suspect = 1
		}
		out.Live = append(out.Live, [6]int64{g.lo, g.hi, g.owner, int64(g.attempts), suspect, int64(g.unbegun)})
	}
	for token, until := range s.leases {
		out.Leases[token] = until.UnixMicro()
	}
	return json.Marshal(out)
}

// reset replaces the state by that in the entry; an entry without a body means an empty state.
func (s *state) reset(e entry) error {
	in := snapshot{}
	if len(e.body) > 0 {
		if err := json.Unmarshal(e.body, &in); err != nil {
			return fmt.Errorf("entry %d: %w", e.sequence, err)
		}
	}
	*s = state{
		seen: e.sequence, base: e.sequence, rows: 1, top: in.Top, paused: in.Paused,
		leases: make(map[int64]time.Time), last: make(map[int64]mark),
	}
	for _, g := range in.Live {
		s.live = append(s.live, segment{span{g[0], g[1]}, g[2], tally{int(g[3]), int(g[5])}, g[4] == 1})
	}
	for token, until := range in.Leases {
		s.leases[token] = time.UnixMicro(until)
	}
	for token, m := range in.Last {
		s.last[token] = mark{m[0], time.UnixMicro(m[1])}
	}
	return nil
}

// spansOf returns the positions of segments.
func spansOf(segments []segment) []span {
	spans := make([]span, len(segments))
	for i, g := range segments {
		spans[i] = g.span
	}
	return coalesce(spans)
}

// insertSegment inserts g in order.
func insertSegment(all []segment, g segment) []segment {
	at := sort.Search(len(all), func(i int) bool { return all[i].lo > g.lo })
	return slices.Insert(all, at, g)
}
