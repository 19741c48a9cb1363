package stream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

func TestValidHeaders(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		`{}`: true, " \n{\"a\": \"b\"}\t": true, `{"a":{"b":[1,-2.5e3,null,true]}}`: true, `{"é":"\u20ac \ud83d\ude00 \\u0000 \n"}`: true,
		`{"n":1e308}`: true, `{"n":1E-308}`: true,
		`null`: false, `[]`: false, `"a"`: false, `{`: false, `{} {}`: false, `{'a':1}`: false, "{\"a\":\"\xff\"}": false,
		`{"a":"\u0000"}`: false, `{"\u0000":1}`: false, `{"a":"\\\u0000"}`: false,
		`{"a":"\ud83d"}`: false, `{"a":"\ud83dx"}`: false, `{"a":"\ude00"}`: false, `{"a":"\ud83d\ud83d"}`: false, `{"a":"\ud83d\n"}`: false,
		`{"n":1e309}`: false, `{"n":1e-99999}`: false, `{"n":1e99999999999999999999}`: false,
		`{"n":` + strings.Repeat("9", 401) + `}`:                          false,
		`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`: false,
		`{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`: true,
		`{"a":"` + strings.Repeat("a", MaxHeaders-8) + `"}`:               true,
		`{"a":"` + strings.Repeat("a", MaxHeaders-7) + `"}`:               false,
	} {
		err := validHeaders([]byte(text))
		if (err == nil) != ok {
			t.Errorf("%.60s: %v, want valid %t", text, err, ok)
		}
		if wrong, is := errors.AsType[*InvalidError](err); err != nil && (!is || wrong.Field != "headers") {
			t.Errorf("%.60s: %v, want an InvalidError of headers", text, err)
		}
	}
}

