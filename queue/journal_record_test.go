package queue

import (
	"fmt"
	"reflect"
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

// TestRecord_AsQueueWrite: record returns the same answer as queue_write, and
// leaves the same journal.
func TestRecord_AsQueueWrite(t *testing.T) {
	t.Parallel()
	requests := []request{
		{entries: []entry{done(1, span{1, 2}, span{4, 4})}},
		{claim: 7},
		{entries: []entry{done(1, span{3, 3}), {kind: kindFree, token: 1, lo: 2, body: encodeSpans([]span{{5, 6}})}, {kind: kindNote, token: 1}}, claim: 3},
		{entries: []entry{{kind: kindLease, token: 1}, done(1, span{2, 3})}, claim: 2},
	}
	for i, r := range requests {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			long, short := testQueue(t), testQueue(t)
			a, common := leased(t, long)
			b, other := leased(t, short)
			common.entries, common.claim = r.entries, r.claim
			other.entries, other.claim = r.entries, r.claim
			if !other.plain() {
				t.Fatal("not plain")
			}
			want, err := long.members[0].write(t.Context(), long.members[0].byPool(), common)
			if err != nil {
				t.Fatal(err)
			}
			got, err := short.members[0].record(t.Context(), short.members[0].byPool(), other)
			if err != nil || got == nil {
				t.Fatal(got, err)
			}
			renewed := untilsOf(t, got)
			untilsOf(t, want)
			if got.outcome != want.outcome || !reflect.DeepEqual(got.news, want.news) || time.Since(got.now).Abs() > time.Minute {
				t.Errorf("answered %+v, want %+v", got, want)
			}
			mustWrite(t, long, a, request{seen: a.seen}, written)
			mustWrite(t, short, b, request{seen: b.seen}, written)
			if a.leases[1].Equal(b.leases[1]) {
				t.Error("two queues with one lease")
			}
			if renewed != nil && !renewed.Equal(b.leases[1]) {
				t.Errorf("the lease lasts until %v, and was told to until %v", b.leases[1], renewed)
			}
			a.leases, b.leases, a.last, b.last = nil, nil, nil, nil // with the times of each
			if !reflect.DeepEqual(a, b) {
				t.Errorf("the journal amounts to %+v, want %+v", b, a)
			}
		})
	}
}

// untilsOf checks that leases last an hour from the time of the answer, removes the times from the
// answer, so that it can be compared with another one, and returns when the last lease ends.
func untilsOf(t *testing.T, a *answer) (until *time.Time) {
	t.Helper()
	for i := range a.news {
		if e := &a.news[i]; e.kind == kindLease {
			until = new(e.until)
			if !until.Equal(a.now.Add(time.Hour)) {
				t.Errorf("at %v a lease until %v", a.now, until)
			}
			e.until = time.Time{}
		}
	}
	return until
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
