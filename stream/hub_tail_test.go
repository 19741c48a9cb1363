package stream

import (
	"math/rand/v2"
	"testing"
)

// TestTail_AgainstSlice extends a tail randomly, and compares its results with a
// slice of the whole stream.
func TestTail_AgainstSlice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		const limit, maxMessages, maxBytes = 4000, 10, 2000
		tl := tail{limit: limit}
		var stored []Message
		position := int64(0)
		for range 200 {
			after := tl.to
			if random.IntN(20) == 0 { // a subscription ahead of the others, which did not read this one
				after += 1 + random.Int64N(5)
				stored = append(stored, Message{Position: after})
			}
			position = after
			var p tailPage
			for range 1 + random.IntN(4) {
				position += 1 + random.Int64N(3)
				m := Message{Position: position, Payload: make([]byte, random.IntN(1000))}
				p.messages = append(p.messages, m)
				p.bytes += m.held()
			}
			stored = append(stored, p.messages...)
			tl.extend(after, p)
			checkTail(t, &tl, limit)
			if tl.to != position {
				t.Fatalf("ends at %d, want %d", tl.to, position)
			}
			for start := tl.from; start < tl.to; start++ {
				page := tl.after(start, maxMessages, maxBytes)
				wantAfter(t, stored, start, page)
				if len(page) > maxMessages {
					t.Fatalf("%d messages", len(page))
				}
			}
		}
	}
}

func checkTail(t *testing.T, tl *tail, limit int) {
	t.Helper()
	held := 0
	for _, p := range tl.pages {
		for i := range p.messages {
			held += p.messages[i].held()
		}
	}
	if held != tl.bytes || held > limit {
		t.Fatalf("holds %d bytes, says %d, limit %d", held, tl.bytes, limit)
	}
}

// wantAfter wants the page to be what comes next after start.
func wantAfter(t *testing.T, stored []Message, start int64, page []Message) {
	t.Helper()
	for len(stored) > 0 && stored[0].Position <= start {
		stored = stored[1:]
	}
	if len(page) == 0 || len(page) > len(stored) {
		t.Fatalf("%d messages after %d, %d are stored", len(page), start, len(stored))
	}
	for i := range page {
		if page[i].Position != stored[i].Position {
			t.Fatalf("after %d: position %d, want %d", start, page[i].Position, stored[i].Position)
		}
	}
}

func TestFeed_LeavesLateSubscriptionsToTheirOwn(t *testing.T) {
	t.Parallel()
	f := newFeed(&Stream{}, new(HubConfig{TailBytes: 1000}.withDefaults()), unknownHistory, nil)
	if v := f.look(0, 1); !v.leads {
		t.Fatal("the first does not lead")
	}
	if v := f.look(0, 1); v.wait == nil {
		t.Error("the second does not wait for the first")
	}
	for n := range int64(10) {
		m := Message{Position: n + 1, Payload: make([]byte, 100)}
		f.tail.extend(n, tailPage{messages: []Message{m}, bytes: m.held()})
	}
	if v := f.look(0, 1); v.from != 6 || v.leads || v.page != nil {
		t.Errorf("after the tail: %+v", v)
	}
	if v := f.look(6, 1); len(v.page) != 4 {
		t.Errorf("in the tail: %+v", v)
	}
}
