package stream

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// segmented returns a stream of 40,000 messages with gaps, in several segments, and
// a function that returns a fresh handle.
func segmented(t *testing.T) (pgtest.DB, *Stream, func() *Stream) {
	t.Helper()
	db := migrated(t)
	s, err := Ensure(t.Context(), db.Pool, "long", Options{OwnTables: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`SELECT tidewire.make_room(%[1]d, 16000, 40001)`,
		`INSERT INTO tidewire.stream_%[1]d (position, payload) SELECT n, n::text::bytea FROM generate_series(1, 40000) n WHERE n %% 7 > 0 AND n NOT BETWEEN 16000 AND 19000`,
		`SELECT setval('tidewire.stream_%[1]d_position_seq', 40000)`,
	} {
		if _, err := db.Pool.Exec(t.Context(), fmt.Sprintf(sql, s.id)); err != nil {
			t.Fatal(sql, err)
		}
	}
	return db, s, func() *Stream {
		fresh, err := Lookup(t.Context(), db.Pool, "long")
		if err != nil {
			t.Fatal(err)
		}
		return fresh
	}
}

// TestRead_OftenIsReadAlike: a frequent reader, which queries the segments
// directly, gets the same messages as a rare one, both sequentially and at random
// positions.
func TestRead_OftenIsReadAlike(t *testing.T) {
	t.Parallel()
	_, s, fresh := segmented(t)
	messages, after, direct := 0, int64(0), 0
	for {
		all, err := s.Read(t.Context(), after, 90)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			break
		}
		for _, m := range all {
			if string(m.Payload) != fmt.Sprint(m.Position) || m.Position <= after {
				t.Fatalf("position %d after %d holds %q", m.Position, after, m.Payload)
			}
			after = m.Position
		}
		messages += len(all)
		if g := s.read.segment.Load(); g.covers(&window{after: after}) {
			direct++
		}
	}
	if want := 40000 - 40000/7 - 3001 + (19000/7 - 15999/7); messages != want || direct < 100 {
		t.Errorf("%d messages, want %d; %d reads were of a segment", messages, want, direct)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		from, limit := random.Int64N(40001), 1+random.IntN(300)
		got, errGot := s.Read(t.Context(), from, limit)
		want, errWant := fresh().Read(t.Context(), from, limit)
		if errGot != nil || errWant != nil {
			t.Fatal(errGot, errWant)
		}
		if len(got) > limit || len(got) == 0 != (len(want) == 0) || !prefix(got, want) {
			t.Fatalf("after %d, %d at most: %d messages, want %d", from, limit, len(got), len(want))
		}
		gotPage, _, errGot := s.page(t.Context(), from, limit, 500, s.continues)
		wantPage, _, errWant := fresh().page(t.Context(), from, limit, 500, s.continues)
		if errGot != nil || errWant != nil || !prefix(gotPage.messages, wantPage.messages) {
			t.Fatalf("page after %d: %d messages, want %d; %v, %v", from, len(gotPage.messages), len(wantPage.messages), errGot, errWant)
		}
	}
}

// prefix reports whether one slice is a prefix of the other: a read may end before
// the next segment.
func prefix(a, b []Message) bool {
	n := min(len(a), len(b))
	return (n > 0 || len(a) == len(b)) && reflect.DeepEqual(a[:n], b[:n])
}

// TestRead_SegmentDropped: a reader of a dropped segment gets an error.
func TestRead_SegmentDropped(t *testing.T) {
	t.Parallel()
	db, s, _ := segmented(t)
	for range 2 * oftenRead {
		if _, err := s.Read(t.Context(), 100, 10); err != nil {
			t.Fatal(err)
		}
	}
	if !s.read.segment.Load().covers(&window{after: 100}) {
		t.Fatal("its segment is not read directly")
	}
	for _, sql := range []string{
		`ALTER TABLE tidewire.stream_%[1]d DETACH PARTITION tidewire.stream_%[1]d_16384`, `DROP TABLE tidewire.stream_%[1]d_16384`,
		`SELECT setval('tidewire.stream_%[1]d_oldest_seq', 16385)`,
	} {
		if _, err := db.Pool.Exec(t.Context(), fmt.Sprintf(sql, s.id)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Read(t.Context(), 100, 10)
	if old, ok := errors.AsType[*TooOldError](err); !ok || old.Oldest != 16385 {
		t.Errorf("error %v, want a TooOldError with 16385", err)
	}
	if all, err := s.Read(t.Context(), 16384, 10); err != nil || len(all) == 0 {
		t.Errorf("after it: %d messages, %v", len(all), err)
	}
}
