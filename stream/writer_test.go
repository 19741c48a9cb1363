package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

var migrated = pgtest.NewTemplate(func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	if err == nil {
		_, err = migrate.Ingest(ctx, pool, "messages")
	}
	return err
})

// setup returns a migrated database.
func setup(t *testing.T) pgtest.DB {
	t.Helper()
	return migrated.Open(t)
}

type row struct {
	Position int64
	Payload  []byte
}

func stored(t *testing.T, db pgtest.DB) []row {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), `SELECT position, payload FROM messages ORDER BY position`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func batchOf(payloads ...[]byte) *stream.Batch {
	var b stream.Batch
	for _, p := range payloads {
		b.Append(p)
	}
	return &b
}

func TestWriter_EveryMethodStoresEveryPayload(t *testing.T) {
	t.Parallel()
	payloads := [][]byte{
		{}, []byte("text"), {0}, {0xff, 0x00, 0xfe}, bytes.Repeat([]byte{7}, 1<<20), []byte("last"),
	}
	for name, method := range map[string]stream.Method{"auto": stream.Auto, "array": stream.Array, "copy": stream.Copy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			w := stream.NewWriter(db.Pool, stream.WriterConfig{Method: method})
			defer w.Close()
			for round := range 3 {
				b := batchOf(payloads...)
				if err := w.Write(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				if want := int64(round*len(payloads) + 1); b.First != want {
					t.Errorf("batch %d begins at %d, want %d", round, b.First, want)
				}
			}
			rows := stored(t, db)
			if len(rows) != 3*len(payloads) {
				t.Fatalf("%d rows, want %d", len(rows), 3*len(payloads))
			}
			for i, r := range rows {
				if r.Position != int64(i+1) || !bytes.Equal(r.Payload, payloads[i%len(payloads)]) {
					t.Errorf("row %d: position %d, %d bytes, want payload %d", i, r.Position, len(r.Payload), i%len(payloads))
				}
			}
		})
	}
}

