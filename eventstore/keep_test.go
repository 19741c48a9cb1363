package eventstore

import (
	"runtime"
	"testing"
	"unsafe"
	"weak"

	"github.com/tidewire/tidewire/internal/testkit"
)

// appendPart appends an event whose strings are parts of a large value, as those
// of events that were read are, and returns what tells whether that still exists.
func appendPart(t *testing.T, s *Store) weak.Pointer[byte] {
	t.Helper()
	page := make([]byte, 1<<20)
	text := unsafe.String(&page[0], len(page))
	copy(page, "Seen course:c1 id-1")
	condition := Condition{FailIfEventsMatch: Typed(text[:3])}
	_, err := s.AppendIf(t.Context(), []Event{{Type: text[:4], Tags: []string{text[5:14]}, ID: text[15:19]}}, condition)
	if err != nil {
		t.Fatal(err)
	}
	return weak.Make(&page[0])
}

// TestAppend_KeepsNothingOfTheCallers: a caller reads events and appends others with
// their tags. If the tail kept references to these strings, it would keep thousands of
// pages in memory.
func TestAppend_KeepsNothingOfTheCallers(t *testing.T) {
	t.Parallel()
	_, s := prepared(t)
	page := appendPart(t, s)
	testkit.Eventually(t, "what an event's strings were part of is let go", func() bool { // the committer may still be at it
		runtime.GC() // pools let go of something with the second
		return page.Value() == nil
	})
}
