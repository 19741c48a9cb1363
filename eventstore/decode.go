package eventstore

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// reader reads one page. All events of a page arrive as one value, which is copied
// from the connection once and shared by the events: a page needs a few allocations,
// whatever its number of events.
type reader struct {
	params params
	probes probes
	rows   []rawEvent
	found  []int64 // the positions that the rows should have
	page   []byte
	tags   int
	result pageResult
	passed bool // the statement cannot answer this request: use the general one
}

// rawEvent is the location of an event in the page.
type rawEvent struct {
	position         int64
	start, data, end int
}

var readers = sync.Pool{New: func() any { return &reader{} }}

// keepReader is the size up to which a reader's parameter buffers are reused for the
// next page. There are as many readers as pages were ever read at the same time.
const keepReader = 2 * streamBytes

func (p *reader) free() {
	p.page = nil
	if cap(p.probes.tags)+cap(p.probes.others) > keepReader {
		p.probes = probes{}
	}
	p.params.reset(keepReader)
	readers.Put(p)
}

// encodeTagged returns the parameters of the function events_N_tagged.
func (p *reader) encodeTagged(r *pageRequest, byPosition bool) [][]byte {
	item := &r.query.Items[0]
	to := &p.params
	to.reset(keepParams)
	to.int8(r.after)
	to.int8(r.before)
	to.int4(int32(r.limit))
	to.int8(int64(r.bytes))
	to.bool(byPosition)
	to.bool(r.head)
	to.int8(tagHash(item.Tags[0]))
	if len(item.Types) == 0 {
		to.null()
	} else {
		to.int4(typeHash(item.Types[0]))
	}
	return to.values()
}

// encodePage returns the parameters of the function events_N_page.
func (p *reader) encodePage(r *pageRequest, byPosition bool, in searching, known *tagFrequency) [][]byte {
	everything := r.query.everything()
	p.probes.reset()
	if !everything {
		p.probes.add(&r.query, known)
	}
	if p.probes.n < manyProbes && p.probes.tagged == p.probes.n {
		in.span = 0 // every row that the index returns matches
	}
	to := &p.params
	to.reset(keepParams)
	to.int8(r.after)
	to.int8(r.before)
	to.int4(int32(r.limit))
	to.int8(int64(r.bytes))
	to.bool(byPosition)
	to.bool(r.backwards)
	to.bool(everything)
	to.int8(in.span)
	to.int4(in.patience)
	n := p.probes.n
	to.array(oidInt8, n, p.probes.drivers)
	to.array(oidText, n, p.probes.others)
	to.array(oidInt8, n, p.probes.signatures)
	to.array(oidInt4, n, p.probes.typeHashes)
	to.array(oidText, n, p.probes.types)
	return to.values()
}

// row decodes the result row. The values are valid only during the call.
func (p *reader) row(values [][]byte) {
	p.rows, p.found, p.tags, p.result = p.rows[:0], p.found[:0], 0, pageResult{}
	p.passed = values[1] == nil
	if values[0] != nil {
		p.result.head = bigint(values[0])
	}
	for at := arrayHeader; at < len(values[1]); at += 12 {
		p.found = append(p.found, bigint(values[1][at+4:]))
	}
	p.page = append([]byte(nil), values[2]...)
	if len(values) > 3 && values[3] != nil {
		p.result.searched = bigint(values[3])
	}
	p.split()
}

// The format of an event in a page: see migrate/sql.
const (
	packedJSON  = 1
	packedArray = 2
	packedHead  = 8 + 8 + 1 + 4
)

// split finds where each event is.
func (p *reader) split() {
	for at := 0; at < len(p.page); {
		e := rawEvent{position: int64(binary.BigEndian.Uint64(p.page[at:])), start: at}
		size := int(binary.BigEndian.Uint32(p.page[at+17:]))
		var tags int
		if p.page[at+16]&packedArray != 0 {
			at, tags = skipArray(p.page, at+packedHead)
		} else {
			at, tags = skipPacked(p.page, at+packedHead)
		}
		p.tags += tags
		e.data, e.end = at, at+size
		at = e.end
		p.rows = append(p.rows, e)
	}
}

