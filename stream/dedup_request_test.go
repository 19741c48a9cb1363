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
	"github.com/tidewire/tidewire/stream"
)

// allMethods are bothMethods, and Auto, with which a stream stays shared.
var allMethods = map[string]stream.Method{"auto": stream.Auto, "array": stream.Array, "copy": stream.Copy}

func mustAppendAs(t *testing.T, a *stream.Appender, p stream.RequestID, payloads ...string) (first int64) {
	t.Helper()
	stored, err := a.AppendAs(t.Context(), p, messages(payloads...)...)
	if err != nil {
		t.Fatal(err)
	}
	return stored.First
}

// firstOf is the position of the first message.
func firstOf(at stream.Appended, err error) (int64, error) { return at.First, err }

func messages(payloads ...string) (all []stream.Message) {
	for _, p := range payloads {
		all = append(all, stream.Message{Payload: []byte(p)})
	}
	return all
}

// wantStored wants the payloads, in this order.
func wantStored(t *testing.T, s *stream.Stream, want string) {
	t.Helper()
	if got := strings.Join(payloads(t, everything(t, s), nil), ", "); got != want {
		t.Errorf("stored: %s\n  want: %s", got, want)
	}
}

// wantAt wants the message at the position.
func wantAt(t *testing.T, s *stream.Stream, position int64, want string) {
	t.Helper()
	for _, m := range everything(t, s) {
		if m.Position == position && string(m.Payload) == want {
			return
		}
	}
	t.Errorf("%q is not at %d", want, position)
}

// TestAppendAs_TellsOfTheFirst: a repetition stores nothing. It gets the result of the first request, whatever its own messages are, and
// Duplicate; on any node, and also in the same batch.
func TestAppendAs_TellsOfTheFirst(t *testing.T) {
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

// soon ends before the test would hang.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
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

func refusedIsLookedAtAnew(t *testing.T, db pgtest.DB, s *stream.Stream) {
	exec(t, db.Pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$`)
	table := "stream_1000"
	if isShared(t, db, s) {
		table = "shared_message"
	}
	exec(t, db.Pool, `CREATE TRIGGER refuse BEFORE INSERT ON tidewire.`+table+` FOR EACH ROW WHEN (new.payload = 'bad') EXECUTE FUNCTION refuse()`)
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
		// The minimum of some rounds, because an Appender sometimes does other work.
		sequence := int64(0)
		least := func(call func()) (n int64) {
			n = math.MaxInt64
			for range 5 {
				before := writes.Load()
				for range 10 {
					sequence++
					call()
				}
				n = min(n, writes.Load()-before)
			}
			return n
		}
		plain := least(func() { mustAppend(t, a, messages("x")...) })
		as := least(func() { mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: sequence}, "x") })
		if as != plain {
			t.Errorf("%s: 10 calls took %d writes to the connection, and %d without a client", name, as, plain)
		}
	}
}
