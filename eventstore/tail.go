package eventstore

import "sort"

// basis names the history of a store up to a position: by the batch that ends
// there. The zero basis is a history of which nothing is relied on.
type basis struct {
	position       int64
	writer, number int64
}

// maxTailBytes bounds the memory of a tail, of which one batch may be more.
const maxTailBytes = 16 << 20

// maxTailLookups bounds what the check of one call may cost the committer.
const maxTailLookups = 50_000

// tail is the last events of a store that this process has written, in memory:
// all of the store's with start < position <= end. It decides conditions of
// which nothing below its start is in question.
//
// It belongs to the committer.
type tail struct {
	maxEvents int
	start     int64
	end       basis
	segments  []*segment // oldest first
	events    int
	bytes     int
	spare     []*segment
	// epoch changes when what was learnt before must not be relied on: with
	// every new connection to PostgreSQL, for after a failover positions repeat.
	epoch uint64
}

// segment is the events of one batch: event i has the position first + i.
type segment struct {
	facts tailIndex
	first int64
	end   basis
}

// drop forgets everything.
func (t *tail) drop() {
	t.restart(basis{})
	t.epoch++
}

// restart forgets the events, and has the tail begin after at.
func (t *tail) restart(at basis) {
	for _, s := range t.segments {
		t.recycle(s)
	}
	clear(t.segments)
	t.segments, t.events, t.bytes = t.segments[:0], 0, 0
	t.start, t.end = at.position, at
}

// adopt reports whether held positions that were learnt from the history up to
// b may be relied on beside what is in the tail. A history that goes on after
// the tail's end, for others have written, becomes the tail's own.
func (t *tail) adopt(b basis) bool {
	if b.position == 0 || b == t.end {
		return true
	}
	if b.position > t.end.position {
		t.restart(b)
		return true
	}
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].end.position >= b.position })
	return i < len(t.segments) && t.segments[i].end == b
}

// extend adds a batch, of which the store's head stood at head when it was
// written.
func (t *tail) extend(s *segment, head int64, end basis) {
	if head != t.end.position {
		t.restart(basis{})
		t.start = head
	}
	s.first, s.end = head+1, end
	t.segments = append(t.segments, s)
	t.events += len(s.facts.events)
	t.bytes += s.facts.bytes
	t.end = end
	evicted := 0
	for ; (t.events > t.maxEvents || t.bytes > maxTailBytes) && evicted < len(t.segments)-1; evicted++ {
		old := t.segments[evicted]
		t.events -= len(old.facts.events)
		t.bytes -= old.facts.bytes
		t.start = old.end.position
		t.recycle(old)
	}
	if evicted > 0 {
		n := copy(t.segments, t.segments[evicted:])
		clear(t.segments[n:])
		t.segments = t.segments[:n]
	}
}

// segment returns an empty one.
func (t *tail) segment() *segment {
	if n := len(t.spare); n > 0 {
		s := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return s
	}
	return &segment{}
}

func (t *tail) recycle(s *segment) {
	if len(t.spare) < 16 {
		s.facts.reset()
		t.spare = append(t.spare, s)
	}
}

// check decides a call as far as the tail can: it returns the conflict, or has
// the call hold up to the tail's end.
func (t *tail) check(c *call) *ConflictError {
	from := c.from(t.epoch)
	if from < t.start || from >= t.end.position {
		return nil
	}
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].end.position > from })
	if (len(t.segments)-i)*c.query.lookups > maxTailLookups {
		return nil // PostgreSQL has one index for all of them
	}
	for _, s := range t.segments[i:] {
		if at := s.facts.find(&c.query, int(max(0, from-s.first+1))); at >= 0 {
			return &ConflictError{Position: s.first + int64(at), Type: s.facts.events[at].eventType}
		}
	}
	c.hold(t.end.position, t.epoch)
	return nil
}