func skipPacked(page []byte, at int) (end, tags int) {
	tags = int(page[at+2])
	at += 3 + int(page[at]) + int(page[at+1])
	for range tags {
		at += 2 + int(binary.BigEndian.Uint16(page[at:]))
	}
	return at, tags
}

func skipArray(page []byte, at int) (end, tags int) {
	n := int(binary.BigEndian.Uint32(page[at+12:]))
	at += arrayHeader
	for range n {
		at += 4 + int(binary.BigEndian.Uint32(page[at:]))
	}
	return at, n - 2
}

// inOrder sorts the rows by position, and reports whether they are the first of the
// positions that the index returned: all of them, unless the page has reached its
// limit of bytes.
func (p *reader) inOrder(r *pageRequest) bool {
	order := func(a, b int64) int {
		if r.backwards {
			a, b = b, a
		}
		return cmp.Compare(a, b)
	}
	if !slices.IsSortedFunc(p.found, order) {
		slices.SortFunc(p.found, order)
	}
	byPosition := func(a, b rawEvent) int { return order(a.position, b.position) }
	if !slices.IsSortedFunc(p.rows, byPosition) {
		slices.SortFunc(p.rows, byPosition)
	}
	if len(p.rows) > len(p.found) || len(p.rows) == 0 && len(p.found) > 0 {
		return false
	}
	for i := range p.rows {
		if p.rows[i].position != p.found[i] {
			return false
		}
	}
	return true
}

// epoch is the zero of PostgreSQL's timestamps, in microseconds of Unix time.
const epoch = 946_684_800_000_000

// finish makes events of the rows that match.
func (p *reader) finish(r *pageRequest) ([]Event, pageResult) {
	found := p.result
	found.candidates, found.cut = len(p.rows), len(p.rows) < len(p.found)
	if len(p.rows) == 0 {
		return nil, found
	}
	found.last = p.rows[len(p.rows)-1].position
	// Data and strings do not overlap in these bytes: a caller that changes the data,
	// although it must not, does not change the strings.
	text := unsafe.String(unsafe.SliceData(p.page), len(p.page))
	events := make([]Event, 0, len(p.rows))
	tags := make([]string, 0, p.tags)
	for i := range p.rows {
		raw := &p.rows[i]
		e := Event{
			Position: raw.position,
			Time:     time.UnixMicro(int64(binary.BigEndian.Uint64(p.page[raw.start+8:])) + epoch),
			JSON:     p.page[raw.start+16]&packedJSON != 0,
			Data:     p.page[raw.data:raw.end:raw.end],
		}
		first := len(tags)
		if head := raw.start + packedHead; p.page[raw.start+16]&packedArray != 0 {
			tags = e.unpackArray(text[head:raw.data], tags)
		} else {
			tags = e.unpack(text[head:raw.data], tags)
		}
		e.Tags = tags[first:len(tags):len(tags)]
		if r.query.matches(e.Type, e.Tags) {
			events = append(events, e)
		}
	}
	return events, found
}

// unpack sets type and id, and appends the tags.
func (e *Event) unpack(packed string, tags []string) []string {
	name, id := 3+int(packed[0]), 3+int(packed[0])+int(packed[1])
	e.Type, e.ID = packed[3:name], packed[name:id]
	for rest := packed[id:]; rest != ""; {
		end := 2 + int(rest[0])<<8 + int(rest[1])
		tags = append(tags, rest[2:end])
		rest = rest[end:]
	}
	return tags
}

// unpackArray does the same for an event in PostgreSQL's binary array format.
func (e *Event) unpackArray(array string, tags []string) []string {
	rest := array[arrayHeader:]
	next := func() string {
		end := 4 + int(uint32(rest[0])<<24|uint32(rest[1])<<16|uint32(rest[2])<<8|uint32(rest[3]))
		element := rest[4:end]
		rest = rest[end:]
		return element
	}
	e.Type, e.ID = next(), next()
	for rest != "" {
		tags = append(tags, next())
	}
	return tags
}
