package stream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// run starts an Appender, which is stopped when the test ends.
func run(t *testing.T, pool *pgxpool.Pool, s *stream.Stream, cfg stream.AppenderConfig) *stream.Appender {
	t.Helper()
	a, _ := start(t, pool, s, cfg)
	return a
}

// start is run with a stop that may be called earlier, and more than once.
func start(t *testing.T, pool *pgxpool.Pool, s *stream.Stream, cfg stream.AppenderConfig) (a *stream.Appender, stop func()) {
	t.Helper()
	a = stream.NewAppender(pool, s, cfg)
	a.Start()
	t.Cleanup(a.Stop)
	return a, a.Stop
}

func mustAppend(t *testing.T, a *stream.Appender, msgs ...stream.Message) (first int64) {
	t.Helper()
	first, err := firstOf(a.Append(t.Context(), msgs...))
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// everything reads the whole stream in pages.
func everything(t *testing.T, s *stream.Stream) (all []stream.Message) {
	t.Helper()
	for after := int64(0); ; after = all[len(all)-1].Position {
		page, err := s.Read(t.Context(), after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}

var bothMethods = map[string]stream.Method{"array": stream.Array, "copy": stream.Copy}

// TestAppender_MethodsStoreTheSame compares the contents of the tables, column by
// column.
func TestAppender_MethodsStoreTheSame(t *testing.T) {
	t.Parallel()
	db := setup(t)
	msgs := []stream.Message{
		{},
		{Key: "k", Headers: json.RawMessage(`{"b": [1, "ü"], "a": null}`), Payload: []byte("text")},
		{Key: strings.Repeat("é", stream.MaxKey/2), Payload: []byte{0, 0xff}},
		{Headers: json.RawMessage(`{}`)},
		{Headers: json.RawMessage{}, Payload: bytes.Repeat([]byte{7}, 1<<20)},
		{Key: "last", Payload: []byte("end")},
	}
	type columns struct {
		Position     int64
		Key, Headers *string
		Payload      []byte
	}
	want := []columns{
		{1, nil, nil, []byte{}},
		{2, new("k"), new(`{"a": null, "b": [1, "ü"]}`), []byte("text")},
		{3, &msgs[2].Key, nil, []byte{0, 0xff}},
		{4, nil, new(`{}`), []byte{}},
		{5, nil, nil, msgs[4].Payload},
		{6, new("last"), nil, []byte("end")},
	}
	for name, method := range bothMethods {
		s := ensureWith(t, db.Pool, name, stream.Options{Keyed: true})
		a := run(t, db.Pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: method}})
		if first := mustAppend(t, a, msgs...); first != 1 {
			t.Errorf("%s: first position %d", name, first)
		}
		rows, err := db.Pool.Query(t.Context(), fmt.Sprintf(
			`SELECT position, key, headers::text, payload FROM tidewire.stream_%d ORDER BY position`, s.ID()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[columns])
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %d rows, %v", name, len(got), err)
		}
		for i := range want {
			if g, w := asText(got[i]), asText(want[i]); g != w {
				t.Errorf("%s: row %d is %.200s, want %.200s", name, i, g, w)
			}
		}
		for i, m := range everything(t, s) {
			if m.Position != int64(i+1) || m.Key != msgs[i].Key || !bytes.Equal(m.Payload, msgs[i].Payload) ||
				(len(m.Headers) == 0) != (len(msgs[i].Headers) == 0) || time.Since(m.Time).Abs() > time.Minute {
				t.Errorf("%s: read %d %q %s at %v, %d bytes", name, m.Position, m.Key, m.Headers, m.Time, len(m.Payload))
			}
		}
	}
}

// asText formats values with pointers, for comparing and printing.
func asText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// TestAppender_AnswersInOrder submits from many goroutines: the messages of a call
// are consecutive, and callbacks come one at a time, in the order of positions; the
// race detector checks that.
func TestAppender_AnswersInOrder(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	next, committed, answered := int64(1), int64(0), 0
	a, stop := start(t, db.Pool, s, stream.AppenderConfig{
		MaxBatch: 50,
		Writer:   stream.WriterConfig{CopyRows: 20},
		OnCommit: func(last int64) {
			if last != next-1 || last <= committed {
				t.Errorf("OnCommit(%d) after position %d, last time %d", last, next-1, committed)
			}
			committed = last
		},
	})
	const callers, calls = 20, 30
	var calling sync.WaitGroup
	for c := range callers {
		calling.Go(func() {
			for n := range calls {
				msgs := make([]stream.Message, 1+(c+n)%5)
				for i := range msgs {
					msgs[i] = stream.Message{Payload: fmt.Appendf(nil, "%d %d %d", c, n, i)}
				}
				err := a.Submit(t.Context(), msgs, func(at stream.Appended, err error) {
					first := at.First
					if err != nil || first != next {
						t.Errorf("call %d of %d: first %d, %v, want %d", n, c, first, err, next)
					}
					next = first + int64(len(msgs))
					answered++
				})
				if err != nil {
					t.Error(err)
				}
				clear(msgs) // Submit has copied them
			}
		})
	}
	calling.Wait()
	stop()
	if answered != callers*calls || committed != next-1 {
		t.Errorf("%d answers, want %d; committed %d of %d", answered, callers*calls, committed, next-1)
	}
	all := everything(t, s)
	if int64(len(all)) != next-1 {
		t.Fatalf("%d messages stored, want %d", len(all), next-1)
	}
	var c, n, i, expect int
	for _, m := range all {
		if _, err := fmt.Sscan(string(m.Payload), &c, &n, &i); err != nil || i != expect {
			t.Fatalf("message %q at %d, %v, want part %d of a call", m.Payload, m.Position, err, expect)
		}
		if expect++; expect == 1+(c+n)%5 {
			expect = 0
		}
	}
}

func TestAppender_RefusesInvalidMessages(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	for name, msgs := range map[string][]stream.Message{
		"none":         {},
		"long key":     {{Key: strings.Repeat("k", stream.MaxKey+1)}},
		"NUL in key":   {{Key: "a\x00"}},
		"bytes in key": {{Key: "\xff"}},
		"headers":      {{Payload: []byte("good")}, {Headers: json.RawMessage(`{"a":"\u0000"}`)}},
		"large":        {{Payload: make([]byte, stream.MaxAppend)}},
	} {
		if _, err := a.Append(t.Context(), msgs...); !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if first := mustAppend(t, a, stream.Message{}); first != 1 {
		t.Errorf("first position %d: something was stored before", first)
	}
}

// TestAppender_RefusesOnlyWhatPostgreSQLDoes puts bad messages in a batch with good
// ones of other callers, and of the same caller.
func TestAppender_RefusesOnlyWhatPostgreSQLDoes(t *testing.T) {
	t.Parallel()
	for name, method := range bothMethods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := ensureOwn(t)
			exec(t, db.Pool, `ALTER TABLE tidewire.stream_1000 ADD CHECK (payload <> 'bad')`)
			a := stream.NewAppender(db.Pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: method}})
			positions := make(map[string]int64)
			var refused, last int64
			for n := range 20 {
				msgs := []stream.Message{{Key: "k", Payload: fmt.Append(nil, n)}, {Payload: []byte("good")}}
				if n%7 == 3 {
					msgs[1].Payload = []byte("bad")
				}
				err := a.Submit(t.Context(), msgs, func(at stream.Appended, err error) {
					first := at.First
					if err == nil {
						positions[fmt.Sprint(n)] = first
						if first <= last {
							t.Errorf("answer for %d after %d", first, last)
						}
						last = first
						return
					}
					if refused++; pg.Code(err) != "23514" || n%7 != 3 {
						t.Errorf("call %d: %v", n, err)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			a.Stop() // writes all in one batch
			if refused != 3 || len(positions) != 17 {
				t.Errorf("%d calls refused and %d stored, want 3 and 17", refused, len(positions))
			}
			all := everything(t, s)
			if len(all) != 34 {
				t.Errorf("%d messages, want 34", len(all))
			}
			for _, m := range all {
				if m.Key == "k" && positions[string(m.Payload)] != m.Position {
					t.Errorf("call %s is at %d, its answer said %d", m.Payload, m.Position, positions[string(m.Payload)])
				}
			}
		})
	}
}

// TestAppender_ManyOnFewConnections runs many more Appenders than the pool has connections. Streams whose locks another
// transaction holds delay no other stream, whether there are connections to wait on or not.
func TestAppender_ManyOnFewConnections(t *testing.T) {
	t.Parallel()
	for conns, c := range map[int32]struct{ streams, locked, calls int }{2: {6, 2, 10}, 8: {24, 16, 3}} {
		t.Run(fmt.Sprint(conns), func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			pool := smallPool(t, db, conns)
			tx := begin(t, db.Pool, pgx.ReadCommitted)
			var calling, waiting sync.WaitGroup
			for n := range c.streams {
				s := ensureWith(t, db.Pool, fmt.Sprint("room ", n), stream.Options{})
				running := &calling
				if n < c.locked {
					running = &waiting
					exec(t, tx, `SELECT pg_advisory_xact_lock(1953064037, $1)`, s.ID())
				}
				a := run(t, pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{LockTimeout: time.Minute}})
				running.Go(func() {
					for i := range c.calls {
						if _, err := a.Append(t.Context(), messages(fmt.Sprint(i))...); err != nil {
							t.Errorf("stream %d: %v", n, err)
						}
					}
					if n := len(everything(t, s)); n != c.calls {
						t.Errorf("%d messages stored, want %d", n, c.calls)
					}
				})
			}
			calling.Wait()
			commitTx(t, tx)
			waiting.Wait()
		})
	}
}

// TestAppender_FarNodeGetsItsTurn lets another node write as fast as it can: the head known to the first node is outdated whenever it
// writes.
func TestAppender_FarNodeGetsItsTurn(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	near := run(t, db.Pool, s, stream.AppenderConfig{})
	loading, enough := context.WithCancel(soon(t))
	var calling sync.WaitGroup
	for range 20 {
		calling.Go(func() {
			for loading.Err() == nil {
				if _, err := near.Append(loading, stream.Message{}); err != nil && loading.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	far := run(t, pools(t, db.URL, 1)[0], s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: stream.Copy}})
	for n := range 10 {
		if _, err := far.Append(soon(t), stream.Message{}); err != nil {
			t.Fatalf("append %d: %v", n, err)
		}
	}
	enough()
	calling.Wait()
}