// TestValidHeaders_PostgreSQLTakesThem builds many texts from difficult pieces:
// jsonb has to accept every text that is valid here.
func TestValidHeaders_PostgreSQLTakesThem(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	pieces := []string{
		`{`, `}`, `[`, `]`, `"a":`, `:`, `,`, `"`, `\`, `\\`, `\u0000`, `\ud83d`, `\ude00`, `\ud83d\ude00`, `\u00e9`, `\n`, `\"`,
		`1`, `-0`, `0.5`, `e5`, `1e308`, `1e-308`, `1e400`, `null`, `true`, " ", "é", "\x01", "\x7f", `"x"`, `"x":"y"`, strings.Repeat("7", 390),
	}
	for seed := range pgtest.Seeds() {
		random := rand.New(rand.NewPCG(seed, 3))
		var valid []string
		for range 20_000 {
			var text strings.Builder
			for range random.IntN(6) {
				text.WriteString(pieces[random.IntN(len(pieces))])
			}
			headers := fmt.Sprintf(`{"k":"%s","v":[%s]}`, text.String(), pieces[random.IntN(len(pieces))])
			if validHeaders([]byte(headers)) == nil {
				valid = append(valid, headers)
			}
		}
		var taken int
		err := db.Pool.QueryRow(t.Context(), `SELECT count(text::jsonb) FROM unnest($1::text[]) AS text`, valid).Scan(&taken)
		if err != nil || taken != len(valid) || taken < 500 {
			t.Errorf("seed %d: PostgreSQL takes %d of %d, %v", seed, taken, len(valid), err)
		}
	}
}

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
	if testing.Short() {
		t.Skip("takes seconds")
	}
	_, s, fresh := segmented(t)
	messages, after, direct := 0, int64(0), 0
	for {
		all, err := s.Read(t.Context(), after, 250)
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
	if want := 40000 - 40000/7 - 3001 + (19000/7 - 15999/7); messages != want || direct < 50 {
		t.Errorf("%d messages, want %d; %d reads were of a segment", messages, want, direct)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 40 {
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

// TestAppender_IdleHasNoGoroutine: an Appender that has nothing to write alone has neither a
// goroutine nor batches. It gets them again when it writes alone, also while it stops.
func TestAppender_IdleHasNoGoroutine(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s, err := Ensure(t.Context(), db.Pool, "s", Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := NewAppender(db.Pool, s, AppenderConfig{})
	a.solo.Load().group.ReturnIdle(10 * time.Millisecond)
	a.Start()
	for i := range int64(2) {
		if first, err := a.Append(t.Context(), Message{}); err != nil || first.First != i+1 {
			t.Fatalf("%+v, %v", first, err)
		}
		testkit.Eventually(t, "the goroutine ends", func() bool { return a.solo.Load() == nil })
		if a.alone.Load() {
			t.Fatal("the Appender writes alone without a goroutine")
		}
	}
	var done sync.WaitGroup
	for range 3 { // without waiting for the answers before the end
		done.Add(1)
		if err := a.Submit(t.Context(), []Message{{}}, func(_ Appended, err error) {
			defer done.Done()
			if err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	a.Stop()
	done.Wait()
	if head, err := s.Head(t.Context()); err != nil || head != 5 {
		t.Errorf("head %d, %v", head, err)
	}
	if _, err := a.Append(t.Context(), Message{}); err == nil {
		t.Error("it accepts messages after its end")
	}
}

// TestAppender_StopsAnyTime: Start and Stop may be called in any order and number. Messages that were
// accepted before are stored.
func TestAppender_StopsAnyTime(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s, err := Ensure(t.Context(), db.Pool, "s", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for round, steps := range [][]func(*Appender){
		{(*Appender).Stop},
		{(*Appender).Stop, (*Appender).Start, (*Appender).Stop},
		{(*Appender).Start, (*Appender).Start, (*Appender).Stop, (*Appender).Stop},
	} {
		a := NewAppender(db.Pool, s, AppenderConfig{})
		stored := make(chan error, 1)
		if err := a.Submit(t.Context(), []Message{{}}, func(_ Appended, err error) { stored <- err }); err != nil {
			t.Fatal(err)
		}
		var calling sync.WaitGroup
		for _, step := range steps {
			step(a)
			calling.Go(a.Stop)
		}
		calling.Wait()
		if err := <-stored; err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
	if head, err := s.Head(t.Context()); err != nil || head != 3 {
		t.Errorf("head %d, %v", head, err)
	}
}

// TestAppender_ComesAndGoes: calls come with pauses, so that goroutines end while messages
// are added. Each message is stored once.
func TestAppender_ComesAndGoes(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	const streams, calls = 4, 20
	var calling sync.WaitGroup
	for i := range streams {
		s, err := Ensure(t.Context(), db.Pool, fmt.Sprint("s", i), Options{OwnTables: i%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		a := NewAppender(db.Pool, s, AppenderConfig{})
		a.solo.Load().group.ReturnIdle(time.Millisecond)
		a.Start()
		defer a.Stop()
		for range 2 {
			calling.Go(func() {
				for n := range calls {
					if _, err := a.Append(context.Background(), Message{}); err != nil {
						t.Error(err)
						return
					}
					if solo := a.solo.Load(); solo != nil && n%2 == 0 {
						solo.group.Wake() // a turn without anything to commit, as after soloIdle
					}
				}
			})
		}
		defer func() {
			if head, err := s.Head(context.Background()); err != nil || head != 2*calls {
				t.Errorf("%s: head %d, %v, want %d", s.Name(), head, err, 2*calls)
			}
		}()
	}
	calling.Wait()
}

// TestCommitter_FewAreSlow: when many streams seem slow, PostgreSQL itself is slow, and
// they continue to share transactions.
func TestCommitter_FewAreSlow(t *testing.T) {
	t.Parallel()
	c := &committer{}
	slow := 0
	for range 3 * maxSlow {
		a := &Appender{}
		c.noteSlow(a)
		c.noteSlow(a) // which does not count twice
		if a.isSlow() {
			slow++
		}
	}
	if slow != maxSlow {
		t.Errorf("%d streams are slow, want %d", slow, maxSlow)
	}
}
