package queue

import (
	"testing"
	"time"
)

// leased is a state with a lease of token 1, and ten positions, and a request with the common fields of the token.
func leased(t *testing.T, q *Queue) (*state, request) {
	t.Helper()
	s := &state{}
	lease(t, q, s, 1, 10)
	until := s.leases[1]
	return s, request{own: 1, seen: s.seen, validUntil: &until, lease: time.Hour}
}

// TestRecord_LeavesItToQueueWrite: record does not make requests that may
// conflict with other nodes, and then writes nothing.
func TestRecord_LeavesItToQueueWrite(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*testing.T, *Queue, *state, *request){
		"others wrote": func(t *testing.T, q *Queue, s *state, _ *request) {
			mustWrite(t, q, s, request{own: 2, lease: time.Hour, entries: []entry{{kind: kindLease, token: 2}}}, written)
		},
		"lease over": func(_ *testing.T, _ *Queue, _ *state, r *request) {
			over := time.Now().Add(-time.Hour)
			r.validUntil = &over
		},
		"journal begun anew": func(t *testing.T, q *Queue, s *state, _ *request) {
			n := newShardNode(NewNode(q, NodeConfig{RotateRows: 1}), q.members[0])
			n.state = *s.clone()
			n.rotate(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := testQueue(t)
			s, r := leased(t, q)
			r.entries = []entry{done(1, span{1, 1})}
			before(t, q, s, &r)
			for range 2 { // the second time it knows which journal is in use
				if a, err := q.members[0].record(t.Context(), q.members[0].byPool(), r); a != nil || err != nil {
					t.Fatalf("%+v %v, want nothing", a, err)
				}
			}
			mustWrite(t, q, s, request{seen: s.seen}, written)
			if g, ok := s.find(1); !ok || g.owner != 1 {
				t.Error("position 1 is done")
			}
		})
	}
}
