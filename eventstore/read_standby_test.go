package eventstore_test

import (
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/standby"
)

// readerOf reads from the server, for reads that the pool would do.
func readerOf(t *testing.T, pool *pgxpool.Pool, server *embedpg.Server) *standby.Reader {
	t.Helper()
	r, err := standby.Open(t.Context(), pool, standby.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// appendSeats appends n events with the tags seat:0 to seat:9.
func appendSeats(t *testing.T, s *eventstore.Store, n int) (last int64) {
	t.Helper()
	for i := 0; i < n; i += 100 {
		batch := make([]eventstore.Event, min(100, n-i))
		for j := range batch {
			batch[j] = event([]string{"Taken", "Freed"}[j%2], fmt.Sprint("seat:", j%10))
		}
		positions := mustAppend(t, s, batch...)
		last = positions[len(positions)-1]
	}
	return last
}

// TestStandby: reads come from the standby, and return what they would return without it. It has all kinds of reads; reads beside
// appends; and then a standby of a former primary.
func TestStandby(t *testing.T) {
	slow(t)
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	sameAnswers(t, p)
	seesWhatWasAnswered(t, p)
	ofFormerPrimary(t, p)
}

// sameAnswers: all kinds of reads return what they return without a standby, and come from there.
func sameAnswers(t *testing.T, p pgtest.Pair) {
	const all = 2500
	reader := readerOf(t, p.Pool, p.Standby)
	s, alone := open(t, p.Pool, eventstore.Config{Standby: reader}), open(t, p.Pool, eventstore.Config{})
	last := appendSeats(t, s, all)
	before := reader.Stats().Standby
	fromStandby := func(what any) {
		t.Helper()
		if now := reader.Stats().Standby; now == before {
			t.Errorf("%+v: not read from the standby: %s", what, reader.Problem())
		}
		p.CatchUp(t)
		before = reader.Stats().Standby
	}
	p.CatchUp(t)
	seat3, limits := eventstore.Tagged("seat:3"), eventstore.ReadOptions{Backwards: true, Limit: 1100, After: 3}
	for _, c := range []struct {
		query   eventstore.Query
		options eventstore.ReadOptions
	}{
		{eventstore.Everything(), eventstore.ReadOptions{}}, {seat3, eventstore.ReadOptions{}}, {eventstore.Tagged("seat:99"), eventstore.ReadOptions{}},
		{eventstore.Typed("Freed"), eventstore.ReadOptions{Backwards: true}}, {eventstore.Everything(), limits}, {seat3, limits},
		{eventstore.Query{Items: []eventstore.Item{{Types: []string{"Freed"}, Tags: seat3.Items[0].Tags}}}, eventstore.ReadOptions{After: 1200}},
		{seat3, eventstore.ReadOptions{Before: 1500}}, {eventstore.Everything(), eventstore.ReadOptions{Limit: 7}}, {eventstore.Typed("Freed"), eventstore.ReadOptions{MaxBytes: 999}},
	} {
		got, err := s.Query(t.Context(), c.query, c.options)
		if err != nil {
			t.Fatal(err)
		}
		want, err := alone.Query(t.Context(), c.query, c.options)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: %d events, want %d: %v", c, len(got), len(want), err)
		}
		fromStandby(c)
	}
	n := counter(eventstore.Everything()).Projection()
	condition, err := s.Project(t.Context(), n)
	if err != nil || n.State != all || condition.After != last {
		t.Errorf("projection: %d events up to %d, %v", n.State, condition.After, err)
	}
	fromStandby("a projection")
	sub := follow(t, s, eventstore.Everything(), 0)
	for got := 0; got < all; {
		page, err := sub.Next(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		got += len(page)
	}
	fromStandby("a subscription")
}

// seesWhatWasAnswered: a query that begins after the answer to an append returns its events, whether the standby has them or not. The
// events are those of one moment.
func seesWhatWasAnswered(t *testing.T, p pgtest.Pair) {
	reader := readerOf(t, p.Pool, p.Standby)
	s := openNamed(t, p.Pool, "answers", eventstore.Config{Standby: reader})
	writer := openNamed(t, p.Pool, "answers", eventstore.Config{}) // as of another node
	const all = 300
	var answered atomic.Int64
	var working sync.WaitGroup
	working.Go(func() {
		for range all {
			at, err := writer.Append(t.Context(), event("Taken", "seat:1"))
			if err != nil {
				t.Error(err)
				return
			}
			answered.Store(at.First)
		}
	})
	for range 3 {
		working.Go(func() {
			for seen := int64(0); seen < all; {
				want := answered.Load()
				events, err := s.Query(t.Context(), eventstore.Everything(), eventstore.ReadOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				for i, e := range events {
					if e.Position != int64(i+1) {
						t.Errorf("event %d has position %d", i, e.Position)
						return
					}
				}
				if seen = int64(len(events)); seen < want {
					t.Errorf("%d events, though %d were answered before", seen, want)
					return
				}
			}
		})
	}
	working.Wait()
	p.CatchUp(t)
	if all := everything(t, s); len(all) == 0 || reader.Stats().Standby == 0 {
		t.Errorf("%+v: %s", reader.Stats(), reader.Problem())
	}
}

// ofFormerPrimary: the standby follows a former primary, and has events that the new primary never got. No read returns them.
func ofFormerPrimary(t *testing.T, p pgtest.Pair) {
	former := openNamed(t, p.Pool, "former", eventstore.Config{})
	appendSeats(t, former, 100)
	p.CatchUp(t)
	p.Detach(t)
	other := pgtest.Pair{Primary: p.Primary, Standby: pgtest.Standby(t, p.Primary), Pool: p.Pool}
	appendSeats(t, former, 100)
	other.CatchUp(t)
	pool := poolOf(t, p.Standby.URL())
	mustExec(t, pool, `SELECT pg_promote()`)
	reader := readerOf(t, pool, other.Standby)
	s := openNamed(t, pool, "former", eventstore.Config{Standby: reader})
	check := func(what string, want int) {
		t.Helper()
		for _, o := range []eventstore.ReadOptions{{}, {Backwards: true}, {Before: 150}} {
			n := want
			if o.Before > 0 {
				n = 100
			}
			if events, err := s.Query(t.Context(), eventstore.Everything(), o); err != nil || len(events) != n {
				t.Errorf("%s, %+v: %d events, want %d: %v", what, o, len(events), n, err)
			}
		}
	}
	check("before there is anything new", 100)
	if reader.Stats().Standby == 0 {
		t.Errorf("not read: %s", reader.Problem())
	}
	appendSeats(t, s, 50)
	check("after", 150)
	mustExec(t, p.Pool, `SELECT tidewire.begin_history()`) // as if it had been promoted later
	appendSeats(t, former, 10)
	other.CatchUp(t)
	check("with a newer history there", 150)
}
