package stream_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// several creates n streams, every second one with its own tables, and an Appender for
// each, which writes through the pool.
func several(t *testing.T, db pgtest.DB, pool *pgxpool.Pool, n int) (streams []*stream.Stream, appenders []*stream.Appender) {
	t.Helper()
	for i := range n {
		s := ensureWith(t, db.Pool, fmt.Sprint("stream-", i), stream.Options{OwnTables: i%2 == 1})
		streams = append(streams, s)
		appenders = append(appenders, run(t, pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{LockTimeout: time.Minute}})) // as long as a test holds locks
	}
	return streams, appenders
}

// occupySessions borrows all sessions of the pool, so that submitted messages wait
// in open batches until they are returned.
func occupySessions(t *testing.T, pool *pgxpool.Pool) (giveBack func()) {
	t.Helper()
	l := pg.JoinLender(pool)
	var all []*pg.Session
	for s := l.BorrowAside(nil); s != nil; s = l.BorrowAside(nil) {
		all = append(all, s)
	}
	conns := int(pool.Config().MaxConns)
	for range min(max(conns/4, 2), 8, max(conns-1, 1)) {
		s, err := l.Borrow(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	giveBack = sync.OnceFunc(func() {
		for _, s := range all {
			l.Return(s)
		}
		l.Leave()
	})
	t.Cleanup(giveBack)
	return giveBack
}

// answers are the results of one Submit to each of several Appenders.
type answers struct {
	sync.WaitGroup
	firsts []int64
	errs   []error
}

// submitAll submits one message to each Appender.
func submitAll(t *testing.T, appenders []*stream.Appender, payload string) *answers {
	t.Helper()
	all := &answers{firsts: make([]int64, len(appenders)), errs: make([]error, len(appenders))}
	for i, a := range appenders {
		all.Add(1)
		err := a.Submit(t.Context(), messages(payload), func(at stream.Appended, err error) {
			first := at.First
			defer all.Done()
			all.firsts[i], all.errs[i] = first, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// together returns the largest number of streams in one transaction.
func together(t *testing.T, db pgtest.DB) (most int) {
	t.Helper()
	err := db.Pool.QueryRow(t.Context(), `SELECT coalesce(max((SELECT count(*) FROM unnest(firsts) AS f WHERE f > 0)), 0) FROM tidewire.batch`).Scan(&most)
	if err != nil {
		t.Fatal(err)
	}
	return most
}

// TestAppenders_ShareATransaction makes 20 streams store a message each, repeatedly,
// until all but the first share one transaction. The first has no other Appender to share
// with when it begins.
func TestAppenders_ShareATransaction(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 8)
	streams, appenders := several(t, db, pool, 20)
	rounds := int64(0)
	testkit.Eventually(t, "19 streams to share a transaction", func() bool {
		rounds++
		giveBack := occupySessions(t, pool)
		all := submitAll(t, appenders, "one")
		giveBack()
		all.Wait()
		for i := range streams {
			if all.errs[i] != nil || all.firsts[i] != rounds {
				t.Errorf("stream %d: position %d, %v; want %d", i, all.firsts[i], all.errs[i], rounds)
			}
		}
		return together(t, db) >= 19
	})
	for _, s := range streams {
		wantStored(t, s, strings.TrimPrefix(strings.Repeat(", one", int(rounds)), ", "))
	}
}

// TestAppenders_OneIsRefused: PostgreSQL rejects the batch of one stream.
func TestAppenders_OneIsRefused(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 8)
	streams, appenders := several(t, db, pool, 10)
	exec(t, db.Pool, fmt.Sprintf(`ALTER TABLE tidewire.stream_%d ADD CHECK (payload <> 'one')`, streams[5].ID()))
	giveBack := occupySessions(t, pool)
	all := submitAll(t, appenders, "one")
	giveBack()
	all.Wait()
	for i, s := range streams {
		if i == 5 {
			if all.errs[i] == nil || errors.Is(all.errs[i], stream.ErrOutcomeUnknown) {
				t.Errorf("the refused message: %v", all.errs[i])
			}
			wantStored(t, s, "")
			continue
		}
		if all.errs[i] != nil {
			t.Errorf("stream %d: %v", i, all.errs[i])
		}
		wantStored(t, s, "one")
		wantAt(t, s, all.firsts[i], "one")
	}
}

// TestAppenders_SomeAreLocked: another transaction holds the locks of three streams,
// one of which is dropped meanwhile.
func TestAppenders_SomeAreLocked(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 8)
	streams, appenders := several(t, db, pool, 10)
	tx := begin(t, db.Pool, pgx.ReadCommitted)
	for _, n := range []int{0, 3, 4} {
		exec(t, tx, `SELECT pg_advisory_xact_lock(1953064037, $1)`, streams[n].ID())
	}
	free := append(append([]*stream.Appender{}, appenders[1:3]...), appenders[5:]...)
	kept := submitAll(t, []*stream.Appender{appenders[0], appenders[3], appenders[4]}, "one")
	for range 5 {
		all := submitAll(t, free, "one")
		all.Wait()
		for i, err := range all.errs {
			if err != nil {
				t.Errorf("%d of those that are free: %v", i, err)
			}
		}
	}
	exec(t, tx, `DELETE FROM tidewire.stream WHERE id = $1`, streams[4].ID())
	exec(t, tx, `SELECT tidewire.drop_stream_tables($1)`, streams[4].ID())
	commitTx(t, tx)
	kept.Wait()
	if kept.errs[0] != nil || kept.errs[1] != nil || !errors.Is(kept.errs[2], stream.ErrNotFound) {
		t.Errorf("those that were locked: %v, want none, none, and that the stream is not found", kept.errs)
	}
	wantStored(t, streams[3], "one")
}

// TestAppenders_KeepTheirOrder submits calls of all sizes to several streams at once.
// Independent of how they are written, the calls of one stream are stored and called
// back in the order in which they were submitted.
func TestAppenders_KeepTheirOrder(t *testing.T) {
	t.Parallel()
	db := setup(t)
	const calls = 150
	streams, appenders := several(t, db, smallPool(t, db, 8), 6)
	var submitting sync.WaitGroup
	for i, a := range appenders {
		submitting.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			var waiting sync.WaitGroup
			var last int64
			for n := range calls {
				size := 1 + random.IntN(3)
				if random.IntN(20) == 0 {
					size = 300 // too many to be written with others
				}
				msgs := messages(strings.Split(strings.Repeat(fmt.Sprint(n, " "), size-1)+fmt.Sprint(n), " ")...)
				pause := time.Duration(0)
				if random.IntN(15) == 0 {
					pause = time.Duration(random.IntN(20)) * time.Millisecond
				}
				waiting.Add(1)
				err := a.Submit(t.Context(), msgs, func(at stream.Appended, err error) {
					first := at.First
					defer waiting.Done()
					if err != nil || first <= last {
						t.Errorf("stream %d, call %d: position %d after %d, %v", i, n, first, last, err)
					}
					last = first
					time.Sleep(pause)
				})
				if err != nil {
					t.Error(err)
				}
				if random.IntN(4) == 0 {
					time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
				}
				if random.IntN(10) == 0 {
					waiting.Wait()
				}
			}
			waiting.Wait()
		})
	}
	submitting.Wait()
	for i, s := range streams {
		before := 0
		for _, m := range everything(t, s) {
			n := 0
			fmt.Sscan(string(m.Payload), &n)
			if n < before || n > before+1 {
				t.Fatalf("stream %d: call %d after call %d", i, n, before)
			}
			before = n
		}
		if before != calls-1 {
			t.Errorf("stream %d ends with call %d", i, before)
		}
	}
	if together(t, db) < 2 {
		t.Error("no two streams have shared a transaction")
	}
}

// TestAppenders_Requests: requests that share a round with others are stored once,
// whichever process repeats them.
func TestAppenders_Requests(t *testing.T) {
	t.Parallel()
	db := setup(t)
	streams, appenders := several(t, db, smallPool(t, db, 8), 6)
	for range 3 {
		var appending sync.WaitGroup
		for i, a := range appenders {
			for n := range 10 {
				appending.Go(func() {
					p := stream.RequestID{Client: "p", Sequence: int64(n / 2)} // each twice
					stored, err := a.AppendAs(t.Context(), p, messages(fmt.Sprint(n/2), "and")...)
					if err != nil || stored.Count() != 2 {
						t.Errorf("stream %d: %+v, %v", i, stored, err)
					}
				})
			}
		}
		appending.Wait()
	}
	for i, s := range streams {
		if n := len(everything(t, s)); n != 10 {
			t.Errorf("stream %d: %d messages, want 10", i, n)
		}
	}
}

// TestSettleTogether asks for the outcome of a transaction before it, after it, and
// while it is under way.
func TestSettleTogether(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	const send = `SELECT tidewire.append_together(7, $1, ARRAY[$2::int], ARRAY[0::bigint], ARRAY[1], ARRAY[1], ARRAY['x'::bytea], ARRAY[NULL::text], ARRAY[NULL::jsonb], ARRAY[0], '{}', '{}', '{}', '{}')`
	settle := func(number int64) (firsts []int64) {
		if err := db.Pool.QueryRow(t.Context(), `SELECT tidewire.settle_together(7, $1)`, number).Scan(&firsts); err != nil {
			t.Error(err)
		}
		return firsts
	}
	if got := settle(1); got != nil {
		t.Errorf("before it came: %v", got)
	}
	if _, err := db.Pool.Exec(t.Context(), send, int64(1), s.ID()); pg.Code(err) != pg.CodeUniqueViolation {
		t.Errorf("it comes after it was given up: %v", err)
	}
	wantStored(t, s, "")
	exec(t, db.Pool, send, int64(2), s.ID())
	if got := settle(2); len(got) != 1 || got[0] < 1 {
		t.Errorf("after it: %v", got)
	}
	for number, commit := range map[int64]bool{3: true, 4: false} {
		tx := begin(t, db.Pool, pgx.ReadCommitted)
		exec(t, tx, send, number, s.ID())
		got := make(chan []int64)
		go func() { got <- settle(number) }()
		testkit.Eventually(t, "the question to wait", func() bool {
			return value[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'`) == 1
		})
		if commit {
			commitTx(t, tx)
		} else {
			tx.Rollback(t.Context())
		}
		if firsts := <-got; (firsts != nil) != commit {
			t.Errorf("committed: %t, and the answer is %v", commit, firsts)
		}
	}
}
