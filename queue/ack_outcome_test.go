package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestHeard_InDoubt: the answer to an acknowledgement is lost, and the lease
// ends before the request is repeated. The acknowledgement counts if and only if
// it was written, even if the journal was compacted in between.
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
	n, other := newShardNode(NewNode(q, NodeConfig{}), q.members[0]), newShardNode(NewNode(q, NodeConfig{RotateRows: 1}), q.members[0])
	mustWrite(t, q, &n.state, request{}, written)
	begin := request{own: 1, lease: 200 * time.Millisecond, entries: []entry{{kind: kindLease, token: 1}}, claim: 10}
	mustWrite(t, q, &n.state, begin, written)
	n.token, n.deadline = 1, time.Now()
	s := &settlement{item: &item{token: 1}, to: newOutcomes(1)}
	s.item.Position = 3
	b := &batch{settled: []*settlement{s}}
	until := n.state.leases[1]
	r := request{own: 1, seen: n.state.seen, validUntil: &until, entries: b.entries(1)}
	if wrote {
		if a, err := n.queue.write(t.Context(), n.queue.byPool(), r); err != nil || a.outcome != written {
			t.Fatal(a, err)
		}
	}
	time.Sleep(time.Until(until) + 50*time.Millisecond)
	mustWrite(t, q, &other.state, request{}, written)
	mustWrite(t, q, &other.state, request{entries: []entry{{kind: kindEnd, token: 1, hi: 10, until: until}}}, written)
	if rotated {
		other.rotate(t.Context())
	}
	a, err := n.queue.write(t.Context(), n.queue.byPool(), r)
	if err != nil || a.outcome != stale {
		t.Fatal(a, err)
	}
	if rotated != (a.news[0].kind == kindReset) {
		t.Fatalf("the journal begins with %+v", a.news[0])
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
}

// TestHeard_EndInDoubt: the answer to a last request is lost, which has only the
// acknowledgement of a deferred message and the end of the lease. The
// acknowledgement counts if it was written, and not if another node had ended the
// lease.
func TestHeard_EndInDoubt(t *testing.T) {
	t.Parallel()
	for _, wrote := range []bool{true, false} {
		t.Run(fmt.Sprintf("written %t", wrote), func(t *testing.T) {
			t.Parallel()
			q := testQueue(t)
			n := newShardNode(NewNode(q, NodeConfig{Lease: 200 * time.Millisecond}), q.members[0])
			mustWrite(t, q, &n.state, request{}, written)
			begin := request{own: 1, lease: n.cfg.Lease, entries: []entry{{kind: kindLease, token: 1}}}
			mustWrite(t, q, &n.state, begin, written)
			s := &settlement{item: &item{token: 1, deferred: true}, to: newOutcomes(1)}
			s.item.Position = 3
			n.deferred[3] = struct{}{}
			if _, err := q.pool.Exec(t.Context(), `INSERT INTO tidewire.queue_side VALUES ($1, 3, now(), 1, 1, false, '')`, q.members[0].id); err != nil {
				t.Fatal(err)
			}
			n.mu.Lock()
			n.token, n.deadline, n.renewAt, n.finishing = 1, time.Now(), time.Now().Add(time.Hour), true
			b := &batch{settled: []*settlement{s}}
			r, _ := n.plan(b, time.Now(), false)
			n.mu.Unlock()
			if !r.ends() {
				t.Fatalf("planned %+v", r.entries)
			}
			if wrote {
				if a, err := n.queue.write(t.Context(), n.queue.byPool(), r); err != nil || a.outcome != written {
					t.Fatal(a, err)
				}
			} else {
				other, until := n.state.clone(), n.state.leases[1]
				time.Sleep(time.Until(until) + 50*time.Millisecond)
				mustWrite(t, q, other, request{entries: []entry{{kind: kindEnd, token: 1, hi: 10, until: until}}}, written)
			}
			a, err := n.queue.write(t.Context(), n.queue.byPool(), r)
			if err != nil || a.outcome != stale {
				t.Fatal(a, err)
			}
			if err := n.heard(b, r, a, time.Now(), true); err != nil {
				t.Fatal(err)
			}
			if err := s.to.wait(t.Context())[0]; wrote != (err == nil) || !wrote && !errors.Is(err, ErrLeaseLost) {
				t.Errorf("answered %v", err)
			}
			var left int
			if err := q.pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.queue_side`).Scan(&left); err != nil || wrote != (left == 0) {
				t.Errorf("%d deferred messages, %v", left, err)
			}
		})
	}
}
