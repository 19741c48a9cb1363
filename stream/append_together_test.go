package stream_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

// refuse makes PostgreSQL reject rows of a table.
func refuse(t *testing.T, db pgtest.DB, table, when string) {
	t.Helper()
	exec(t, db.Pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$`)
	exec(t, db.Pool, `CREATE TRIGGER refuse BEFORE INSERT ON tidewire.`+table+` FOR EACH ROW WHEN (`+when+`) EXECUTE FUNCTION refuse()`)
}

// latch makes inserts into a stream with its own tables wait until it is opened.
func latch(t *testing.T, db pgtest.DB, s *stream.Stream) (open func()) {
	t.Helper()
	exec(t, db.Pool, `CREATE TABLE public.latch (open boolean)`)
	exec(t, db.Pool, `CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		WHILE NOT EXISTS (SELECT FROM public.latch) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN NEW; END $$`)
	exec(t, db.Pool, fmt.Sprintf(`CREATE TRIGGER hold BEFORE INSERT ON tidewire.stream_%d FOR EACH ROW EXECUTE FUNCTION public.hold()`, s.ID()))
	return func() { exec(t, db.Pool, `INSERT INTO public.latch VALUES (true)`) }
}

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
func together(t *testing.T, db pgtest.DB) int {
	t.Helper()
	return value[int](t, db.Pool, `SELECT coalesce(max((SELECT count(*) FROM unnest(firsts) AS f WHERE f > 0)), 0) FROM tidewire.batch`)
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

// TestAppenders_OneIsRefused: PostgreSQL rejects the batch of one stream, and the record of one stream's request. The others are stored.
func TestAppenders_OneIsRefused(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 8)
	streams, appenders := several(t, db, pool, 10)
	exec(t, db.Pool, fmt.Sprintf(`ALTER TABLE tidewire.stream_%d ADD CHECK (payload <> 'one')`, streams[5].ID()))
	refuse(t, db, "shared_request_0", `new.client = 'bad'`)
	giveBack := occupySessions(t, pool)
	all := submitAll(t, appenders, "one")
	errs := make([]error, len(appenders))
	var requests sync.WaitGroup
	for i := 0; i < len(appenders); i += 2 { // those that share tables
		requests.Add(1)
		id := stream.RequestID{Client: "good"}
		if i == 8 {
			id.Client = "bad"
		}
		if err := appenders[i].SubmitAs(t.Context(), id, messages("two"), func(_ stream.Appended, err error) { errs[i] = err; requests.Done() }); err != nil {
			t.Fatal(err)
		}
	}
	giveBack()
	all.Wait()
	requests.Wait()
	for i, s := range streams {
		want := "one"
		if i%2 == 0 && i != 8 {
			want = "one, two"
		}
		if i == 5 {
			want = ""
		}
		wantStored(t, s, want)
		for what, err := range map[string]error{"message": all.errs[i], "request": errs[i]} {
			if refused := i == 5 && what == "message" || i == 8 && what == "request"; refused != (err != nil) || errors.Is(err, stream.ErrOutcomeUnknown) {
				t.Errorf("stream %d, %s: %v", i, what, err)
			}
		}
	}
}

// TestAppenders_KeepTheirOrder submits calls of all sizes to several streams at once. Independent of how they are written, the calls of
// one stream are stored and called back in the order in which they were submitted.
func TestAppenders_KeepTheirOrder(t *testing.T) {
	t.Parallel()
	db := setup(t)
	const calls = 60
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
				msgs := messages(slices.Repeat([]string{fmt.Sprint(n)}, size)...)
				waiting.Add(1)
				err := a.Submit(t.Context(), msgs, func(at stream.Appended, err error) {
					defer waiting.Done()
					if err != nil || at.First <= last {
						t.Errorf("stream %d, call %d: position %d after %d, %v", i, n, at.First, last, err)
					}
					last = at.First
				})
				if err != nil {
					t.Error(err)
				}
				if random.IntN(6) == 0 {
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

// TestAppendTogether_Heads stores batches with heads that are unknown, right, outdated, or unknown to
// the standby that took over: each batch continues at the end of its stream, whatever head the caller
// gives.
func TestAppendTogether_Heads(t *testing.T) {
	t.Parallel()
	db, a := ensure(t)
	b := ensureNamed(t, db.Pool, "b", false)
	own := ensureNamed(t, db.Pool, "own", true)
	const send = `SELECT firsts FROM tidewire.append_together(7, $1, $2, $3, $4, $5,
		array_fill('x'::text::bytea, ARRAY[cardinality($5::int[])]), array_fill(NULL::text, ARRAY[cardinality($5::int[])]), array_fill(NULL::jsonb, ARRAY[cardinality($5::int[])]),
		ARRAY[0, 0, 0], '{}', '{}', '{}', '{}')`
	ends := []int64{0, 0, 0}
	for n, heads := range [][]int64{{0, 0, 0}, {1, 2, 3}, {0, 0, 0}, {1, 1, 1}, {100, 100, 100}, {5, 10, 15}} {
		t.Run(fmt.Sprint(n, heads), func(t *testing.T) {
			sizes, batches := []int32{1, 2, 3}, []int32{1, 2, 2, 3, 3, 3}
			if n%2 == 1 { // a row for each batch
				sizes, batches = []int32{1, 1, 1}, []int32{1, 2, 3}
			}
			var firsts []int64
			ids := []int32{a.ID(), b.ID(), own.ID()}
			must(t, db.Pool.QueryRow(t.Context(), send, n+1, ids, heads, sizes, batches).Scan(&firsts))
			var want []int64
			for i := range ends {
				want = append(want, ends[i]+1)
				ends[i] += int64(sizes[i])
			}
			if !slices.Equal(firsts, want) {
				t.Errorf("at %d, want %d", firsts, want)
			}
		})
	}
	for i, s := range []*stream.Stream{a, b, own} {
		all := everything(t, s)
		if n := len(all); int64(n) != ends[i] || all[n-1].Position != ends[i] {
			t.Errorf("stream %d: %d messages, the last at %d, want %d", i, n, all[n-1].Position, ends[i])
		}
	}
}