// TestWriter_VisibleOrderIsPositionOrder has several writers at work, with
// both methods, while a reader looks: once it has seen a position, nothing may
// appear below it.
func TestWriter_VisibleOrderIsPositionOrder(t *testing.T) {
	t.Parallel()
	db := setup(t)
	const writers, batches = 4, 60
	var writing sync.WaitGroup
	for n := range writers {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 1))
			w := stream.NewWriter(db.Pool, stream.WriterConfig{Method: stream.Array + stream.Method(n%2)})
			defer w.Close()
			for range batches {
				var b stream.Batch
				for range 1 + random.IntN(20) {
					b.Append([]byte{byte(n)})
				}
				if err := w.Write(t.Context(), &b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	var last, seen int64
	for looks, over := 0, false; !over; looks++ {
		select {
		case <-done:
			over = true
		default:
		}
		var below, highest int64
		err := db.Pool.QueryRow(t.Context(),
			`SELECT count(*) FILTER (WHERE position <= $1), coalesce(max(position), 0) FROM messages`, last).Scan(&below, &highest)
		if err != nil {
			t.Fatal(err)
		}
		if below != seen {
			t.Fatalf("after %d looks: %d rows up to position %d, and there were %d", looks, below, last, seen)
		}
		last = highest
		if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM messages WHERE position <= $1`, last).Scan(&seen); err != nil {
			t.Fatal(err)
		}
	}
	if last == 0 {
		t.Error("nothing was seen")
	}
}

// cuttable is a connection to PostgreSQL that can be cut around a write.
type cuttable struct {
	net.Conn
	plan *cutPlan
	cut  atomic.Bool
}

// cutPlan cuts at the given writes of all connections of a pool, before the
// bytes are sent or after, when PostgreSQL has acted on them.
type cutPlan struct {
	mu     sync.Mutex
	writes int
	before map[int]bool
	after  map[int]bool
}

func (c *cuttable) Write(p []byte) (int, error) {
	c.plan.mu.Lock()
	c.plan.writes++
	before, after := c.plan.before[c.plan.writes], c.plan.after[c.plan.writes]
	c.plan.mu.Unlock()
	if before {
		c.Conn.Close()
		return 0, &net.OpError{Op: "write", Err: syscall.EPIPE}
	}
	n, err := c.Conn.Write(p)
	if after {
		c.cut.Store(true)
	}
	return n, err
}

func (c *cuttable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p) // waits for the answer, and keeps it back
	if c.cut.Load() {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// smallPool is a pool on db of so many connections.
func smallPool(t *testing.T, db pgtest.DB, conns int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// cutPool is a pool on db whose connections follow the plan.
func cutPool(t *testing.T, db pgtest.DB, plan *cutPlan) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cuttable{Conn: conn, plan: plan}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// randomPlan cuts a share of the writes, some before and some after.
func randomPlan(seed uint64, writes int) *cutPlan {
	random := rand.New(rand.NewPCG(seed, 2))
	plan := &cutPlan{before: map[int]bool{}, after: map[int]bool{}}
	for n := range writes {
		switch random.IntN(30) {
		case 0:
			plan.before[n] = true
		case 1:
			plan.after[n] = true
		}
	}
	return plan
}

func TestWriter_LostConnectionsStoreEachBatchOnce(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		for name, method := range map[string]stream.Method{"array": stream.Array, "copy": stream.Copy} {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				t.Parallel()
				db := setup(t)
				w := stream.NewWriter(cutPool(t, db, randomPlan(seed, 400)), stream.WriterConfig{Method: method})
				defer w.Close()
				const batches = 40
				first := make([]int64, batches)
				for n := range batches {
					b := batchOf(fmt.Appendf(nil, "%d a", n), fmt.Appendf(nil, "%d b", n))
					if err := w.Write(t.Context(), b); err != nil {
						t.Fatal(err)
					}
					first[n] = b.First
				}
				checkBatches(t, stored(t, db), first)
			})
		}
	}
}

// TestWriter_LostConnectionsStoreLargeBatchesOnce: large batches are staged after a
// connection was lost.
func TestWriter_LostConnectionsStoreLargeBatchesOnce(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		for name, method := range map[string]stream.Method{"array": stream.Array, "copy": stream.Copy} {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				t.Parallel()
				db := setup(t)
				w := stream.NewWriter(cutPool(t, db, randomPlan(seed, 400)), stream.WriterConfig{Method: method, LockTimeout: time.Millisecond})
				defer w.Close()
				for n := range int64(16) {
					large := bytes.Repeat([]byte{byte(n)}, 40_000)
					b := batchOf(large, large)
					if err := w.Write(t.Context(), b); err != nil {
						t.Fatal(err)
					}
					rows := stored(t, db)
					if len(rows) != int(2*(n+1)) {
						t.Fatalf("%d rows after %d batches of two", len(rows), n+1)
					}
					for i, r := range rows[2*n:] {
						if r.Position != b.First+int64(i) || !bytes.Equal(r.Payload, large) {
							t.Errorf("batch %d: %d bytes at %d, want %d at %d", n, len(r.Payload), r.Position, len(large), b.First+int64(i))
						}
					}
				}
			})
		}
	}
}

// slowLine sends some 100 KB a second.
type slowLine struct{ net.Conn }

func (c slowLine) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var sent int
		sent, err = c.Conn.Write(p[n:min(len(p), n+2048)])
		n += sent
		if len(p) > 2048 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	return n, err
}

// TestWriter_SlowLineBesideAnother: rows that take longer to arrive than others wait
// for the lock get through, and the others go on meanwhile.
func TestWriter_SlowLineBesideAnother(t *testing.T) {
	t.Parallel()
	for name, method := range map[string]stream.Method{"array": stream.Array, "copy": stream.Copy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			cfg, err := pgxpool.ParseConfig(db.URL)
			if err != nil {
				t.Fatal(err)
			}
			dial := cfg.ConnConfig.DialFunc
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return slowLine{conn}, err
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			over := make(chan struct{})
			var beside sync.WaitGroup
			written := 0
			beside.Go(func() {
				w := stream.NewWriter(db.Pool, stream.WriterConfig{LockTimeout: 300 * time.Millisecond})
				defer w.Close()
				for ; ; written++ {
					select {
					case <-over:
						return
					default:
					}
					if err := w.Write(t.Context(), batchOf([]byte("small"))); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(5 * time.Millisecond) // leaves something to the other
				}
			})
			w := stream.NewWriter(pool, stream.WriterConfig{Method: method})
			defer w.Close()
			large := bytes.Repeat([]byte("large"), 20_000)
			for range 2 {
				if err := w.Write(ctx, batchOf(large)); err != nil {
					t.Error(err)
				}
			}
			close(over)
			beside.Wait()
			rows, found := stored(t, db), 0
			for _, r := range rows {
				if bytes.Equal(r.Payload, large) {
					found++
				}
			}
			if found != 2 || len(rows) != written+2 {
				t.Errorf("%d rows, %d of them large, want %d and 2", len(rows), found, written+2)
			}
		})
	}
}

// checkBatches checks that each batch is there once, in order, and where its
// writer was told it is.
func checkBatches(t *testing.T, rows []row, first []int64) {
	t.Helper()
	if len(rows) != 2*len(first) {
		t.Fatalf("%d rows, want %d", len(rows), 2*len(first))
	}
	for i, r := range rows {
		n, which := i/2, i%2
		want := fmt.Sprintf("%d %c", n, 'a'+which)
		if string(r.Payload) != want || r.Position != first[n]+int64(which) {
			t.Errorf("row %d is %q at %d, want %q at %d", i, r.Payload, r.Position, want, first[n]+int64(which))
		}
	}
}

func TestInserter_LostConnectionsStoreEachRowOnce(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		for _, size := range []int{1, 3} {
			t.Run(fmt.Sprintf("%d/%d", size, seed), func(t *testing.T) {
				t.Parallel()
				db := setup(t)
				in := stream.NewInserter(cutPool(t, db, randomPlan(seed, 400)), stream.InserterConfig{})
				defer in.Close()
				const inserts = 40
				want := make(map[string]int)
				for n := range inserts {
					payloads := make([][]byte, size)
					for i := range payloads {
						payloads[i] = fmt.Appendf(nil, "%d %d", n, i)
						want[string(payloads[i])] = 1
					}
					if err := in.Insert(t.Context(), payloads); err != nil {
						t.Fatal(err)
					}
				}
				got := make(map[string]int)
				for _, r := range stored(t, db) {
					got[string(r.Payload)]++
				}
				for payload := range want {
					if got[payload] != 1 {
						t.Errorf("%q is stored %d times", payload, got[payload])
					}
				}
				if len(got) != len(want) {
					t.Errorf("%d different payloads, want %d", len(got), len(want))
				}
			})
		}
	}
}

func TestWriter_FreesLockOfFrozenHolder(t *testing.T) {
	t.Parallel()
	db := setup(t)
	frozen, err := pgconn.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close(context.Background())
	// A client that has begun a COPY under the lock and says no more.
	frozen.Frontend().SendQuery(&pgproto3.Query{String: fmt.Sprintf(
		`SET application_name = '%s'; BEGIN; SELECT pg_advisory_xact_lock(%d, %d); COPY messages (position, payload) FROM STDIN`,
		pg.WriterName, pg.LockClass, stream.LockMessages)})
	if err := frozen.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	for held := false; !held; {
		if err := db.Pool.QueryRow(t.Context(),
			`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&held); err != nil {
			t.Fatal(err)
		}
	}
	w := stream.NewWriter(db.Pool, stream.WriterConfig{LockTimeout: 200 * time.Millisecond})
	defer w.Close()
	if err := w.Write(t.Context(), batchOf([]byte("x"))); err != nil {
		t.Fatal(err)
	}
	if rows := stored(t, db); len(rows) != 1 {
		t.Errorf("%d rows, want 1", len(rows))
	}
}

