package gateway_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
)

// TestAttack_SearchBinary: bytes that are no UTF-8 are found as what they are: no text that they do not contain matches them.
func TestAttack_SearchBinary(t *testing.T) {
	t.Parallel()
	s := serveDatabase(t, migrated.Open(t), nil)
	s.make(t, "orders", 0)
	publishAll(t, s, []engine.Message{{Payload: []byte("\xff\xfeABC\x00\x80")}, {Payload: []byte("real \uFFFD")}, {Payload: []byte("\xc3\xc3\xa9É")}})
	c := client{t, s.addr}
	for _, d := range []struct {
		text, more string
		want       []int64
	}{
		{"\uFFFD", "", []int64{2}}, {"\uFFFD", "&any_case=true", []int64{2}}, {"abc", "&any_case=true", []int64{1}}, {"abc", "", nil}, {"\x00", "", []int64{1}}, {"ÉÉ", "&any_case=true", []int64{3}},
	} {
		var got []int64
		for _, m := range c.search("text=" + url.QueryEscape(d.text) + d.more).Messages {
			got = append(got, m.Position)
		}
		if !slices.Equal(got, d.want) {
			t.Errorf("%q%s: %v, want %v", d.text, d.more, got, d.want)
		}
	}
}

func publishAll(t *testing.T, s database, page []engine.Message) {
	t.Helper()
	stored := make(chan error, 1)
	if err := s.engine.Streams.Publish(t.Context(), "orders", nil, page, func(_ engine.Place, err error) { stored <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
}

// TestAttack_SearchPages: whatever the sizes of messages and pages are, a search that goes on where it was finds what matches, once each, and no more.
func TestAttack_SearchPages(t *testing.T) {
	t.Parallel()
	s := serveDatabase(t, migrated.Open(t), nil)
	s.make(t, "orders", 0)
	random := rand.New(rand.NewPCG(7, 8))
	var matching []int64
	const n = 2500
	for at := 0; at < n; at += 500 {
		var page []engine.Message
		for i := range 500 {
			m := engine.Message{Payload: bytes.Repeat([]byte{byte(random.IntN(256))}, random.IntN(200))}
			if random.IntN(50) == 0 {
				m.Payload = bytes.Repeat([]byte("x"), random.IntN(300_000))
			}
			if random.IntN(5) == 0 {
				m.Payload = append(m.Payload, "NEEDLE"...)
				matching = append(matching, int64(at+i+1))
			}
			page = append(page, m)
		}
		publishAll(t, s, page)
	}
	c := client{t, s.addr}
	for range 6 {
		first := int64(random.IntN(n))
		until := first + int64(random.IntN(n))
		want := slices.DeleteFunc(slices.Clone(matching), func(p int64) bool { return p <= first || p > until })
		var got []int64
		for after, done := first, false; !done; {
			a := c.search(fmt.Sprintf("text=needle&any_case=true&after=%d&until=%d&limit=%d", after, until, 1+random.IntN(100)))
			for _, m := range a.Messages {
				got = append(got, m.Position)
			}
			if a.Next < after || a.Next == after && !a.Done || a.Next > until {
				t.Fatalf("after %d until %d: %+v", after, until, a)
			}
			after, done = a.Next, a.Done
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %d until %d: %d found, want %d", first, until, len(got), len(want))
		}
	}
}
