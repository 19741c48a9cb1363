package eventstore

import "sort"

// basis identifies the history of a store up to a position, by the batch that ends
// there. No result relies on the zero basis.
type basis struct {
	position       int64
	writer, number int64
}

// maxTailBytes bounds the memory of a tail; a single batch may be larger.
const maxTailBytes = 16 << 20

// maxTailLookups bounds the number of hash lookups for the check of one call.
const maxTailLookups = 50_000

// tail holds the last events of a store in memory. This process has written them, and
// they are all events of the store with start < position <= end. So the tail can check a
// condition that only concerns events after start.
//
// Only the committer uses it.
type tail struct {
	maxEvents int
	start     int64
	end       basis
	segments  []*segment // oldest first
	events    int
	bytes     int
	spare     []*segment
	// epoch changes when held positions become invalid: with every new connection to
	// PostgreSQL, because after a failover it may have another history.
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

// restart forgets the events. The tail then begins after at.
func (t *tail) restart(at basis) {
	for _, s := range t.segments {
		t.recycle(s)
	}
	clear(t.segments)
	t.segments, t.events, t.bytes = t.segments[:0], 0, 0
	t.start, t.end = at.position, at
}

// adopt reports whether held positions from a check of the history up to b are
// consistent with the tail. If that history ends after the tail, because other
// processes have written, the tail restarts there.
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

// extend adds a batch. head is the head of the store before the batch was written.
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

// segment returns an empty segment.
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

// check checks a call against the tail, if the tail reaches back far enough. It returns
// the conflict, or records in the call that nothing conflicts up to the tail's end.
func (t *tail) check(c *call) *ConflictError {
	from := c.from(t.epoch)
	if from < t.start || from >= t.end.position {
		return nil
	}
	i := sort.Search(len(t.segments), func(i int) bool { return t.segments[i].end.position > from })
	if (len(t.segments)-i)*c.query.lookups > maxTailLookups {
		return nil // cheaper in PostgreSQL, which has one index for all segments
	}
	for _, s := range t.segments[i:] {
		if at := s.facts.find(&c.query, int(max(0, from-s.first+1))); at >= 0 {
			return &ConflictError{Position: s.first + int64(at), Type: s.facts.events[at].eventType}
		}
	}
	c.hold(t.end.position, t.epoch)
	return nil
}
