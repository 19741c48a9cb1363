package stream_test

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// TestAppendAs_ReturnsTheFirst: a repetition stores nothing. It gets the result of the first request, whatever its own messages are, and
// Duplicate; on any node, and also in the same batch.
func TestAppendAs_ReturnsTheFirst(t *testing.T) {
	t.Parallel()
	for name, method := range allMethods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			cfg := stream.AppenderConfig{Writer: stream.WriterConfig{Method: method}}
			nodes := []*stream.Appender{run(t, db.Pool, s, cfg), run(t, pools(t, db.URL, 1)[0], s, cfg)}
			p := stream.RequestID{Client: "p", Sequence: 7}
			ask := func(a *stream.Appender, want stream.Appended, payloads ...string) {
				t.Helper()
				if got, err := a.AppendAs(soon(t), p, messages(payloads...)...); err != nil || got != want {
					t.Errorf("%d messages: %+v, %v, want %+v", len(payloads), got, err, want)
				}
			}
			ask(nodes[0], stream.Appended{First: 1, Last: 3}, "a", "b", "c")
			again := stream.Appended{First: 1, Last: 3, Duplicate: true}
			ask(nodes[0], again, "a")
			ask(nodes[1], again, "a", "b", "c", "d", "e")
			age(t, db, s, 1)
			ask(nodes[1], again, "a") // its record is in the other table
			if method != stream.Auto {
				exec(t, db.Pool, `UPDATE tidewire.request_1000_0 SET count = NULL`)
				ask(nodes[0], stream.Appended{First: 1, Last: 2, Duplicate: true}, "a", "b") // recorded before counts were recorded
			}
			wantAt(t, s, mustAppendAs(t, nodes[1], stream.RequestID{Client: "p", Sequence: 3}, "lower"), "lower")
			odd := stream.RequestID{Client: `o"d'd\,{ü}`, Sequence: 7}
			wantAt(t, s, mustAppendAs(t, nodes[0], odd, "another"), "another")
			wantAt(t, s, mustAppendAs(t, nodes[1], odd, "changed"), "another")
			got := inOneBatch(t, db.Pool, s, cfg, ":x", "q:q1 q2", ":y z", "q:q1", "r:r1", "q:q1 q2 q3")
			for i, want := range map[int]stream.Appended{1: {Last: 2}, 3: {Last: 2, Duplicate: true}, 4: {Last: 1}, 5: {Last: 2, Duplicate: true}} {
				want.First, want.Last = got[i].First, got[i].First+want.Last-1
				if got[i].err != nil || got[i].Appended != want || want.Duplicate && want.First != got[1].First {
					t.Errorf("call %d of the batch: %+v, want %+v", i, got[i], want)
				}
			}
			wantAt(t, s, got[1].First, "q1")
			wantAt(t, s, got[4].First, "r1")
			wantStored(t, s, "a, b, c, tick, lower, another, x, q1, q2, y, z, r1")
		})
	}
}

// submitted is the result of a call.
type submitted struct {
	err error
	stream.Appended
}

// inOneBatch submits all calls before the Appender runs, and returns their results.
// A call is written as client:payload; without a client nothing is before the
// colon.
func inOneBatch(t *testing.T, pool *pgxpool.Pool, s *stream.Stream, cfg stream.AppenderConfig, calls ...string) []submitted {
	t.Helper()
	a := stream.NewAppender(pool, s, cfg)
	answers := make([]submitted, len(calls))
	var waiting sync.WaitGroup
	for i, call := range calls {
		waiting.Add(1)
		done := func(at stream.Appended, err error) {
			answers[i] = submitted{err, at}
			waiting.Done()
		}
		id, text, _ := strings.Cut(call, ":")
		var err error
		if id == "" {
			err = a.Submit(t.Context(), messages(strings.Fields(text)...), done)
		} else {
			err = a.SubmitAs(t.Context(), stream.RequestID{Client: id, Sequence: 1}, messages(strings.Fields(text)...), done)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	a.Start()
	defer a.Stop()
	waiting.Wait()
	return answers
}

// TestAppendAs_RejectedIsTriedAgain uses a trigger that rejects valid messages.
func TestAppendAs_RejectedIsTriedAgain(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		refuse(t, db, tableOf(t, db, s), `new.payload = 'bad'`)
		got := inOneBatch(t, db.Pool, s, stream.AppenderConfig{}, ":x", "p:bad", "p:good", "q:y", "p:good")
		if got[1].err == nil || got[2].err != nil || got[2].First != got[4].First {
			t.Errorf("answers %v, want the second refused alone", got)
		}
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		if _, err := a.AppendAs(t.Context(), stream.RequestID{Client: "r", Sequence: 1}, messages("bad")...); err == nil {
			t.Error("a bad message was taken")
		}
		mustAppendAs(t, a, stream.RequestID{Client: "r", Sequence: 1}, "better")
		if n := len(everything(t, s)); n != 4 {
			t.Errorf("%d messages stored, want 4", n)
		}
	})
}

