package queue

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// lease has token 1 begin one that lasts long, and claim ten positions. It
// returns the state, and what requests of the token have in common.
func lease(t *testing.T, q *Queue) (*state, request) {
	t.Helper()
	s := &state{}
	mustWrite(t, q, s, request{}, written)
	mustWrite(t, q, s, request{own: 1, lease: time.Hour, entries: []entry{{kind: kindLease, token: 1}}, claim: 10}, written)
	until := s.leases[1]
	return s, request{own: 1, seen: s.seen, validUntil: &until, lease: time.Hour}
}

// TestRecord_AsQueueWrite: what record says of a request, and what the journal
// has of it, is what queue_write says, and leaves.
func TestRecord_AsQueueWrite(t *testing.T) {
	t.Parallel()
	requests := []request{
		{entries: []entry{done(1, span{1, 2}, span{4, 4})}},
		{claim: 7},
		{entries: []entry{done(1, span{3, 3}), {kind: kindFree, token: 1, lo: 2, body: encodeSpans([]span{{5, 6}})}, {kind: kindNote, token: 1}}, claim: 3},
	}
	for i, r := range requests {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			long, short := testQueue(t), testQueue(t)
			a, common := lease(t, long)
			b, other := lease(t, short)
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
			if got.outcome != want.outcome || !reflect.DeepEqual(got.news, want.news) || time.Since(got.now).Abs() > time.Minute {
				t.Errorf("answered %+v, want %+v", got, want)
			}
			mustWrite(t, long, a, request{seen: a.seen}, written)
			mustWrite(t, short, b, request{seen: b.seen}, written)
			if a.leases[1].Equal(b.leases[1]) {
				t.Error("two queues with one lease")
			}
			a.leases, b.leases, a.last, b.last = nil, nil, nil, nil // with the times of each
			if !reflect.DeepEqual(a, b) {
				t.Errorf("the journal amounts to %+v, want %+v", b, a)
			}
		})
	}
}

// TestRecord_LeavesItToQueueWrite whatever depends on others, and writes nothing
// then.
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
			n := newPart(NewNode(q, NodeConfig{RotateRows: 1}), q.members[0])
			n.state = *s.clone()
			n.rotate(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := testQueue(t)
			s, r := lease(t, q)
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

// TestRecord_Plan wants the journal's index to be used whatever PostgreSQL knows
// of the journal when it plans: it grows by thousands of rows until it is looked
// at again.
func TestRecord_Plan(t *testing.T) {
	t.Parallel()
	q := testQueue(t)
	lease(t, q)
	m := q.members[0]
	conn, err := q.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{
		`SET plan_cache_mode = force_generic_plan`,
		`PREPARE record (bigint, timestamptz, bigint, bigint, smallint[], bigint[], bigint[], bytea[]) AS ` + fmt.Sprintf(recordFmt, m.id),
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE record(1, now(), 1, 1, '{6}', '{0}', '{0}', '{NULL}')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&plan, line)
	}
	if !strings.Contains(plan.String(), "_journal_pkey") || strings.Contains(plan.String(), "Seq Scan on queue_") {
		t.Errorf("plan:\n%s", plan.String())
	}
}
