package cluster

import (
	"slices"
	"testing"
)

// TestTail: each receiver of a stream gets the pages of other nodes that use the same database, until it stops.
func TestTail(t *testing.T) {
	t.Parallel()
	h := newHistory(1, 2)
	for range 3 { // the nodes know each other
		h.beat()
		h.quiet()
	}
	from, to, other := h.nodes[0].Tail("db"), h.nodes[1].Tail("db"), h.nodes[1].Tail("other")
	var got []string
	listen := func(tail *Tail, stream int32, as string) (stop func()) {
		return tail.Listen(stream, func(page []byte) { got = append(got, as+string(page)) })
	}
	sent := func(page string, want ...string) {
		t.Helper()
		got = nil
		h.quiet() // nodes know what others listen to
		from.Send(7, []byte(page))
		h.quiet()
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	stopOne, stopTwo := listen(to, 7, "one "), listen(to, 7, "two ")
	stopTopic := listen(to, 7+tailTopics, "same topic ")
	listen(other, 7, "other database ")
	sent("a", "one a", "two a")
	stopOne()
	stopOne()
	sent("b", "two b")
	stopTopic()
	sent("c", "two c")
	stopTwo()
	sent("d")
}
