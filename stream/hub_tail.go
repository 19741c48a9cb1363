package stream

import (
	"cmp"
	"slices"
)

// heldOverhead is the memory of a message in bytes, without the data that it points
// to, but with its share of its containers.
const heldOverhead = 128

// held is the memory that m takes, in bytes.
func (m *Message) held() int {
	return heldOverhead + len(m.Key) + len(m.Headers) + len(m.Payload)
}

// tail holds the last messages of a stream that were read: all with from < position
// <= to. It keeps the pages in which they were read. Pages never change, so
// delivering a page needs no copy, and evicting one frees its memory independently
// of the others.
type tail struct {
	limit    int // of bytes
	from, to int64
	pages    []tailPage
	bytes    int
}

type tailPage struct {
	messages []Message
	bytes    int
	history  int64 // the base of the history in which it was read; 0 if it was not read
}

func (p tailPage) first() int64 { return p.messages[0].Position }
func (p tailPage) last() int64  { return p.messages[len(p.messages)-1].Position }

// fits reports whether the page has messages, and no more than the Hub returns at a time.
func (p tailPage) fits(cfg *HubConfig) bool {
	return len(p.messages) > 0 && p.bytes <= cfg.PageBytes && len(p.messages) <= cfg.PageMessages
}

// from returns the part of the page that begins at that position.
func (p tailPage) from(position int64) (rest tailPage) {
	if position <= p.first() {
		return p
	}
	at, _ := slices.BinarySearchFunc(p.messages, position, func(m Message, target int64) int {
		return cmp.Compare(m.Position, target)
	})
	rest.messages = p.messages[at:]
	for i := range rest.messages {
		rest.bytes += rest.messages[i].held()
	}
	return rest
}

// extend adds the page that was read after position after, which is at least to. If
// there is a gap, because the messages in between were not read, the tail begins
// anew with this page.
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

// shrink evicts the first pages until the tail has at most limit bytes, and reports whether it
// evicted any.
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
	clear(t.pages[:pages]) // the array outlives them, so the memory must be released
	t.pages = t.pages[pages:]
}

// notIn returns the part of a page, read after position after, that is not in the tail,
// which may have been extended meanwhile.
func (t *tail) notIn(after int64, p tailPage) (from int64, rest tailPage) {
	if t.to <= after {
		return after, p
	}
	return t.to, p.from(t.to + 1)
}

// after returns the messages after position after, which is from <= after < to: as
// many whole pages as the bounds allow, or at least the rest of the first one.
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
