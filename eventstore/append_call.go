package eventstore

import (
	"context"
	"strings"
	"sync"
)

// Condition makes an append fail if events match that are stored after a
// position.
type Condition struct {
	// FailIfEventsMatch chooses the events that must not be there. The zero
	// Query matches every event.
	FailIfEventsMatch Query
	// After is the position of the last event that the decision has taken into
	// account: only events after it count. It may lie past the last match. If the
	// store has not got so far, or events up to it were lost by a failover, the append fails with
	// ErrHistoryLost. 0 has the whole history count.
	After int64
	// WantEvents is how many of the events that match a ConflictError is to hold.
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
// the only committer has little to do but to join calls.
type call struct {
	events int
	bytes  int
	// Columns of the events, and of their tags: hashes, and which event has each.
	types, hashes, signatures, json, ids, tags, data, packed column
	tagHashes                                                column
	tagEvents                                                []int32

	// The facts that comparing needs, and nothing that the caller may change.
	facts   tailIndex
	eventID []string // those there are

	request     RequestID // zero if there is none
	conditional bool
	query       hashed
	after       int64
	probes      probes

	// Up to held nothing conflicts, if the epoch is still the same. Both belong
	// to whoever has the call: first the checker, then the committer.
	held  int64
	epoch uint64
	// apart is a history up to whose end nothing conflicts, as a check of this
	// call alone has found.
	apart basis
	// outcome was found while the call waited for another one: a ConflictError,
	// or errUndecided.
	outcome error
	// ctx is the caller's: what nobody waits for is not written.
	ctx context.Context

	done chan answer // one slot
}

// answer is what a caller is told: the position of its first event, and whether an
// earlier call stored it, or why there is none.
type answer struct {
	first    int64
	repeated bool
	err      error
}

// answer tells the caller. A second answer is a fault of the committer, after which
// its batches cannot be trusted: better no process than a caller who is told what
// became of another's events, or a committer that waits for nobody.
func (c *call) answer(a answer) {
	select {
	case c.done <- a:
	default:
		panic("eventstore: an append was answered twice: please report this")
	}
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan answer, 1)} }}

// newCall encodes an append. It keeps nothing of what the caller has given.
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

// keepCall is the most memory, of events and probes, that a call keeps for the next one.
const keepCall = 64 << 10

// free gives the memory of a call back, once it was answered.
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
	c.apart, c.ctx, c.request = basis{}, nil, RequestID{}
}

// textOf is one copy of all types, ids and tags. The originals may be parts of a
// page that was read, all of which would be kept as long as the tail keeps a tag.
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

// cut takes the first n bytes from the text.
func cut(text *string, n int) string {
	first := (*text)[:n]
	*text = (*text)[n:]
	return first
}

// addEvent encodes an event, and takes from text what it keeps of its strings.
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

// from is the position after which it is not known whether anything
// conflicts.
func (c *call) from(epoch uint64) int64 {
	from := max(c.after, c.apart.position)
	if c.epoch == epoch {
		from = max(from, c.held)
	}
	return from
}

// left reports whether the caller does not wait any more.
func (c *call) left() bool { return c.ctx != nil && c.ctx.Err() != nil }

// hold notes that nothing conflicts up to position.
func (c *call) hold(position int64, epoch uint64) {
	c.held, c.epoch = max(position, c.from(epoch)), epoch
}
