package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/ingest"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
)

// eachMode runs a test of the conformance suite for every strategy.
func eachMode(t *testing.T, test func(t *testing.T, mode ingest.Mode)) {
	t.Parallel()
	for _, mode := range ingest.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

// start runs an Ingester of the mode until stop, which waits for it to end.
func start(t *testing.T, pool *pgxpool.Pool, cfg ingest.Config) (in *ingest.Ingester, stop func()) {
	t.Helper()
	in, err := ingest.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { in.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(func() { in.Abandon(); stop() })
	return in, stop
}

// migrated has the table messages.
var migrated = pgtest.NewTemplate("ingest", prepare)

func prepare(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := migrate.Up(ctx, pool); err != nil {
		return err
	}
	_, err := migrate.Ingest(ctx, pool, "messages")
	return err
}

// open returns a pool on a database.
func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pg.Open(t.Context(), pg.PoolConfig{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestIngester_TableOfAnotherName: every strategy writes to the configured table,
// and to no other one.
func TestIngester_TableOfAnotherName(t *testing.T) {
	t.Parallel()
	pool := open(t, migrated.Open(t).URL)
	if _, err := pool.Exec(t.Context(), `CREATE SCHEMA app`); err != nil {
		t.Fatal(err)
	}
	for _, mode := range ingest.Modes() {
		table := "app." + string(mode)
		if _, err := migrate.Ingest(t.Context(), pool, table); err != nil {
			t.Fatal(err)
		}
		in, stop := start(t, pool, ingest.Config{Mode: mode, Table: table, Flush: 5 * time.Millisecond, Workers: 2})
		committed := make(chan uint64, 1000)
		src := in.Source(func(n uint64) { committed <- n })
		if err := src.Submit(t.Context(), [][]byte{[]byte("a"), []byte("b"), []byte("c")}); err != nil {
			t.Fatal(err)
		}
		for n := uint64(0); n < 3; n = <-committed {
		}
		stop()
		var rows int
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM app."`+string(mode)+`"`).Scan(&rows); err != nil || rows != 3 {
			t.Errorf("%s has %d rows, %v, want 3", table, rows, err)
		}
	}
	if others := content(t, pool); len(others) > 0 {
		t.Errorf("%d messages are in the table messages", len(others))
	}
	if _, err := ingest.New(pool, ingest.Config{Table: "no such"}); !errors.Is(err, pg.ErrTable) {
		t.Errorf("New with a name that is none: %v, want ErrTable", err)
	}
}

// content returns how often each payload is stored, by its text.
func content(t *testing.T, pool *pgxpool.Pool) map[string]int {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT payload FROM public.messages`)
	if err != nil {
		t.Fatal(err)
	}
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int)
	for _, p := range payloads {
		got[string(p)]++
	}
	return got
}

// watermark records the committed count of a Source, which never decreases.
type watermark struct{ atomic.Uint64 }

func (w *watermark) reach(n uint64) {
	for old := w.Load(); n > old && !w.CompareAndSwap(old, n); old = w.Load() {
	}
}

func TestConformance_NoLossNoDuplicates(t *testing.T) {
	eachMode(t, func(t *testing.T, mode ingest.Mode) {
		pool := open(t, migrated.Open(t).URL)
		in, stop := start(t, pool, ingest.Config{Mode: mode, Batch: 100, Flush: 20 * time.Millisecond})
		const sources, each = 5, 200
		var sending sync.WaitGroup
		for n := range sources {
			sending.Go(func() {
				random := rand.New(rand.NewPCG(uint64(n), 3))
				var told watermark
				src := in.Source(told.reach)
				for sent := 0; sent < each; {
					var payloads [][]byte
					for range min(1+random.IntN(50), each-sent) {
						payloads = append(payloads, fmt.Appendf(nil, "%d-%d", n, sent))
						sent++
					}
					if err := src.Submit(t.Context(), payloads); err != nil {
						t.Error(err)
						return
					}
					for _, p := range payloads { // Submit does not use them any more
						clear(p)
					}
				}
				if err := src.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				if got := told.Load(); got != each {
					t.Errorf("source %d was told of %d committed messages, want %d", n, got, each)
				}
			})
		}
		sending.Wait()
		stop()
		got := content(t, pool)
		for n := range sources {
			for i := range each {
				if key := fmt.Sprintf("%d-%d", n, i); got[key] != 1 {
					t.Errorf("%s is stored %d times", key, got[key])
				}
			}
		}
		if len(got) != sources*each {
			t.Errorf("%d different payloads, want %d", len(got), sources*each)
		}
		if s := in.Stats(); s.Inflight != 0 || s.Committed != sources*each || s.Received != sources*each {
			t.Errorf("stats %+v, want %d received and committed", s, sources*each)
		}
	})
}

func TestConformance_AnyPayload(t *testing.T) {
	eachMode(t, func(t *testing.T, mode ingest.Mode) {
		pool := open(t, migrated.Open(t).URL)
		in, stop := start(t, pool, ingest.Config{Mode: mode, Flush: 20 * time.Millisecond})
		payloads := [][]byte{
			{}, {0}, []byte("a\x00b"), {0xff, 0xfe, 0x80}, []byte("grün €"), []byte(`\x41`), []byte("\\N\t\n"),
			bytes.Repeat([]byte{0xab}, 1<<20),
		}
		src := in.Source(nil)
		if err := src.Submit(t.Context(), payloads); err != nil {
			t.Fatal(err)
		}
		if err := src.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop()
		got := content(t, pool)
		for _, p := range payloads {
			if got[string(p)] != 1 {
				t.Errorf("payload of %d bytes beginning %.8q is stored %d times", len(p), p, got[string(p)])
			}
		}
	})
}

// TestConformance_PostgreSQLKilled kills the database under load, more than
// once. Every message that a Source reported as committed must be stored
// afterwards, and none twice.
func TestConformance_PostgreSQLKilled(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		for _, mode := range ingest.Modes() {
			t.Run(fmt.Sprintf("%s/%d", mode, seed), func(t *testing.T) {
				t.Parallel()
				postgresKilled(t, mode, seed)
			})
		}
	}
}

func postgresKilled(t *testing.T, mode ingest.Mode, seed uint64) {
	server := pgtest.Start(t)
	pool := open(t, server.URL())
	if err := prepare(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	in, stop := start(t, pool, ingest.Config{Mode: mode, Batch: 50, Flush: 5 * time.Millisecond})
	const sources = 4
	var killed atomic.Int32
	var sending sync.WaitGroup
	sent := make([]int, sources)
	told := make([]watermark, sources)
	for n := range sources {
		sending.Go(func() {
			src := in.Source(told[n].reach)
			for after := 0; after < 100; sent[n]++ { // 100 after the last kill
				if killed.Load() == 2 {
					after++
				}
				if err := src.Submit(t.Context(), [][]byte{fmt.Appendf(nil, "%d-%d", n, sent[n])}); err != nil {
					t.Error(err)
					return
				}
			}
			if err := src.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 4))
	for range 2 {
		enough := in.Stats().Committed + 200 + random.Uint64N(200)
		testkit.Eventually(t, "messages are committed", func() bool { return in.Stats().Committed >= enough })
		pgtest.Crash(t, server)
		killed.Add(1)
	}
	sending.Wait()
	stop()
	got := content(t, pool)
	total := 0
	for n := range sources {
		if int(told[n].Load()) != sent[n] {
			t.Errorf("source %d: %d sent, told of %d committed", n, sent[n], told[n].Load())
		}
		for i := range sent[n] {
			if key := fmt.Sprintf("%d-%d", n, i); got[key] != 1 {
				t.Errorf("%s is stored %d times", key, got[key])
			}
		}
		total += sent[n]
	}
	if len(got) != total {
		t.Errorf("%d different payloads stored, %d sent", len(got), total)
	}
}

// TestConformance_DefiniteErrorReachesItsSource breaks the table: a Source gets
// the error, and a Source opened after the repair works.
func TestConformance_DefiniteErrorReachesItsSource(t *testing.T) {
	eachMode(t, func(t *testing.T, mode ingest.Mode) {
		pool := open(t, migrated.Open(t).URL)
		in, _ := start(t, pool, ingest.Config{Mode: mode, Flush: 5 * time.Millisecond})
		if _, err := pool.Exec(t.Context(), `ALTER TABLE public.messages ADD CONSTRAINT broken CHECK (payload <> 'bad')`); err != nil {
			t.Fatal(err)
		}
		var told watermark
		src := in.Source(told.reach)
		err := src.Submit(t.Context(), [][]byte{[]byte("bad")})
		if err == nil {
			err = src.Wait(t.Context())
		}
		if pg.Code(err) != "23514" {
			t.Errorf("source with the bad message: %v, want the check violation", err)
		}
		if err := src.Submit(t.Context(), [][]byte{[]byte("later")}); pg.Code(err) != "23514" {
			t.Errorf("the same source later: %v, want the same error", err)
		}
		if told.Load() != 0 {
			t.Errorf("told of %d committed messages", told.Load())
		}
		other := in.Source(nil)
		if err := other.Submit(t.Context(), [][]byte{[]byte("good")}); err != nil {
			t.Fatal(err)
		}
		if err := other.Wait(t.Context()); err != nil {
			t.Errorf("another source: %v", err)
		}
		if s := in.Stats(); s.Committed != 1 || s.Failed != 1 || s.Inflight != 0 {
			t.Errorf("stats %+v, want one committed and one failed", s)
		}
	})
}

// TestConformance_FullWaitsAndObeysContext fills the in-flight limit while
// nothing can be written.
func TestConformance_FullWaitsAndObeysContext(t *testing.T) {
	eachMode(t, func(t *testing.T, mode ingest.Mode) {
		pool := open(t, migrated.Open(t).URL)
		lock, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lock.Exec(t.Context(), `LOCK TABLE public.messages IN ACCESS EXCLUSIVE MODE`); err != nil {
			t.Fatal(err)
		}
		const limit = 1 << 20
		in, stop := start(t, pool, ingest.Config{Mode: mode, MaxInflightBytes: limit, Flush: 5 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		src := in.Source(nil)
		payload := make([]byte, 64<<10)
		accepted := 0
		for ; accepted < 100; accepted++ {
			if err = src.Submit(ctx, [][]byte{payload}); err != nil {
				break
			}
		}
		if ctx.Err() == nil {
			t.Fatalf("submitted %d messages of 64 KiB into 1 MiB without waiting", accepted)
		}
		if most := limit/len(payload) + 2; accepted > most {
			t.Errorf("accepted %d messages of 64 KiB, want at most %d", accepted, most)
		}
		if err := lock.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop()
		got := content(t, pool)[string(payload)]
		if mode == ingest.Naive { // its only message was interrupted in its INSERT: it is stored or not
			if got > 1 {
				t.Errorf("stored %d", got)
			}
			return
		}
		if got != accepted {
			t.Errorf("stored %d, accepted %d", got, accepted)
		}
	})
}

// TestAbandon_EndsWhatCannotBeWritten: waiting messages end with the error that
// their outcome is unknown.
func TestAbandon_EndsWhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	pool := open(t, migrated.Open(t).URL)
	lock, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(context.Background())
	if _, err := lock.Exec(t.Context(), `LOCK TABLE public.messages IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	in, stop := start(t, pool, ingest.Config{})
	src := in.Source(nil)
	if err := src.Submit(t.Context(), [][]byte{[]byte("x")}); err != nil {
		t.Fatal(err)
	}
	in.Abandon()
	stop()
	if err := src.Wait(t.Context()); !errors.Is(err, ingest.ErrAbandoned) {
		t.Errorf("Wait: %v, want %v", err, ingest.ErrAbandoned)
	}
	if s := in.Stats(); s.Inflight != 0 || s.Failed != 0 || s.Abandoned != 1 {
		t.Errorf("stats %+v, want one abandoned", s)
	}
}

func TestNew_NamesBadValues(t *testing.T) {
	t.Parallel()
	for _, cfg := range []ingest.Config{
		{Mode: "fast"}, {Workers: -1}, {Batch: -1}, {Mode: ingest.Bulk, Batch: 70_000}, {Flush: -1}, {MaxInflightBytes: 10},
	} {
		if _, err := ingest.New(nil, cfg); err == nil {
			t.Errorf("New accepted %+v", cfg)
		}
	}
}
