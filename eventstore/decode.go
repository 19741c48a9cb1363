package eventstore

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// reader decodes one page. What the events hold is copied from the connection
// into one piece of memory that all events of the page share, so that a page
// takes a handful of allocations however many events it has.
type reader struct {
	params params
	probes probes
	rows   []rawEvent
	buf    []byte
	tags   int
	head   int64
	found  []int64 // the positions that the rows should have
}

// rawEvent is a row, with where it begins and its values end in the reader's
// buffer; tags are there as they travel.
type rawEvent struct {
	position, micros                 int64
	json                             bool
	start, eventType, id, tags, data int
	tagCount                         int
}

var readers = sync.Pool{New: func() any { return &reader{} }}

// keepReader is the most memory that a reader keeps, of each of its buffers,
// for the next page: there are as many as pages were ever read at once.
const keepReader = 2 * streamBytes

func (p *reader) free() {
	if cap(p.buf) > keepReader {
		p.buf = nil
	}
	if cap(p.probes.tags)+cap(p.probes.others) > keepReader {
		p.probes = probes{}
	}
	p.params.reset(keepReader)
	p.found = nil
	readers.Put(p)
}

// encode returns the parameters of a store's read.
func (p *reader) encode(r *pageRequest, byPosition bool, known *popular) [][]byte {
	everything := len(r.query.Items) == 0
	for i := range r.query.Items {
		item := &r.query.Items[i]
		everything = everything || len(item.Types) == 0 && len(item.Tags) == 0
	}
	p.probes.reset()
	if !everything {
		p.probes.add(&r.query, known)
	}
	to := &p.params
	to.reset(keepParams)
	to.int8(r.after)
	to.int8(r.before)
	to.int4(int32(r.limit))
	to.int8(int64(r.bytes))
	to.bool(r.backwards)
	to.bool(everything)
	to.bool(byPosition)
	n := p.probes.n
	to.array(oidInt8, n, p.probes.drivers)
	to.array(oidText, n, p.probes.others)
	to.array(oidInt8, n, p.probes.signatures)
	to.array(oidInt4, n, p.probes.typeHashes)
	to.array(oidText, n, p.probes.types)
	return to.values()
}

func (p *reader) begin() {
	p.rows, p.buf, p.tags, p.head, p.found = p.rows[:0], p.buf[:0], 0, 0, nil
}

// row keeps one row. Its values are only valid until the next.
func (p *reader) row(values [][]byte) {
	position := int64(binary.BigEndian.Uint64(values[0]))
	if position <= 0 {
		p.head = -position
		p.found = int8s(values[6])
		return
	}
	e := rawEvent{
		position: position,
		micros:   int64(binary.BigEndian.Uint64(values[1])),
		json:     values[2][0] != 0,
	}
	if len(values[5]) >= arrayHeader {
		e.tagCount = int(binary.BigEndian.Uint32(values[5][12:]))
		p.tags += e.tagCount
	}
	e.start = len(p.buf)
	e.eventType = p.keep(values[3])
	e.id = p.keep(values[4])
	e.tags = p.keep(values[5])
	e.data = p.keep(values[6])
	p.rows = append(p.rows, e)
}

func (p *reader) keep(value []byte) (end int) {
	p.buf = append(p.buf, value...)
	return len(p.buf)
}

// inOrder puts the rows into the order of their positions, and reports whether
// they are the first of those that were found: all of them, unless the page has
// a limit of bytes.
func (p *reader) inOrder(r *pageRequest) bool {
	order := func(a, b rawEvent) int {
		if r.backwards {
			a, b = b, a
		}
		return cmp.Compare(a.position, b.position)
	}
	if !slices.IsSortedFunc(p.rows, order) {
		slices.SortFunc(p.rows, order)
	}
	if len(p.rows) > len(p.found) {
		return false
	}
	for i := range p.rows {
		if p.rows[i].position != p.found[i] {
			return false
		}
	}
	return len(p.rows) == len(p.found) || r.bytes > 0 && len(p.rows) > 0
}

// epoch is the zero of PostgreSQL's timestamps, in microseconds of Unix time.
const epoch = 946_684_800_000_000

// finish makes events of the rows that match.
func (p *reader) finish(r *pageRequest) ([]Event, pageResult) {
	found := pageResult{head: p.head, candidates: len(p.rows), cut: len(p.rows) < len(p.found)}
	if len(p.rows) == 0 {
		return nil, found
	}
	found.last = p.rows[len(p.rows)-1].position
	buf := append([]byte(nil), p.buf...)
	// Data and strings are apart in these bytes: who changes the one, although
	// told not to, does not change the other.
	text := unsafe.String(unsafe.SliceData(buf), len(buf))
	events := make([]Event, 0, len(p.rows))
	tags := make([]string, 0, p.tags)
	for i := range p.rows {
		raw := &p.rows[i]
		first := len(tags)
		tags = appendTags(tags, text[raw.id:raw.tags], raw.tagCount)
		e := Event{
			Position: raw.position,
			Time:     time.UnixMicro(raw.micros + epoch),
			Type:     text[raw.start:raw.eventType],
			ID:       text[raw.eventType:raw.id],
			Tags:     tags[first:len(tags):len(tags)],
			Data:     buf[raw.tags:raw.data:raw.data],
			JSON:     raw.json,
		}
		if r.query.matches(e.Type, e.Tags) {
			events = append(events, e)
		}
	}
	return events, found
}

// appendTags appends the elements of an array as it travels.
func appendTags(tags []string, array string, n int) []string {
	at := arrayHeader
	for range n {
		size := int(uint32(array[at])<<24 | uint32(array[at+1])<<16 | uint32(array[at+2])<<8 | uint32(array[at+3]))
		tags = append(tags, array[at+4:at+4+size])
		at += 4 + size
	}
	return tags
}
