package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
)

// Migrated are databases with the newest schema.
var Migrated = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

func testQueue(t *testing.T) *Queue {
	t.Helper()
	return testQueueOf(t, Options{})
}

func testQueueOf(t *testing.T, opts Options) *Queue {
	t.Helper()
	db := Migrated.Open(t)
	q, err := Ensure(t.Context(), db.Pool, "journal", opts)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// mustWrite sends a request and wants the outcome.
func mustWrite(t *testing.T, q *Queue, s *state, r request, want outcome) {
	t.Helper()
	r.seen = s.seen
	if until, ok := s.leases[r.own]; ok {
		r.validUntil = &until
	}
	a, err := q.members[0].write(t.Context(), q.members[0].byPool(), r)
	if err != nil {
		t.Fatal(err)
	}
	if a.outcome != want {
		t.Fatalf("outcome %d of %+v, want %d", a.outcome, r.entries, want)
	}
	for _, e := range a.news {
		if err := s.apply(e); err != nil {
			t.Fatal(err)
		}
	}
}

func done(token int64, spans ...span) entry { return of(kindDone, token, spans...) }

// of is an entry of a kind about positions.
func of(k kind, token int64, spans ...span) entry {
	return entry{kind: k, token: token, body: encodeSpans(spans)}
}

// lease begins a long lease for the token, and claims that many positions.
func lease(t *testing.T, q *Queue, s *state, token, claim int64) {
	t.Helper()
	mustWrite(t, q, s, request{}, written)
	mustWrite(t, q, s, request{own: token, lease: time.Hour, entries: []entry{{kind: kindLease, token: token}}, claim: claim}, written)
}

// takeOver ends the lease of token 1 once it is over.
func takeOver(t *testing.T, q *Queue, s *state) {
	t.Helper()
	mustWrite(t, q, s, request{}, written)
	testkit.Eventually(t, "the lease is over", func() bool {
		r := request{seen: s.seen, entries: []entry{{kind: kindEnd, token: 1, hi: 10, until: s.leases[1]}}}
		a, err := q.members[0].write(t.Context(), q.members[0].byPool(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range a.news {
			if err := s.apply(e); err != nil {
				t.Fatal(err)
			}
		}
		return a.outcome == written
	})
}

// TestWrite_DatabaseChecksLease asks the database alone: no node is involved.
func TestWrite_DatabaseChecksLease(t *testing.T) {
	t.Parallel()
	q := testQueue(t)
	s, other := &state{}, &state{}
	lease(t, q, s, 1, 10)
	mustWrite(t, q, s, request{own: 1, entries: []entry{done(1, span{1, 2})}}, written)
	mustWrite(t, q, other, request{}, written)
	mustWrite(t, q, other, request{entries: []entry{{kind: kindEnd, token: 1, hi: 5, until: other.leases[1]}}}, conflicting)
	// The shortest lease is over at once.
	mustWrite(t, q, s, request{own: 1, lease: 1, entries: []entry{{kind: kindLease, token: 1}}}, written)
	mustWrite(t, q, s, request{own: 1, entries: []entry{done(1, span{3, 3})}}, leaseOver)
	mustWrite(t, q, s, request{own: 1, lease: time.Hour, entries: []entry{{kind: kindLease, token: 1}}}, leaseOver)
	if s.done(3) || !s.has(1, 3) {
		t.Error("an ack of a lease that is over was recorded")
	}
	mustWrite(t, q, other, request{}, written)
	mustWrite(t, q, other, request{entries: []entry{{kind: kindEnd, token: 1, hi: 5, until: other.leases[1]}}}, written)
	want := []segment{{span{3, 5}, 0, tally{}, true}, {span{6, 10}, 0, tally{}, false}}
	if !slices.Equal(other.live, want) {
		t.Errorf("after the takeover %v, want %v", other.live, want)
	}
	// Even if its clock said that the lease lasts, somebody ended it.
	valid := time.Now().Add(time.Hour)
	s.leases[1] = valid
	mustWrite(t, q, s, request{own: 1, entries: []entry{done(1, span{3, 3})}}, stale)
	if s.done(3) {
		t.Error("an ack of a lease that was ended was recorded")
	}
}

// TestWrite_RefusesOtherIsolation: a statement after the lock would not see
// what was committed before.
func TestWrite_RefusesOtherIsolation(t *testing.T) {
	t.Parallel()
	q := testQueue(t)
	args, err := (&request{}).args(q.members[0].id)
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginTxFunc(t.Context(), q.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), writeSQL, args...)
		return err
	})
	if err == nil {
		t.Error("REPEATABLE READ was accepted")
	}
}

