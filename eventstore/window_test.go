package eventstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestQuery_InPieces: every statement stops after a few positions. The query still returns
// the same events as a plain loop, in both directions, and no event that is appended
// between two statements.
func TestQuery_InPieces(t *testing.T) {
	t.Parallel()
	_, s := prepared(t)
	random := rand.New(rand.NewPCG(1, 2))
	var all []Event
	some := func(prefix string, n, most int) (names []string) {
		for _, i := range random.Perm(n)[:random.IntN(most+1)] {
			names = append(names, fmt.Sprint(prefix, i))
		}
		return names
	}
	for range 300 {
		e := Event{Type: fmt.Sprint("T", random.IntN(3)), Tags: some("t:", 4, 3), Data: make([]byte, random.IntN(50)), ID: fmt.Sprint(len(all))}
		at, err := s.Append(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		e.Position = at.First
		all = append(all, e)
	}
	for n := range 150 * pgtest.Seeds() {
		s.searching = searching{span: 1 + random.Int64N(40), patience: 0}
		s.moved.Store(random.IntN(3) == 0)
		var q Query
		for range 1 + random.IntN(3) {
			q.Items = append(q.Items, Item{Types: some("T", 3, 2), Tags: some("t:", 4, 3)})
		}
		o := ReadOptions{Backwards: n%2 == 0, Limit: random.IntN(2) * random.IntN(60), MaxBytes: random.IntN(2) * random.IntN(3000)}
		o.After, o.Before = random.Int64N(2)*random.Int64N(300), random.Int64N(2)*random.Int64N(300)
		want := chosen(all, q, o)
		got, err := s.Query(t.Context(), q, o)
		if err != nil || !slices.Equal(positionsOf(got), want) {
			t.Fatalf("%+v %+v: got %v, %v, want %v", q, o, positionsOf(got), err, want)
		}
		for i := range got {
			if e := all[got[i].Position-1]; !sameContent(got[i], e) {
				t.Fatalf("got %+v, want %+v", got[i], e)
			}
		}
	}
	// While it reads, more is appended.
	s.searching = searching{span: 10, patience: 0}
	q := Query{Items: []Item{{Tags: []string{"t:0", "t:1"}}}}
	want := chosen(all, q, ReadOptions{})
	c := newCursor(s.page, q, ReadOptions{})
	var got []int64
	pages := 0
	for !c.done {
		page, err := c.next(t.Context(), streamRows, streamBytes)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		got = append(got, positionsOf(page)...)
		if _, err := s.Append(t.Context(), Event{Type: "T0", Tags: q.Items[0].Tags}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) || pages < 3 {
		t.Errorf("got %v in %d pages, want %v in several", got, pages, want)
	}
}

func positionsOf(events []Event) (positions []int64) {
	for _, e := range events {
		positions = append(positions, e.Position)
	}
	return positions
}

// chosen is what a query of those options is to return.
func chosen(all []Event, q Query, o ReadOptions) (positions []int64) {
	o = o.withDefaults()
	bytes := 0
	for i := range all {
		if o.Backwards {
			i = len(all) - 1 - i
		}
		e := all[i]
		if e.Position <= o.After || e.Position >= o.Before || !q.Matches(e) {
			continue
		}
		positions = append(positions, e.Position)
		bytes += e.weight()
		if len(positions) == o.Limit || o.MaxBytes > 0 && bytes >= o.MaxBytes {
			break
		}
	}
	return positions
}

// TestQuery_EventsOfBefore reads old events, which were stored without the packed form for
// readers.
func TestQuery_EventsOfBefore(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	var all []Event
	for n := range 20 {
		e := Event{Type: "T", Tags: []string{"a", `b"{}\`, fmt.Sprint("grün:", n)}[:1+n%3], Data: []byte(fmt.Sprint(`"`, n, `"`)), JSON: n%2 == 0}
		if n%5 == 0 {
			e.ID = fmt.Sprint("id", n)
		}
		at, err := s.Append(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		e.Position = at.First
		all = append(all, e)
	}
	before, err := s.Query(t.Context(), Tagged("a"), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Pool.Exec(t.Context(), `UPDATE tidewire.events_1 SET packed = NULL WHERE position % 3 > 0`); err != nil {
		t.Fatal(err)
	}
	for _, options := range []ReadOptions{{}, {MaxBytes: 60}, {Backwards: true}, {After: 7}} {
		got, err := s.Query(t.Context(), Tagged("a"), options)
		if want := chosen(all, Tagged("a"), options); err != nil || !slices.Equal(positionsOf(got), want) {
			t.Fatalf("%+v: %v, %v, want %v", options, positionsOf(got), err, want)
		}
		for _, e := range got {
			if !sameContent(e, all[e.Position-1]) || !e.Time.Equal(before[e.Position-1].Time) {
				t.Errorf("got %+v, want %+v", e, all[e.Position-1])
			}
		}
	}
}