func TestWriter_DefiniteErrorStoresNothing(t *testing.T) {
	t.Parallel()
	db := setup(t)
	w := stream.NewWriter(db.Pool, stream.WriterConfig{})
	defer w.Close()
	if _, err := db.Pool.Exec(t.Context(), `ALTER TABLE messages ADD CHECK (payload <> 'bad')`); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), batchOf([]byte("good"), []byte("bad"))); pg.Code(err) != "23514" {
		t.Fatalf("Write: %v, want the check violation", err)
	}
	if err := w.Write(t.Context(), batchOf([]byte("good"))); err != nil {
		t.Fatalf("Write after a failed one: %v", err)
	}
	if rows := stored(t, db); len(rows) != 1 {
		t.Errorf("%d rows, want 1", len(rows))
	}
}

func TestRecreate_EmptiesAndKeepsWriterGoing(t *testing.T) {
	t.Parallel()
	db := setup(t)
	w := stream.NewWriter(db.Pool, stream.WriterConfig{})
	defer w.Close()
	for range 2 {
		if err := w.Write(t.Context(), batchOf([]byte("x"))); err != nil {
			t.Fatal(err)
		}
		if rows := stored(t, db); len(rows) != 1 || rows[0].Position != 1 {
			t.Fatalf("rows %v, want one at position 1", rows)
		}
		if err := stream.Recreate(t.Context(), db.Pool, ""); err != nil {
			t.Fatal(err)
		}
	}
	if rows := stored(t, db); len(rows) != 0 {
		t.Errorf("%d rows after Recreate", len(rows))
	}
}
