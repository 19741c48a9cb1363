package eventstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// oddStrings are tags and types that have a meaning to some of the layers in
// between, and some that share a tag's beginning.
var oddStrings = []string{
	"a", "A", "a ", " a", "ab", "NULL", "null", `"`, `""`, `\`, `\\`, `a\"b`, `{a,b}`, "{}", ",", "'", "''; --", "%", "_", "$1",
	"grün", "gru\u0308n", "日本語", "\u200b", "\n", "\t", "\x01", "\x7f", "😀", "key:value", "key:value:more", "key:",
}

// plain is a log in memory of what was appended.
type plain struct {
	*testing.T
	random *rand.Rand
	events int // made
	all    []Event
}

// some returns a few of the first odd strings.
func (p *plain) some(of, most int) (chosen []string) {
	for _, i := range p.random.Perm(of)[:p.random.IntN(most+1)] {
		chosen = append(chosen, oddStrings[i])
	}
	return chosen
}

func (p *plain) event() Event {
	p.events++
	e := Event{Type: oddStrings[p.random.IntN(8)], Tags: p.some(len(oddStrings), 6)}
	if p.random.IntN(10) == 0 && len(e.Tags) > 0 {
		e.Tags = append(e.Tags, e.Tags[0]) // twice is once
	}
	switch p.random.IntN(4) {
	case 0:
		e.Data, e.JSON = []byte(`{ "a" : 1 }`), true
	case 1:
		e.Data = []byte("\x00\xff" + e.Type)
	}
	if p.random.IntN(3) == 0 {
		e.ID = fmt.Sprint(p.events, e.Type)
	}
	return e
}

func (p *plain) query() (q Query) {
	for range p.random.IntN(4) {
		q.Items = append(q.Items, Item{Types: p.some(10, 3), Tags: p.some(12, 3)})
	}
	return q
}

// stored notes events that are stored from a position on.
func (p *plain) stored(at Appended, err error, events ...Event) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
	for i, e := range events {
		e.Position = at.First + int64(i)
		p.all = append(p.all, e)
	}
}

// chosen is what a query of those options is to return.
func (p *plain) chosen(q Query, o ReadOptions) (positions []int64) {
	o = o.withDefaults()
	bytes := 0
	for i := range p.all {
		if o.Backwards {
			i = len(p.all) - 1 - i
		}
		e := p.all[i]
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

func positionsOf(events []Event) (positions []int64) {
	for _, e := range events {
		positions = append(positions, e.Position)
	}
	return positions
}

// check reads by a random query, whose statements stop after a few positions.
func (p *plain) check(s *Store) {
	p.Helper()
	s.searching = searching{span: 1 + p.random.Int64N(150), patience: 0}
	q, end := p.query(), int64(len(p.all)+1)
	o := ReadOptions{Backwards: p.random.IntN(2) == 0, Limit: p.random.IntN(2) * p.random.IntN(60), MaxBytes: p.random.IntN(2) * p.random.IntN(3000)}
	o.After, o.Before = p.random.Int64N(2)*p.random.Int64N(end), p.random.Int64N(2)*p.random.Int64N(end)
	want := p.chosen(q, o)
	got, err := s.Query(p.Context(), q, o)
	if err != nil || !slices.Equal(positionsOf(got), want) {
		p.Fatalf("%+v %+v: got %v, %v, want %v", q, o, positionsOf(got), err, want)
	}
	for _, e := range got {
		if !sameContent(e, p.all[e.Position-1]) || e.Time.IsZero() {
			p.Fatalf("got %+v, want %+v", e, p.all[e.Position-1])
		}
	}
	var streamed []Event
	for e, err := range s.QueryStream(p.Context(), q, o) {
		if err != nil {
			p.Fatal(err)
		}
		streamed = append(streamed, e)
	}
	if !slices.EqualFunc(streamed, got, func(a, b Event) bool { return a.Position == b.Position && a.Time.Equal(b.Time) && sameContent(a, b) }) {
		p.Fatalf("%+v %+v: streamed %v, want %v", q, o, positionsOf(streamed), want)
	}
}

// checkCondition appends under a random condition.
func (p *plain) checkCondition(s *Store) {
	p.Helper()
	q, e := p.query(), p.event()
	after := p.random.Int64N(2) * p.random.Int64N(int64(len(p.all)+1))
	want := p.chosen(q, ReadOptions{After: after, Limit: 1})
	at, err := s.AppendIf(p.Context(), []Event{e}, Condition{FailIfEventsMatch: q, After: after, WantEvents: 1})
	if len(want) == 0 {
		p.stored(at, err, e)
		return
	}
	var conflict *ConflictError
	if !errors.As(err, &conflict) || conflict.Position != want[0] || !slices.Equal(positionsOf(conflict.Events), want) || conflict.Type != conflict.Events[0].Type {
		p.Fatalf("%+v after %d: %v, want a conflict at %d", q, after, err, want)
	}
}

// TestQuery_AsPlainGo: queries and conditions find what a plain loop over random events finds, whether PostgreSQL or the tail decides,
// and each event comes back as it was. That is so too for old events, which were stored without the packed form for readers, and when
// an administrator or pg_restore has moved the events, so that rows of tags name wrong places.
func TestQuery_AsPlainGo(t *testing.T) {
	Slow(t)
	t.Parallel()
	for seed := range pgtest.Seeds() {
		db, s := prepared(t)
		cold := reopen(t, db, Config{}) // knows nothing in memory at first
		p := &plain{T: t, random: rand.New(rand.NewPCG(seed, 1))}
		for range 10 {
			events := make([]Event, 30)
			for i := range events {
				events[i] = p.event()
			}
			at, err := s.Append(t.Context(), events...)
			p.stored(at, err, events...)
		}
		for _, sql := range []string{``, `UPDATE tidewire.events_1 SET packed = NULL WHERE position % 3 > 0`, `CLUSTER tidewire.events_1 USING events_1_type_idx`} {
			MustExec(t, db.Pool, sql)
			for range 25 {
				p.check(s)
				p.checkCondition(s)
				p.checkCondition(cold)
			}
		}
		if n := s.Stats().DecidedInMemory; n == 0 {
			t.Error("the tail decided nothing")
		}
	}
}

// TestQuery_WhileAppended: a query whose statements stop after a few positions returns no event that is appended between two of them.
func TestQuery_WhileAppended(t *testing.T) {
	t.Parallel()
	_, s := prepared(t)
	p := &plain{T: t}
	e := Event{Type: "T", Tags: []string{"a", "b"}}
	for range 50 {
		at, err := s.Append(t.Context(), e)
		p.stored(at, err, e)
	}
	s.searching = searching{span: 10, patience: 0}
	q := Query{Items: []Item{{Tags: e.Tags}}}
	want := p.chosen(q, ReadOptions{})
	c := newCursor(s.page, q, ReadOptions{})
	var got []int64
	pages := 0
	for ; !c.done; pages++ {
		page, err := c.next(t.Context(), streamRows, streamBytes)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, positionsOf(page)...)
		if _, err := s.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) || pages < 3 {
		t.Errorf("got %v in %d pages, want %v in several", got, pages, want)
	}
}
