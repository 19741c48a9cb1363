package eventstore_test

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

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

// TestStandby_SameAnswers: all kinds of reads return what they return without a standby, and come from there.
func TestStandby_SameAnswers(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	reader := readerOf(t, p.Pool, p.Standby)
	s, alone := open(t, p.Pool, eventstore.Config{Standby: reader}), open(t, p.Pool, eventstore.Config{})
	last := appendSeats(t, s, 2500)
	p.CatchUp(t)
	queries := map[string]eventstore.Query{
		"all": eventstore.Everything(), "a tag": eventstore.Tagged("seat:3"), "none": eventstore.Tagged("seat:99"),
		"a type":            eventstore.Typed("Freed"),
		"a type with a tag": {Items: []eventstore.Item{{Types: []string{"Freed"}, Tags: []string{"seat:3"}}}},
	}
	for name, q := range queries {
		for _, o := range []eventstore.ReadOptions{{}, {After: 1200}, {Before: 1500}, {Limit: 7}, {Backwards: true}, {Backwards: true, Limit: 1100, After: 3}, {MaxBytes: 999}} {
			p.CatchUp(t)
			before := reader.Stats().Standby
			got, err := s.Query(t.Context(), q, o)
			if err != nil {
				t.Fatal(err)
			}
			want, err := alone.Query(t.Context(), q, o)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s %+v: %d events, want %d: %v", name, o, len(got), len(want), err)
			}
			if reader.Stats().Standby == before {
				t.Errorf("%s %+v: not read from the standby: %s", name, o, reader.Problem())
			}
		}
	}
	before := reader.Stats().Standby
	n := eventstore.Projector[int]{Query: eventstore.Everything(), Apply: func(n int, _ eventstore.Event) int { return n + 1 }}.Projection()
	condition, err := s.Project(t.Context(), n)
	if err != nil || n.State != 2500 || condition.After != last || reader.Stats().Standby < before+3 {
		t.Errorf("projection: %d events up to %d, %v; %+v", n.State, condition.After, err, reader.Stats())
	}
	before = reader.Stats().Standby
	sub, err := s.Follow(eventstore.Everything(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for got := 0; got < 2500; {
		page, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got += len(page)
	}
	if reader.Stats().Standby == before {
		t.Error("a subscription was not read from the standby")
	}
}

// TestStandby_SeesWhatWasAnswered: a query that begins after the answer to an append returns its events, whether the standby has them
// or not. The events are those of one moment.
func TestStandby_SeesWhatWasAnswered(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	reader := readerOf(t, p.Pool, p.Standby)
	s := open(t, p.Pool, eventstore.Config{Standby: reader})
	writer := open(t, p.Pool, eventstore.Config{}) // as of another node
	appendSeats(t, writer, 100)
	var mu sync.Mutex
	answered := int64(0)
	var working sync.WaitGroup
	working.Go(func() {
		for range 300 {
			positions, err := allOf(writer.Append(t.Context(), event("Taken", "seat:1")))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			answered = positions[0]
			mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	})
	for range 3 {
		working.Go(func() {
			for seen := int64(0); seen < 400; {
				mu.Lock()
				want := answered
				mu.Unlock()
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
				if t.Context().Err() != nil {
					return
				}
			}
		})
	}
	working.Wait()
	if stats := reader.Stats(); stats.Standby == 0 {
		t.Errorf("%+v: %s", stats, reader.Problem())
	}
}

// TestStandby_OfFormerPrimary: the standby follows a former primary, and has events that the new primary never got. No read returns them.
func TestStandby_OfFormerPrimary(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	former := open(t, p.Pool, eventstore.Config{})
	appendSeats(t, former, 100)
	p.CatchUp(t)
	p.Detach(t)
	other := pgtest.Pair{Primary: p.Primary, Standby: pgtest.Standby(t, p.Primary), Pool: p.Pool}
	appendSeats(t, former, 100)
	other.CatchUp(t)
	pool := poolOf(t, p.Standby.URL())
	if _, err := pool.Exec(t.Context(), `SELECT pg_promote()`); err != nil {
		t.Fatal(err)
	}
	reader := readerOf(t, pool, other.Standby)
	s := open(t, pool, eventstore.Config{Standby: reader})
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
	if _, err := p.Pool.Exec(t.Context(), `SELECT tidewire.begin_history()`); err != nil { // as if it had been promoted later
		t.Fatal(err)
	}
	appendSeats(t, former, 10)
	other.CatchUp(t)
	check("with a newer history there", 150)
}