// TestState_LikeASlowTwin folds random entries into the state and into a
// reference model, a map with one entry for each position.
func TestState_LikeASlowTwin(t *testing.T) {
	t.Parallel()
	type cell struct {
		owner int64
		tally
		suspect bool
	}
	random := rand.New(rand.NewPCG(1, 2))
	s, twin := &state{leases: make(map[int64]time.Time), last: make(map[int64]mark)}, make(map[int64]cell)
	for sequence := int64(1); sequence <= 1500; sequence++ {
		e := entry{sequence: sequence, token: 1 + random.Int64N(3)}
		if s.top < 5 || random.IntN(10) == 0 {
			e.kind, e.lo, e.hi = kindNext, s.top+1, s.top+1+random.Int64N(20)
			for p := e.lo; p <= e.hi; p++ {
				twin[p] = cell{owner: e.token}
			}
		} else {
			e.kind = []kind{kindTake, kindDone, kindFree, kindFree, kindTried, kindEnd}[random.IntN(6)]
			e.lo, e.hi = random.Int64N(3), random.Int64N(s.top)
			var spans []span
			for p, c := range twin {
				switch {
				case e.kind == kindEnd && c.owner == e.token:
					twin[p] = cell{0, c.tally, c.suspect || p <= e.hi}
				case e.kind == kindEnd || random.IntN(4) > 0:
				case e.kind == kindTake && c.owner == 0:
					twin[p] = cell{e.token, c.tally, c.suspect}
					spans = append(spans, span{p, p})
				case e.kind == kindDone && c.owner == e.token:
					delete(twin, p)
					spans = append(spans, span{p, p})
				case e.kind == kindTried:
					if c.owner == e.token {
						twin[p] = cell{c.owner, e.tally(), c.suspect}
					}
					spans = append(spans, span{p, p})
				case e.kind == kindFree && c.owner == e.token:
					twin[p] = cell{0, e.tally(), c.suspect}
					spans = append(spans, span{p, p})
				}
			}
			e.body = encodeSpans(coalesce(spans))
		}
		if err := s.apply(e); err != nil {
			t.Fatal(err)
		}
		if random.IntN(20) == 0 { // a rotation
			body, err := s.snapshot(time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.apply(entry{sequence: sequence, kind: kindReset, body: body}); err != nil {
				t.Fatal(err)
			}
		}
		for p := int64(1); p <= s.top; p++ {
			g, live := s.find(p)
			want, wantLive := twin[p]
			if live != wantLive || live && (g.owner != want.owner || g.tally != want.tally || g.suspect != want.suspect) || s.done(p) == live {
				t.Fatalf("after entry %d, position %d is %v %t, want %v %t", sequence, p, g, live, want, wantLive)
			}
		}
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	far := []span{{1, 5}, {7, 7}, {1 << 40, 1 << 41}}
	if got, err := decodeSpans(encodeSpans(far)); err != nil || !slices.Equal(got, far) {
		t.Errorf("%v comes back as %v, %v", far, got, err)
	}
	for _, text := range [][]byte{{1}, {0x80}, {1, 0x80}, {1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0}} {
		if got, err := decodeSpans(text); !errors.Is(err, errSpans) {
			t.Errorf("%x is %v, %v; want an error", text, got, err)
		}
	}
	if got, want := subtract([]span{{1, 10}, {20, 30}}, []span{{1, 2}, {5, 6}, {9, 21}, {30, 40}}), []span{{3, 4}, {7, 8}, {22, 29}}; !slices.Equal(got, want) {
		t.Errorf("subtracted %v, want %v", got, want)
	}
	if got, want := coalesce([]span{{5, 6}, {1, 2}, {3, 3}, {6, 9}}), []span{{1, 3}, {5, 9}}; !slices.Equal(got, want) {
		t.Errorf("coalesced %v, want %v", got, want)
	}
}

// TestWrite_IsNamed: a frozen session with the queue's lock is recognised by
// its application_name, whatever pool it belongs to, and others may end it; the
// database's own time-outs do not end a write that waits.
func TestWrite_IsNamed(t *testing.T) {
	t.Parallel()
	q := testQueue(t)
	watcher := unlimited(t, q)
	MustExec(t, q.pool, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = 100', current_database()); END $$`)
	q.pool.Reset() // so that connections have the setting
	s := &state{}
	lease(t, q, s, 1, 10)
	until := s.leases[1]
	r := request{own: 1, seen: s.seen, validUntil: &until, lease: time.Hour, entries: []entry{done(1, span{1, 1})}}
	for name, write := range map[string]func(context.Context, line, request) (*answer, error){
		"queue_write": q.members[0].write, "record": q.members[0].record,
	} {
		holder := unlimited(t, q)
		MustExec(t, holder, `BEGIN; SELECT pg_advisory_xact_lock(1953064037, -1000)`)
		wrote := make(chan error, 1)
		go func() { _, err := write(t.Context(), q.members[0].byPool(), r); wrote <- err }()
		testkit.Eventually(t, name+" waits under the writer's name, for three times what the database allows", func() bool {
			var named bool
			err := watcher.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = $1 AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > '300 ms')`, pg.WriterName).Scan(&named)
			return err != nil || named || len(wrote) > 0
		})
		MustExec(t, holder, `ROLLBACK`)
		if err := <-wrote; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustWrite(t, q, s, request{}, written)
}

// unlimited returns a connection of its own to the queue's database, whose statements take as long as they like. It ends with
// the test, also with one that fails in the middle of a transaction: the pool would wait for it.
func unlimited(t *testing.T, q *Queue) *pgx.Conn {
	t.Helper()
	cfg := q.pool.Config().ConnConfig.Copy()
	cfg.RuntimeParams["statement_timeout"] = "0"
	c, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}
