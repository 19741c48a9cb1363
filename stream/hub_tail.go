package stream

import (
	"cmp"
	"slices"
)

// heldOverhead is what a message takes in memory beside what it points to, in
// bytes, with its share of what holds it.
const heldOverhead = 128

// held is what m takes in memory.
func (m *Message) held() int {
	return heldOverhead + len(m.Key) + len(m.Headers) + len(m.Payload)
}

// tail is the last messages of a stream that were read: all with from <
// position <= to. It keeps them as the pages in which they were read, which
// never change, so that pages handed out and pages evicted share nothing that
// would have to be copied or kept.
type tail struct {
	limit    int // of bytes
	from, to int64
	pages    []tailPage
	bytes    int
}

type tailPage struct {
	messages []Message
	bytes    int
	history  int64 // the base of the history in which it was read, if it was
}

func (p tailPage) last() int64 { return p.messages[len(p.messages)-1].Position }

// extend adds the page that was read after position after, which is not below
// to. If it does not join on, it is a new tail: the messages in between were
// not read.
func (t *tail) extend(after int64, p tailPage) {
	if len(p.messages) == 0 {
		return
	}
	if after != t.to {
		t.pages, t.bytes, t.from = nil, 0, after
	}
	t.pages = append(t.pages, p)
	t.bytes += p.bytes
	t.to = p.last()
	t.shrink(t.limit)
}

// shrink evicts the first pages of a tail that holds more than that, and reports whether there
// were any.
func (t *tail) shrink(limit int) bool {
	evicted := 0
	for t.bytes > limit {
		t.bytes -= t.pages[evicted].bytes
		t.from = t.pages[evicted].last()
		evicted++
	}
	t.evict(evicted)
	return evicted > 0
}

// forget evicts the pages up to that position.
func (t *tail) forget(upto int64) {
	evicted := 0
	for evicted < len(t.pages) && t.pages[evicted].last() <= upto {
		t.bytes -= t.pages[evicted].bytes
		t.from = t.pages[evicted].last()
		evicted++
	}
	t.evict(evicted)
}

func (t *tail) evict(pages int) {
	clear(t.pages[:pages]) // the array outlives them
	t.pages = t.pages[pages:]
}

// notIn returns what a page that was read from position after on has beyond the tail, which
// may have been extended meanwhile.
func (t *tail) notIn(after int64, p tailPage) (from int64, rest tailPage) {
	if t.to <= after {
		return after, p
	}
	at, _ := slices.BinarySearchFunc(p.messages, t.to+1, func(m Message, target int64) int {
		return cmp.Compare(m.Position, target)
	})
	rest.messages = p.messages[at:]
	for i := range rest.messages {
		rest.bytes += rest.messages[i].held()
	}
	return t.to, rest
}

// after returns the messages after position after, which is from <= after <
// to: as many whole pages as the bounds allow, or what is left of the first.
func (t *tail) after(after int64, maxMessages, maxBytes int) []Message {
	i, _ := slices.BinarySearchFunc(t.pages, after+1, func(p tailPage, target int64) int {
		return cmp.Compare(p.last(), target)
	})
	first := t.pages[i].messages
	at, _ := slices.BinarySearchFunc(first, after+1, func(m Message, target int64) int {
		return cmp.Compare(m.Position, target)
	})
	first = first[at:]
	messages, bytes, end := len(first), t.pages[i].bytes, i+1
	for ; end < len(t.pages); end++ {
		messages += len(t.pages[end].messages)
		bytes += t.pages[end].bytes
		if messages > maxMessages || bytes > maxBytes {
			break
		}
	}
	if end == i+1 {
		return slices.Clip(first)
	}
	all := slices.Clone(first)
	for _, p := range t.pages[i+1 : end] {
		all = append(all, p.messages...)
	}
	return all
}
