package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestHeard_InDoubt has the answer to an acknowledgement get lost, and the lease
// end before it is asked for again: it counts if it was written, and only then,
// also if the journal began anew in between.
func TestHeard_InDoubt(t *testing.T) {
	t.Parallel()
	for _, wrote := range []bool{true, false} {
		for _, rotated := range []bool{true, false} {
			t.Run(fmt.Sprintf("written %t, rotated %t", wrote, rotated), func(t *testing.T) {
				t.Parallel()
				inDoubt(t, wrote, rotated)
			})
		}
	}
}

func inDoubt(t *testing.T, wrote, rotated bool) {
	q := testQueue(t)
	n, other := newPart(NewNode(q, NodeConfig{}), q.members[0]), newPart(NewNode(q, NodeConfig{RotateRows: 1}), q.members[0])
	mustWrite(t, q, &n.state, request{}, written)
	begin := request{own: 1, lease: 200 * time.Millisecond, entries: []entry{{kind: kindLease, token: 1}}, claim: 10}
	mustWrite(t, q, &n.state, begin, written)
	n.token, n.deadline = 1, time.Now()
	s := &settlement{item: &item{token: 1}, answer: make(chan error, 1)}
	s.item.Position = 3
	b := &batch{settled: []*settlement{s}}
	until := n.state.leases[1]
	r := request{own: 1, seen: n.state.seen, validUntil: &until, entries: b.entries(1)}
	if wrote {
		if a, err := n.queue.write(t.Context(), r); err != nil || a.outcome != written {
			t.Fatal(a, err)
		}
	}
	time.Sleep(time.Until(until) + 50*time.Millisecond)
	mustWrite(t, q, &other.state, request{}, written)
	mustWrite(t, q, &other.state, request{entries: []entry{{kind: kindEnd, token: 1, hi: 10, until: until}}}, written)
	if rotated {
		other.rotate(t.Context())
	}
	a, err := n.queue.write(t.Context(), r)
	if err != nil || a.outcome != stale {
		t.Fatal(a, err)
	}
	if rotated != (a.news[0].kind == kindReset) {
		t.Fatalf("the journal begins with %+v", a.news[0])
	}
	if err := n.heard(b, r, a, time.Now(), true); err != nil {
		t.Fatal(err)
	}
	if err := <-s.answer; wrote != (err == nil) || !wrote && !errors.Is(err, ErrLeaseLost) {
		t.Errorf("answered %v", err)
	}
	if n.token != 0 {
		t.Error("the lease is not lost")
	}
}
