package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestHeard_InDoubt: the answer to an acknowledgement is lost, and the lease ends before the request is repeated. The
// acknowledgement counts if and only if it was written, even if the journal was compacted in between, and also if the request is
// the last one, with only the acknowledgement of a deferred message and the end of the lease.
func TestHeard_InDoubt(t *testing.T) {
	t.Parallel()
	for _, wrote := range []bool{true, false} {
		for _, how := range []string{"", "rotated", "last"} {
			t.Run(fmt.Sprintf("written %t %s", wrote, how), func(t *testing.T) {
				t.Parallel()
				inDoubt(t, wrote, how == "rotated", how == "last")
			})
		}
	}
}

func inDoubt(t *testing.T, wrote, rotated, last bool) {
	q := testQueue(t)
	n, other := newShardNode(NewNode(q, NodeConfig{Lease: 2 * time.Second}), q.members[0]), newShardNode(NewNode(q, NodeConfig{RotateRows: 1}), q.members[0])
	mustWrite(t, q, &n.state, request{}, written)
	begin := request{own: 1, lease: n.cfg.Lease, entries: []entry{{kind: kindLease, token: 1}}, claim: 10}
	if last {
		begin.claim = 0
	}
	mustWrite(t, q, &n.state, begin, written)
	s := &settlement{item: &item{token: 1, deferred: last}, to: newOutcomes(1)}
	s.item.Position = 3
	b := &batch{settled: []*settlement{s}}
	until := n.state.leases[1]
	n.token, n.deadline = 1, time.Now()
	r := request{own: 1, seen: n.state.seen, validUntil: &until, entries: b.entries(1)}
	if last {
		n.deferred[3] = struct{}{}
		MustExec(t, q.pool, `INSERT INTO tidewire.queue_side VALUES ($1, 3, now(), 1, 1, false, '')`, q.members[0].id)
		n.mu.Lock()
		n.renewAt, n.finishing = time.Now().Add(time.Hour), true
		r, _ = n.plan(b, time.Now(), false)
		n.mu.Unlock()
		if !r.ends() {
			t.Fatalf("planned %+v", r.entries)
		}
	}
	if wrote {
		if a, err := n.queue.write(t.Context(), n.queue.byPool(), r); err != nil || a.outcome != written {
			t.Fatal(a, err)
		}
	}
	if !wrote || !last { // else it has ended its lease
		takeOver(t, q, &other.state)
	}
	if rotated {
		other.rotate(t.Context())
	}
	a, err := n.queue.write(t.Context(), n.queue.byPool(), r)
	if err != nil || a.outcome != stale || rotated != (a.news[0].kind == kindReset) {
		t.Fatalf("%+v, %v: want it stale, and the journal begun anew: %t", a, err, rotated)
	}
	if err := n.heard(b, r, a, time.Now(), true); err != nil {
		t.Fatal(err)
	}
	if err := s.to.wait(t.Context())[0]; wrote != (err == nil) || !wrote && !errors.Is(err, ErrLeaseLost) {
		t.Errorf("answered %v", err)
	}
	if n.token != 0 {
		t.Error("the lease is not lost")
	}
	var left int
	if err := q.pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.queue_side`).Scan(&left); err != nil || last && !wrote != (left == 1) {
		t.Errorf("%d deferred messages, %v", left, err)
	}
}
