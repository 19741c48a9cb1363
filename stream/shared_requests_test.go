package stream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// wantRequest wants the request to be answered from its record.
func wantRequest(t *testing.T, a *stream.Appender, p stream.RequestID, want stream.Appended) {
	t.Helper()
	want.Duplicate = true
	if got, err := a.AppendAs(soon(t), p, messages("again")...); err != nil || got != want {
		t.Errorf("%v repeated: %+v, %v, want %+v", p, got, err, want)
	}
}

func wantOldRequest(t *testing.T, a *stream.Appender, p stream.RequestID) {
	t.Helper()
	if got, err := a.AppendAs(soon(t), p, messages("again")...); !errors.Is(err, stream.ErrSequenceTooOld) {
		t.Errorf("%v repeated: %+v, %v, want ErrSequenceTooOld", p, got, err)
	}
}

// sharedRecords counts the rows of a stream in the shared tables: records in each, and floors.
func sharedRecords(t *testing.T, db pgtest.DB, s *stream.Stream) (counts [3]int) {
	t.Helper()
	err := db.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM tidewire.shared_request_0 WHERE stream = $1),
		(SELECT count(*) FROM tidewire.shared_request_1 WHERE stream = $1), (SELECT count(*) FROM tidewire.shared_request_floor WHERE stream = $1)`,
		s.ID()).Scan(&counts[0], &counts[1], &counts[2])
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// rotateShared rotates the shared records once, as if they had expired. A node that checks at the
// same time may do the rotation instead.
func rotateShared(t *testing.T, db pgtest.DB, s *stream.Stream) {
	t.Helper()
	before := turn(t, db)
	exec(t, db.Pool, agedSharedSQL, 2*stream.KeepRequests)
	testkit.Eventually(t, "a rotation", func() bool {
		if err := stream.RotateRequests(t.Context(), db.Pool, s); err != nil {
			t.Errorf("rotate: %v", err)
		}
		return turn(t, db) > before
	})
	if after := turn(t, db); after != before+1 {
		t.Errorf("turn %d comes after %d", after, before)
	}
}

// turn returns how often the records were rotated. Its last bit is the table in use.
func turn(t *testing.T, db pgtest.DB) (n int) {
	t.Helper()
	must(t, db.Pool.QueryRow(t.Context(), `SELECT turn FROM tidewire.shared_request_window`).Scan(&n))
	return n
}

// awaitLockWaiter waits until a session waits for a lock in the database of the test.
func awaitLockWaiter(t *testing.T, db pgtest.DB) {
	t.Helper()
	testkit.Eventually(t, "somebody to wait for a lock", func() bool {
		return value[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	})
}

// TestSharedRequests_ManyStreams: many streams to which a client appends stay shared, and share
// transactions, also where some of the requests are repeated.
func TestSharedRequests_ManyStreams(t *testing.T) {
	t.Parallel()
	notShort(t)
	db := setup(t)
	const n = 60
	pool, otherPool := smallPool(t, db, 8), smallPool(t, db, 8)
	streams := make([]*stream.Stream, n)
	appenders, others := make([]*stream.Appender, n), make([]*stream.Appender, n)
	for i := range streams {
		streams[i] = ensureNamed(t, db.Pool, fmt.Sprint("s", i), false)
		appenders[i] = run(t, pool, streams[i], stream.AppenderConfig{})
		others[i] = run(t, otherPool, ensureNamed(t, otherPool, fmt.Sprint("s", i), false), stream.AppenderConfig{})
	}
	// submit sends a message and a request to each stream, if possible in one round.
	submit := func(pool *pgxpool.Pool, appenders []*stream.Appender, sequence func(i int) int64) []stream.Appended {
		t.Helper()
		got := make([]stream.Appended, n)
		var requests sync.WaitGroup
		giveBack := occupySessions(t, pool)
		plain := submitAll(t, appenders, "plain")
		for i, a := range appenders {
			requests.Add(1)
			p := stream.RequestID{Client: "p", Sequence: sequence(i)}
			err := a.SubmitAs(t.Context(), p, messages("x"), func(s stream.Appended, err error) {
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
				}
				got[i] = s
				requests.Done()
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		giveBack()
		plain.Wait()
		requests.Wait()
		if err := errors.Join(plain.errs...); err != nil {
			t.Error(err)
		}
		return got
	}
	rounds := int64(0)
	testkit.Eventually(t, "all but the first share a transaction", func() bool {
		rounds++
		for i, got := range submit(pool, appenders, func(int) int64 { return rounds }) {
			if want := (stream.Appended{First: 2 * rounds, Last: 2 * rounds}); got != want {
				t.Errorf("stream %d: %+v, want %+v", i, got, want)
			}
		}
		return together(t, db) >= n-1
	})
	rotateShared(t, db, streams[0]) // so that no primary key rejects a repetition
	// Every second one is new to its stream.
	for i, got := range submit(otherPool, others, func(i int) int64 { return rounds + int64(i%2) }) {
		if want := (stream.Appended{First: 2 * (rounds + int64(i%2)), Last: 2 * (rounds + int64(i%2)), Duplicate: i%2 == 0}); got != want {
			t.Errorf("stream %d, of which some are repeated: %+v, want %+v", i, got, want)
		}
	}
	if own := value[int](t, db.Pool, `SELECT count(*) FROM tidewire.stream WHERE NOT shared`); own != 0 {
		t.Errorf("%d streams have their own tables", own)
	}
	if stored, want := value[int](t, db.Pool, `SELECT count(*) FROM tidewire.shared_message`), 2*n*int(rounds)+n+n/2; stored != want {
		t.Errorf("%d messages, want %d", stored, want)
	}
}

// TestSharedRequests_MoveCarriesThem: the records of requests are the same after a move, and
// are rotated as before.
func TestSharedRequests_MoveCarriesThem(t *testing.T) {
	t.Parallel()
	for _, inUse := range []int{0, 1} {
		t.Run(fmt.Sprint(inUse), func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			other := ensureNamed(t, db.Pool, "other", false)
			a, b := run(t, db.Pool, s, stream.AppenderConfig{}), run(t, db.Pool, other, stream.AppenderConfig{})
			if inUse == 0 {
				rotateShared(t, db, s)
			}
			request := func(sequence int64) stream.RequestID { return stream.RequestID{Client: "p", Sequence: sequence} }
			for sequence := range int64(3) {
				mustAppendAs(t, a, request(10*sequence), "a", "b")
				mustAppendAs(t, b, request(10*sequence), "c")
				if sequence < 2 {
					rotateShared(t, db, s)
				}
			}
			if n := turn(t, db); n != 3-inUse {
				t.Fatalf("turn %d", n)
			}
			check := func() {
				t.Helper()
				wantOldRequest(t, a, request(0))
				wantOldRequest(t, b, request(0))
				for n := range int64(2) {
					wantRequest(t, a, request(10+10*n), stream.Appended{First: 3 + 2*n, Last: 3 + 2*n + 1})
					wantRequest(t, b, request(10+10*n), stream.Appended{First: 2 + n, Last: 2 + n})
				}
			}
			check()
			before := sharedRecords(t, db, other)
			moveStream(t, db.Pool, s)
			if got := sharedRecords(t, db, s); got != [3]int{} || before != [3]int{1, 1, 1} || sharedRecords(t, db, other) != before {
				t.Errorf("of the stream that has moved %v are left, and of the other %v of %v", got, sharedRecords(t, db, other), before)
			}
			check()
			exec(t, db.Pool, agedSQL, stream.KeepRequests)
			moved, err := stream.Lookup(t.Context(), db.Pool, "orders")
			if err == nil {
				err = stream.RotateRequests(t.Context(), db.Pool, moved)
			}
			if err != nil {
				t.Fatal(err)
			}
			wantOldRequest(t, a, request(10))
			wantRequest(t, a, request(20), stream.Appended{First: 5, Last: 6})
			mustAppendAs(t, a, request(30), "d")
			wantStored(t, s, "a, b, a, b, a, b, d")
		})
	}
}

// appendAs stores one message like a client's first request, without the commit.
func appendAs(t *testing.T, tx pgx.Tx, s *stream.Stream, p stream.RequestID, payload string) {
	t.Helper()
	exec(t, tx, `SELECT tidewire.take_shared($1, 1, $2, $3)`, s.ID(), int64(s.ID()), p.Sequence)
	exec(t, tx, `SELECT tidewire.record_requests($1, 1, ARRAY[$2], ARRAY[$3::bigint], ARRAY[0::bigint], ARRAY[1])`, s.ID(), p.Client, p.Sequence)
	exec(t, tx, `INSERT INTO tidewire.shared_message (stream, position, keyed, payload) VALUES ($1, tidewire.shared_head($1) + 1, true, $2)`, s.ID(), []byte(payload))
}

// TestSharedRequests_MovesWhileItIsStored: the move waits for the first request, and carries its
// record.
func TestSharedRequests_MovesWhileItIsStored(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	p := stream.RequestID{Client: "p", Sequence: 1}
	request := begin(t, db.Pool, pgx.ReadCommitted)
	appendAs(t, request, s, p, "once")
	moved := make(chan error, 1)
	go func() {
		_, err := db.Pool.Exec(context.Background(), `SELECT tidewire.own_stream($1)`, s.ID())
		moved <- err
	}()
	awaitLockWaiter(t, db)
	commitTx(t, request)
	must(t, <-moved)
	if got := sharedRecords(t, db, s); got != [3]int{} {
		t.Errorf("%v are left", got)
	}
	for _, pool := range append(pools(t, db.URL, 1), db.Pool) {
		wantRequest(t, run(t, pool, s, stream.AppenderConfig{}), p, stream.Appended{First: 1, Last: 1})
	}
	wantStored(t, s, "once")
}

// TestSharedRequests_RecordIsRefused: PostgreSQL rejects the record of one request. The
// other calls of its batch are stored.
func TestSharedRequests_RecordIsRefused(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	refuse(t, db, "shared_request_0", `new.client = 'bad'`)
	for i, got := range inOneBatch(t, db.Pool, s, stream.AppenderConfig{}, ":x", "bad:no", "good:yes", ":y") {
		if refused := i == 1; (got.err != nil) != refused || errors.Is(got.err, stream.ErrOutcomeUnknown) {
			t.Errorf("call %d: %+v", i, got)
		}
	}
	wantStored(t, s, "x, yes, y")
}