func TestAppendAs_Invalid(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	for _, p := range []stream.RequestID{{}, {Client: "p", Sequence: -1}, {Client: "\xff"}, {Client: "a\x00b"}, {Client: strings.Repeat("p", stream.MaxName+1)}} {
		if _, err := a.AppendAs(t.Context(), p, messages("x")...); !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", p, err)
		}
	}
	if _, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p"}); !errors.Is(err, stream.ErrInvalid) {
		t.Errorf("no messages: %v, want ErrInvalid", err)
	}
}

// TestAppendAs_CostsNothingWithout: no statements and no tables, for a stream
// without RequestIDs.
func TestAppendAs_CostsNothingWithout(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	pool, counted := countingPool(t, db.URL, "requests")
	a, stop := start(t, pool, s, stream.AppenderConfig{})
	mustAppend(t, a, messages("x")...)
	stop()
	if relations := value[int](t, db.Pool, `SELECT count(*) FROM pg_class WHERE relname LIKE 'request\_1%'`); relations != 0 || counted.count.Load() != 0 {
		t.Errorf("%d relations, %d statements; want none", relations, counted.count.Load())
	}
}

// countedConn counts writes, of which there is one a round trip.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestAppendAs_OneRoundTrip: AppendAs takes as many as Append.
func TestAppendAs_OneRoundTrip(t *testing.T) {
	t.Parallel()
	db := setup(t)
	for name, method := range allMethods {
		s := ensureNamed(t, db.Pool, name, false)
		var writes atomic.Int64
		pool := poolWith(t, db.URL, dialing(func(conn net.Conn) net.Conn { return countedConn{conn, &writes} }))
		a := run(t, pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: method}})
		// The minimum of some calls, because an Appender sometimes does other work.
		sequence := int64(0)
		least := func(call func()) (n int64) {
			n = math.MaxInt64
			for range 20 {
				before := writes.Load()
				sequence++
				call()
				n = min(n, writes.Load()-before)
			}
			return n
		}
		plain := least(func() { mustAppend(t, a, messages("x")...) })
		as := least(func() { mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: sequence}, "x") })
		if as != plain {
			t.Errorf("%s: a call took %d writes to the connection, and %d without a client", name, as, plain)
		}
	}
}

const (
	agedSQL       = `UPDATE tidewire.request_window SET since = since - $1::interval`
	agedSharedSQL = `UPDATE tidewire.shared_request_window SET since = since - $1::interval`
)

// age makes the records of the stream's clients KeepRequests old, and appends as a
// client until they are rotated.
func age(t *testing.T, db pgtest.DB, s *stream.Stream, sequence int64) {
	t.Helper()
	exec(t, db.Pool, agedSQL, stream.KeepRequests+time.Minute)
	exec(t, db.Pool, agedSharedSQL, stream.KeepRequests+time.Minute)
	tried, window := time.Now(), "request_window"
	if isShared(t, db, s) {
		tried, window = time.Time{}, "shared_request_window" // its keeper may have checked just before
	}
	a, stop := start(t, db.Pool, s, stream.AppenderConfig{})
	mustAppendAs(t, a, stream.RequestID{Client: "clock", Sequence: sequence}, "tick")
	testkit.Eventually(t, "a rotation", func() bool {
		// PostgreSQL's autovacuum may have blocked the Appender's attempt.
		if time.Since(tried) > 2*time.Second {
			tried = time.Now()
			stream.RotateRequests(t.Context(), db.Pool, s) // an error means that it still blocks
		}
		var young bool
		err := db.Pool.QueryRow(t.Context(),
			`SELECT since > clock_timestamp() - $1::interval FROM tidewire.`+window, stream.KeepRequests).Scan(&young)
		return err == nil && young
	})
	stop()
}

func TestAppendAs_Expires(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		first := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := stream.RotateRequests(ended, db.Pool, s); err == nil {
			t.Error("a rotation that failed is not tried again")
		}
		age(t, db, s, 1)
		if again := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once"); again != first {
			t.Errorf("repeated in the window: %d, want %d", again, first)
		}
		mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 3}, "late")
		age(t, db, s, 2)
		for _, sequence := range []int64{5, 4} {
			if at, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: sequence}, messages("no")...); !errors.Is(err, stream.ErrSequenceTooOld) {
				t.Errorf("sequence %d: %v, %v, want ErrSequenceTooOld", sequence, at, err)
			}
		}
		mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 3}, "late") // its record is there still
		answers := inOneBatch(t, db.Pool, s, stream.AppenderConfig{}, ":x", "p:no", ":y", "q:z")
		if !errors.Is(answers[1].err, stream.ErrSequenceTooOld) || answers[0].err != nil || answers[2].err != nil || answers[3].err != nil {
			t.Errorf("answers %v, want the second too old", answers)
		}
		for n := range int64(3) {
			age(t, db, s, 3+n)
			if _, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: 5}, messages("no")...); !errors.Is(err, stream.ErrSequenceTooOld) {
				t.Errorf("%d rotations on: %v, want ErrSequenceTooOld", n, err)
			}
		}
		mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 6}, "more")
		wantStored(t, s, "once, tick, late, tick, x, y, z, tick, tick, tick, more")
	})
}

