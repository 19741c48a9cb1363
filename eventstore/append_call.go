package eventstore

import (
	"context"
	"strings"
	"sync"
)

// Condition makes an append fail if matching events are stored after a position.
type Condition struct {
	// FailIfEventsMatch selects the conflicting events. The zero Query matches
	// every event.
	FailIfEventsMatch Query
	// After is the position of the last event that the decision has taken into
	// account: only events after it can conflict. It need not be the position of a
	// matching event. 0 checks the whole history. If After is past the end of the
	// store, or a failover has lost events up to it, the append fails with
	// ErrHistoryLost.
	After int64
	// WantEvents is the maximum number of matching events in a ConflictError.
	// Defaults to none.
	WantEvents int
}

func (c *Condition) validate() error {
	if c.After < 0 {
		return invalid("condition.after", "%d, want at least 0", c.After)
	}
	return c.FailIfEventsMatch.validate("condition")
}

// call is one append of one caller. The caller's goroutine encodes it, so that
// the single committer only has to concatenate calls.
type call struct {
	events int
	bytes  int
	// Columns of the events, and of their tags: the hash of each tag, and the index of its event.
	types, hashes, signatures, json, ids, tags, data, packed column
	tagHashes                                                column
	tagEvents                                                []int32

	// Types and tags for comparisons in memory: copies, because the caller may change the events.
	facts   tailIndex
	eventID []string // the ids that are not empty

	request     RequestID // zero if there is none
	conditional bool
	query       hashed
	after       int64
	probes      probes

	// Up to held nothing conflicts, if the epoch is still the same. Both belong
	// first to the checker, then to the committer.
	held  int64
	epoch uint64
	// slowBasis is the end of the history in which a check of this call alone has
	// found no conflict.
	slowBasis basis
	// outcome is the answer that was found while the call waited for another
	// call's transaction: a ConflictError, or errUndecided.
	outcome error
	// ctx is the caller's: a call that nobody waits for is not written.
	ctx context.Context

	done chan answer // one slot
}

// answer is the result for a caller: the position of its first event, and whether an
// earlier call had stored it; or an error.
type answer struct {
	first    int64
	repeated bool
	err      error
}

// answer sends the answer to the caller. A second answer is a bug of the committer,
// after which its batches cannot be trusted. It panics then: a pooled call would
// give one caller the answer of another, and a full channel would block the
// committer.
func (c *call) answer(a answer) {
	select {
	case c.done <- a:
	default:
		panic("eventstore: an append was answered twice: please report this")
	}
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan answer, 1)} }}

// newCall encodes an append. It keeps no reference to the caller's memory.
func newCall(events []Event, bytes int, condition *Condition, known *tagFrequency) *call {
	c := calls.Get().(*call)
	c.reset()
	c.events, c.bytes = len(events), bytes
	text := textOf(events)
	for i := range events {
		c.addEvent(int32(i), &events[i], &text)
	}
	if c.conditional = condition != nil; c.conditional {
		c.query = newHashed(condition.FailIfEventsMatch.clone())
		c.after = condition.After
		c.probes.add(&c.query.Query, known)
		c.bytes += c.probes.bytes()
	}
	return c
}

// keepCall is the size of events and probes up to which a call's memory is pooled.
const keepCall = 64 << 10

// free returns an answered call to the pool.
func (c *call) free() {
	if c.bytes <= keepCall {
		calls.Put(c)
	}
}

func (c *call) reset() {
	for _, col := range []*column{&c.types, &c.hashes, &c.signatures, &c.json, &c.ids, &c.tags, &c.data, &c.packed, &c.tagHashes} {
		*col = (*col)[:0]
	}
	c.tagEvents = c.tagEvents[:0]
	c.facts.reset()
	clear(c.eventID)
	c.eventID = c.eventID[:0]
	c.probes.reset()
	c.query = hashed{}
	c.after, c.held, c.epoch, c.outcome = 0, 0, 0, nil
	c.slowBasis, c.ctx, c.request = basis{}, nil, RequestID{}
}

// textOf returns one copy of all types, ids and tags. The originals may be parts of a
// page that was read: a single tag kept by the tail would keep the whole page.
func textOf(events []Event) string {
	size := 0
	for i := range events {
		e := &events[i]
		size += len(e.Type) + len(e.ID)
		for _, tag := range e.Tags {
			size += len(tag)
		}
	}
	var text strings.Builder
	text.Grow(size)
	for i := range events {
		e := &events[i]
		text.WriteString(e.Type)
		text.WriteString(e.ID)
		for _, tag := range e.Tags {
			text.WriteString(tag)
		}
	}
	return text.String()
}

// cut removes the first n bytes from the text and returns them.
func cut(text *string, n int) string {
	first := (*text)[:n]
	*text = (*text)[n:]
	return first
}

// addEvent encodes an event. The strings that it keeps are cut from text.
func (c *call) addEvent(i int32, e *Event, text *string) {
	c.facts.add(cut(text, len(e.Type)), e.Tags)
	c.types.text(e.Type)
	c.json.bool(e.JSON)
	if e.ID == "" {
		c.ids.null()
	} else {
		c.ids.text(e.ID)
		c.eventID = append(c.eventID, cut(text, len(e.ID)))
	}
	c.tags.textArray(e.Tags)
	c.data.bytes(e.Data)
	c.packed.packed(e)
	kind := typeHash(e.Type)
	c.hashes.int4(kind)
	c.facts.key(int64(kind))
	kept := c.facts.tags[len(c.facts.tags)-len(e.Tags):]
	var sig int64
	for t, tag := range e.Tags {
		kept[t] = cut(text, len(tag))
		hash := tagHash(tag)
		sig |= signature(hash)
		if contains(e.Tags[:t], tag) {
			continue // the index has it
		}
		c.facts.key(hash)
		c.tagHashes.int8(hash)
		c.tagEvents = append(c.tagEvents, i)
	}
	c.signatures.int8(sig)
}

func contains(tags []string, tag string) bool {
	for _, t := range tags {
		if t == tag {
			return true
		}
	}
	return false
}

// from returns the position up to which the call is already checked. Conflicts have
// to be looked for after it.
func (c *call) from(epoch uint64) int64 {
	from := max(c.after, c.slowBasis.position)
	if c.epoch == epoch {
		from = max(from, c.held)
	}
	return from
}

// left reports whether the caller has stopped waiting.
func (c *call) left() bool { return c.ctx != nil && c.ctx.Err() != nil }

// hold records that nothing conflicts up to position.
func (c *call) hold(position int64, epoch uint64) {
	c.held, c.epoch = max(position, c.from(epoch)), epoch
}
