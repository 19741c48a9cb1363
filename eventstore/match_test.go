package eventstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// oddStrings are tags and types that have a meaning to some of the layers in
// between, and some that share a tag's beginning.
var oddStrings = []string{
	"a", "A", "a ", " a", "ab", "NULL", "null", `"`, `""`, `\`, `\\`, `a\"b`, `{a,b}`, "{}", ",", "'", "''; --", "%", "_", "$1",
	"grün", "gru\u0308n", "日本語", "\u200b", "\n", "\t", "\x01", "\x7f", "😀", "key:value", "key:value:more", "key:",
}

func oddEvent(random *rand.Rand) eventstore.Event {
	e := eventstore.Event{Type: oddStrings[random.IntN(8)], Tags: someOf(random, oddStrings, 0, 6)}
	if random.IntN(10) == 0 && len(e.Tags) > 0 {
		e.Tags = append(e.Tags, e.Tags[0]) // twice is once
	}
	return e
}

func oddQuery(random *rand.Rand) eventstore.Query {
	var q eventstore.Query
	for range random.IntN(4) {
		item := eventstore.Item{Types: someOf(random, oddStrings[:10], 0, 3), Tags: someOf(random, oddStrings, 0, 3)}
		q.Items = append(q.Items, item)
	}
	return q
}

// TestQuery_MatchesAsPlainGo compares what PostgreSQL finds, and what the tail
// finds, with a plain loop over random events.
func TestQuery_MatchesAsPlainGo(t *testing.T) {
	t.Parallel()
	db := setup(t)
	for seed := range pgtest.Seeds() {
		random := rand.New(rand.NewPCG(seed, 1))
		s, err := ensureStore(t.Context(), db.Pool, fmt.Sprint("odd", seed), eventstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		// Another Store knows nothing in memory: PostgreSQL decides for it.
		cold, err := lookupStore(t.Context(), db.Pool, s.Name(), eventstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		events := make([]eventstore.Event, 600)
		for i := range events {
			events[i] = oddEvent(random)
		}
		for chunk := range slices.Chunk(events, 50) {
			mustAppend(t, s, chunk...)
		}
		for range 300 {
			q, after := oddQuery(random), int64(random.IntN(601)*random.IntN(2))
			var want []int64
			for i, e := range events {
				if int64(i+1) > after && plainMatch(q, e.Type, e.Tags) {
					want = append(want, int64(i+1))
				}
			}
			wantPositions(t, s, q, eventstore.ReadOptions{After: after}, want)
			wantPositions(t, s, q, eventstore.ReadOptions{After: after, Backwards: true, Limit: 7}, reversed(want)[:min(7, len(want))])
			for name, store := range map[string]*eventstore.Store{"tail": s, "PostgreSQL": cold} {
				if len(want) == 0 {
					break // it would be appended, and the tail go on
				}
				_, err := store.AppendIf(t.Context(), events[:1], eventstore.Condition{FailIfEventsMatch: q, After: after})
				var conflict *eventstore.ConflictError
				if !errors.As(err, &conflict) || conflict.Position != want[0] {
					t.Fatalf("%s: %+v after %d: %v, want a conflict at %d", name, q, after, err, want[0])
				}
			}
		}
		if n := s.Stats().DecidedInMemory; n == 0 {
			t.Error("the tail decided nothing")
		}
		s.Close(t.Context()) // each keeps a connection
		cold.Close(t.Context())
	}
}

func wantPositions(t *testing.T, s *eventstore.Store, q eventstore.Query, options eventstore.ReadOptions, want []int64) {
	t.Helper()
	got, err := s.Query(t.Context(), q, options)
	if err != nil {
		t.Fatal(err)
	}
	var positions []int64
	for _, e := range got {
		positions = append(positions, e.Position)
	}
	if !slices.Equal(positions, want) {
		t.Fatalf("%+v %+v:\ngot  %v\nwant %v", q, options, positions, want)
	}
}

func TestEvent_ComesBackAsItWas(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	var events []eventstore.Event
	for i, text := range oddStrings {
		events = append(events, eventstore.Event{
			Type: text, Tags: oddStrings[i:], Data: []byte("\x00\xff" + text), ID: fmt.Sprint(i, text),
		})
	}
	events = append(events, eventstore.Event{Type: "bare"}, eventstore.Event{Type: "json", Data: []byte(`{ "a" : 1 }`), JSON: true})
	positions := mustAppend(t, s, events...)
	for i, got := range everything(t, s) {
		want := events[i]
		if got.Position != positions[i] || got.Time.IsZero() || got.Type != want.Type || got.ID != want.ID || got.JSON != want.JSON ||
			!slices.Equal(got.Tags, want.Tags) || string(got.Data) != string(want.Data) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