// TestAppendAs_AfterAnOutage: while PostgreSQL is unavailable, no request can be repeated.
// Requests recorded just before can be repeated afterwards, and those that waited are stored.
func TestAppendAs_AfterAnOutage(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		const pass = `SET since = since - $1::interval, seen = seen - $1::interval`
		minutes := 10
		if isShared(t, db, s) {
			minutes++
		}
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		first := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once")
		age(t, db, s, 1) // the record is now in the table that is emptied next
		for hour := range 3 {
			exec(t, db.Pool, `UPDATE tidewire.request_window `+pass, time.Hour)
			exec(t, db.Pool, `UPDATE tidewire.shared_request_window `+pass, time.Hour)
			must(t, stream.RotateRequests(t.Context(), db.Pool, s))
			if again := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once"); again != first {
				t.Errorf("repeated after outage %d: %d, want %d", hour, again, first)
			}
		}
		mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 4}, "late")
		wantStored(t, s, "once, tick, late")
		for minute := range minutes - 6 { // in which a process checks; of each outage two minutes count
			exec(t, db.Pool, `UPDATE tidewire.request_window `+pass, time.Minute)
			exec(t, db.Pool, `UPDATE tidewire.shared_request_window `+pass, time.Minute)
			must(t, stream.RotateRequests(t.Context(), db.Pool, s))
			_, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: 5}, messages("once")...)
			if gone := errors.Is(err, stream.ErrSequenceTooOld); gone != (minute == minutes-7) {
				t.Errorf("%d minutes later: %v", minute+1, err)
			}
		}
	})
}

// TestAppendAs_RotationBesideReaders: a dump of the database reads all tables. It
// sees all records that existed when it began, and no one waits for it.
func TestAppendAs_RotationBesideReaders(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		recorded := `SELECT (SELECT count(*) FROM tidewire.request_1000_0) + (SELECT count(*) FROM tidewire.request_1000_1)`
		if isShared(t, db, s) {
			recorded = strings.ReplaceAll(recorded, "request_1000", "shared_request")
		}
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		first := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once")
		age(t, db, s, 1)
		dump := repeatableRead(t, db, recorded)
		if again := mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 5}, "once"); again != first {
			t.Errorf("repeated: %d, want %d", again, first)
		}
		for sequence := range int64(2) {
			age(t, db, s, 2+sequence)
		}
		if _, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: 5}, messages("no")...); !errors.Is(err, stream.ErrSequenceTooOld) {
			t.Errorf("repeated when the records went: %v, want ErrSequenceTooOld", err)
		}
		if rows := value[int](t, dump, recorded); rows != 2 {
			t.Errorf("the dump sees %d records, want 2", rows)
		}
	})
}

func TestAppendAs_DropTakesTheRecords(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		other := ensureNamed(t, db.Pool, "other", false)
		mustAppendAs(t, run(t, db.Pool, other, stream.AppenderConfig{}), stream.RequestID{Client: "p", Sequence: 1}, "kept")
		for sequence := range int64(3) { // in the floor, and in both tables
			mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: sequence}, "gone")
			if sequence < 2 {
				age(t, db, s, sequence)
			}
		}
		must(t, stream.Drop(t.Context(), db.Pool, "orders"))
		if _, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: 3}, messages("x")...); !errors.Is(err, stream.ErrNotFound) {
			t.Errorf("AppendAs to a dropped stream: %v, want ErrNotFound", err)
		}
		if left := value[int](t, db.Pool, `
SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'request\_1%') + (SELECT count(*) FROM tidewire.request_window)
	+ (SELECT count(*) FROM tidewire.shared_request_0 WHERE stream = $1) + (SELECT count(*) FROM tidewire.shared_request_1 WHERE stream = $1)
	+ (SELECT count(*) FROM tidewire.shared_request_floor WHERE stream = $1)`, s.ID()); left != 0 {
			t.Errorf("%d tables and rows are left", left)
		}
		fresh := ensureWith(t, db.Pool, "orders", stream.Options{})
		mustAppendAs(t, run(t, db.Pool, fresh, stream.AppenderConfig{}), stream.RequestID{Client: "p", Sequence: 1}, "new")
		wantStored(t, fresh, "new")
		wantStored(t, other, "kept")
	})
}
