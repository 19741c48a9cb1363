package eventstore

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of an event and of one append.
const (
	// MaxType is the longest type in bytes: it is part of a B-tree's key.
	MaxType = 255
	// MaxTags is the most tags of one event.
	MaxTags = 100
	// MaxTag is the longest tag in bytes.
	MaxTag = 1024
	// MaxID is the longest id in bytes.
	MaxID = 255
	// MaxData is the most data of one event, in bytes.
	MaxData = 16 << 20
	// MaxEvents is the most events of one append.
	MaxEvents = 10_000
	// MaxAppend is the largest total size of the events of one append, in bytes.
	MaxAppend = 64 << 20
)

// Event is a fact that happened. Do not change events that were read: the events of
// one read share memory, and a reference to one of them keeps all of it.
type Event struct {
	// Position in the store, from 1 on, in the order of commits, with gaps.
	// PostgreSQL assigns it; appends ignore it.
	Position int64
	// Time at which the event was stored, by PostgreSQL's clock. Times are in the
	// order of positions unless that clock is set back. Appends ignore it.
	Time time.Time
	// Type of the event: 1 to MaxType bytes, valid UTF-8 without NUL.
	Type string
	// Tags say what the event is about, such as "course:c1": any strings of 1 to
	// MaxTag bytes, valid UTF-8 without NUL, at most MaxTags. Reads return them in
	// the order in which they were appended.
	Tags []string
	// Data are any bytes, up to MaxData.
	Data []byte
	// JSON says that Data is JSON. An append then rejects Data that is not valid
	// JSON. Data is stored unchanged.
	JSON bool
	// ID makes an append safe to repeat: it is unique in the store. Up to MaxID
	// bytes, valid UTF-8 without NUL; empty means none.
	ID string
}

// size is the approximate size of the event in a batch, in bytes.
func (e *Event) size() int {
	n := 64 + len(e.Type) + len(e.Data) + len(e.ID)
	for _, tag := range e.Tags {
		n += 48 + 2*len(tag)
	}
	return n
}

// validateAppend rejects events that PostgreSQL would reject: they share a batch with
// the events of other callers, which must not fail because of them.
func validateAppend(events []Event) (bytes int, err error) {
	switch n := len(events); {
	case n == 0:
		return 0, invalid("events", "empty, want at least one")
	case n > MaxEvents:
		return 0, invalid("events", "%d, want at most %d", n, MaxEvents)
	}
	for i := range events {
		if err := events[i].validate(i); err != nil {
			return 0, err
		}
		bytes += events[i].size()
	}
	if bytes > MaxAppend {
		return 0, invalid("events", "%d bytes together, want at most %d", bytes, MaxAppend)
	}
	return bytes, validateIDs(events)
}

func (e *Event) validate(i int) error {
	if problem := typeProblem(e.Type); problem != "" {
		return invalidAt("events", i, "type", problem)
	}
	if len(e.Tags) > MaxTags {
		return invalidAt("events", i, "tags", "too many, want at most 100")
	}
	for _, tag := range e.Tags {
		if problem := tagProblem(tag); problem != "" {
			return invalidAt("events", i, "tags", problem)
		}
	}
	switch {
	case len(e.ID) > MaxID:
		return invalidAt("events", i, "id", "longer than 255 bytes")
	case !isText(e.ID):
		return invalidAt("events", i, "id", notText)
	case len(e.Data) > MaxData:
		return invalidAt("events", i, "data", "larger than 16 MiB")
	case e.JSON && !json.Valid(e.Data):
		return invalidAt("events", i, "data", "not valid JSON")
	case e.JSON && !utf8.Valid(e.Data):
		return invalidAt("events", i, "data", "JSON that is not valid UTF-8")
	}
	return nil
}

// validateIDs returns an error if two events have the same id.
func validateIDs(events []Event) error {
	if len(events) == 1 {
		return nil
	}
	var seen map[string]struct{}
	for i := range events {
		id := events[i].ID
		if id == "" {
			continue
		}
		if _, twice := seen[id]; twice {
			return invalidAt("events", i, "id", "the same as that of an earlier event of this append")
		}
		if seen == nil {
			seen = make(map[string]struct{}, len(events))
		}
		seen[id] = struct{}{}
	}
	return nil
}

const notText = "not valid UTF-8 without NUL"

// typeProblem says what is wrong with a type, or returns "".
func typeProblem(name string) string {
	switch {
	case name == "":
		return "empty, want 1 to 255 bytes"
	case len(name) > MaxType:
		return "longer than 255 bytes"
	case !isText(name):
		return notText
	}
	return ""
}

// tagProblem says what is wrong with a tag, or returns "".
func tagProblem(tag string) string {
	switch {
	case tag == "":
		return "an empty tag"
	case len(tag) > MaxTag:
		return "a tag longer than 1024 bytes"
	case !isText(tag):
		return "a tag that is " + notText
	}
	return ""
}

// isText reports whether PostgreSQL's text can hold s.
func isText(s string) bool {
	return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}
