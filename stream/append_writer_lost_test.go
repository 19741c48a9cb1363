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

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/ingestlog"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

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
	with   []byte      // a text in the next write to cut after
	kept   atomic.Bool // an answer was withheld
}

func (c *cuttable) Write(p []byte) (int, error) {
	c.plan.mu.Lock()
	c.plan.writes++
	before, after := c.plan.before[c.plan.writes], c.plan.after[c.plan.writes]
	if len(c.plan.with) > 0 && bytes.Contains(p, c.plan.with) {
		after, c.plan.with = true, nil
	}
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
	n, err := c.Conn.Read(p) // waits for the answer, and withholds it
	if c.cut.Load() {
		c.plan.kept.Store(true)
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
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

// TestWriter_SlowLineBesideAnother: rows that take longer to arrive than other
// writers wait for the lock are stored eventually, and the other writers continue
// meanwhile.
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
					time.Sleep(5 * time.Millisecond) // leaves time for the other writer
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

// checkBatches checks that each batch is stored once, in order, and at the position
// that its writer returned.
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
				in := ingestlog.NewInserter(cutPool(t, db, randomPlan(seed, 400)), ingestlog.InserterConfig{})
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
