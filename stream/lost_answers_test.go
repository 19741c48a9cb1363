package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"strings"
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

// newCuts is a plan without cuts.
func newCuts() *cutPlan { return &cutPlan{before: map[int]bool{}, after: map[int]bool{}} }

func (p *cutPlan) cut(conn net.Conn) net.Conn { return &cuttable{Conn: conn, plan: p} }

// tableOf is the table of the stream's messages.
func tableOf(t *testing.T, db pgtest.DB, s *stream.Stream) string {
	t.Helper()
	if isShared(t, db, s) {
		return "shared_message"
	}
	return fmt.Sprint("stream_", s.ID())
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
	return poolWith(t, db.URL, dialing(plan.cut))
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

// TestWriter_LostConnectionsStoreLargeBatchesOnce: large batches are staged after a connection was lost.
func TestWriter_LostConnectionsStoreLargeBatchesOnce(t *testing.T) {
	t.Parallel()
	notShort(t)
	for seed := range pgtest.Seeds() {
		for name, method := range bothMethods {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				t.Parallel()
				db := setup(t)
				w := stream.NewWriter(cutPool(t, db, randomPlan(seed, 400)), stream.WriterConfig{Method: method, LockTimeout: time.Millisecond})
				defer w.Close()
				var want []row
				for n := range 16 {
					large := bytes.Repeat([]byte{byte(n)}, 40_000)
					b := batchOf(large, large)
					must(t, w.Write(t.Context(), b))
					want = append(want, row{b.First, large}, row{b.First + 1, large})
				}
				if rows := stored(t, db); !reflect.DeepEqual(rows, want) {
					t.Errorf("%d rows, want %d, with other contents or positions", len(rows), len(want))
				}
			})
		}
	}
}

// slowLine lets another writer store something in the middle of each large write.
type slowLine struct {
	net.Conn
	beside func()
}

func (c slowLine) Write(p []byte) (int, error) {
	if len(p) <= 2048 {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:1024])
	if err != nil {
		return n, err
	}
	c.beside()
	m, err := c.Conn.Write(p[1024:])
	return n + m, err
}

// TestWriter_SlowLineBesideAnother: rows that take longer to arrive than other writers wait for the lock are stored eventually, and the
// other writers continue meanwhile.
func TestWriter_SlowLineBesideAnother(t *testing.T) {
	t.Parallel()
	for name, method := range bothMethods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			var mu sync.Mutex
			written := 0
			other := stream.NewWriter(db.Pool, stream.WriterConfig{LockTimeout: 100 * time.Millisecond})
			defer other.Close()
			pool := poolWith(t, db.URL, dialing(func(conn net.Conn) net.Conn {
				return slowLine{conn, func() {
					mu.Lock()
					defer mu.Unlock()
					if err := other.Write(t.Context(), batchOf([]byte("small"))); err != nil {
						t.Error(err)
					}
					written++
				}}
			}))
			w := stream.NewWriter(pool, stream.WriterConfig{Method: method})
			defer w.Close()
			large := bytes.Repeat([]byte("large"), 20_000)
			for range 2 {
				if err := w.Write(soon(t), batchOf(large)); err != nil {
					t.Error(err)
				}
			}
			rows, found := stored(t, db), 0
			for _, r := range rows {
				if bytes.Equal(r.Payload, large) {
					found++
				}
			}
			if found != 2 || len(rows) != written+2 || written == 0 {
				t.Errorf("%d rows, %d of them large, want %d and 2", len(rows), found, written+2)
			}
		})
	}
}

func TestInserter_LostConnectionsStoreEachRowOnce(t *testing.T) {
	t.Parallel()
	notShort(t)
	for seed := range pgtest.Seeds() {
		for _, size := range []int{1, 3} {
			t.Run(fmt.Sprintf("%d/%d", size, seed), func(t *testing.T) {
				t.Parallel()
				db := setup(t)
				in := ingestlog.NewInserter(cutPool(t, db, randomPlan(seed, 400)), ingestlog.InserterConfig{})
				defer in.Close()
				var want []string
				for n := range 40 {
					payloads := make([][]byte, size)
					for i := range payloads {
						payloads[i] = fmt.Appendf(nil, "%02d %d", n, i)
						want = append(want, string(payloads[i]))
					}
					must(t, in.Insert(t.Context(), payloads))
				}
				var got []string
				for _, r := range stored(t, db) {
					got = append(got, string(r.Payload))
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("%d rows, want each of %d once: %q", len(got), len(want), got)
				}
			})
		}
	}
}

// cutNext withholds the answer to the next write, and breaks the connection.
func (p *cutPlan) cutNext() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after[p.writes+1] = true
}

// forbidTables makes PostgreSQL reject the creation of tables, also temporary ones,
// with an error like that of a trigger for a row.
func forbidTables(t *testing.T, db pgtest.DB) {
	exec(t, db.Pool, `CREATE FUNCTION no_tables() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no tables here'; END $$`)
	exec(t, db.Pool, `CREATE EVENT TRIGGER no_tables ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION no_tables()`)
}

// cutWith withholds the answer to the next write that has this text, and breaks the connection. The session may write something else before.
func (p *cutPlan) cutWith(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.with = []byte(text)
}

// redialPool returns a pool with one connection, which the plan cuts. It calls again before each new connection after
// a cut: there is no spare one that could be used in its place.
func redialPool(t *testing.T, url, role string, plan *cutPlan, again func()) *pgxpool.Pool {
	t.Helper()
	return poolWith(t, url, func(cfg *pgxpool.Config) {
		cfg.MaxConns = 1
		if role != "" {
			cfg.ConnConfig.RuntimeParams["role"] = role
		}
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if plan.kept.Load() {
				again()
			}
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return plan.cut(conn), nil
		}
	})
}

// TestAppender_DroppedAfterALostAnswer: the answer to a COMMIT is lost, and the stream is dropped before
// the batch is written again. The error says that the batch may have been stored.
func TestAppender_DroppedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		plan := newCuts()
		pool := redialPool(t, db.URL, "", plan, sync.OnceFunc(func() {
			if err := stream.Drop(t.Context(), db.Pool, s.Name()); err != nil {
				t.Error(err)
			}
		}))
		a := run(t, pool, s, stream.AppenderConfig{})
		mustAppend(t, a, messages("first")...)
		mustAppend(t, a, messages("second")...) // the session prepares with the second
		plan.cutWith("third")
		if _, err := a.Append(t.Context(), messages("third")...); !errors.Is(err, stream.ErrNotFound) || !errors.Is(err, stream.ErrOutcomeUnknown) {
			t.Errorf("stored and dropped: %v", err)
		}
		if _, err := a.Append(t.Context(), messages("fourth")...); !errors.Is(err, stream.ErrNotFound) || errors.Is(err, stream.ErrOutcomeUnknown) {
			t.Errorf("after the drop: %v", err)
		}
	})
}

// TestAppender_RefusedAfterALostAnswer: the answer to a COMMIT is lost, and PostgreSQL
// rejects the writer from then on. The message is stored, so the error must not say
// that it is not.
func TestAppender_RefusedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	role := newRole(t, db, onTables)
	plan := newCuts()
	pool := redialPool(t, db.URL, role, plan, func() { exec(t, db.Pool, `REVOKE USAGE ON SCHEMA tidewire FROM `+role) })
	a := run(t, pool, s, stream.AppenderConfig{})
	mustAppend(t, a, messages("first")...)
	mustAppend(t, a, messages("second")...) // the session prepares with the second
	plan.cutWith("third")
	if _, err := a.Append(t.Context(), messages("third")...); !errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Errorf("the answer was lost, and the caller gets %v", err)
	}
	wantStored(t, s, "first, second, third")
	if _, err := a.Append(t.Context(), messages("fourth")...); err == nil || errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Errorf("refused at once: %v", err)
	}
}

// TestAppender_RepetitionIsNotStaged: the answer to a large batch of two callers is
// lost. Its repetition is rejected before it can find that the first attempt is
// committed.
func TestAppender_RepetitionIsNotStaged(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	forbidTables(t, db)
	plan := newCuts()
	a := run(t, cutPool(t, db, plan), s, stream.AppenderConfig{Linger: 200 * time.Millisecond})
	mustAppend(t, a, messages("first")...)
	mustAppend(t, a, messages("second")...) // the session prepares with the second
	plan.cutNext()
	both := submitAll(t, []*stream.Appender{a, a}, strings.Repeat("a", 40_000))
	both.Wait()
	if err := errors.Join(both.errs...); err != nil {
		t.Error(err)
	}
	if n := len(everything(t, s)); n != 4 {
		t.Errorf("%d messages, want 4", n)
	}
	for _, first := range both.firsts {
		wantAt(t, s, first, strings.Repeat("a", 40_000))
	}
}

// TestWriter_StagedIsRefused: a batch that cannot be staged is sent directly.
func TestWriter_StagedIsRefused(t *testing.T) {
	t.Parallel()
	db := setup(t)
	forbidTables(t, db)
	plan := &cutPlan{before: map[int]bool{}, after: map[int]bool{}}
	w := stream.NewWriter(cutPool(t, db, plan), stream.WriterConfig{})
	defer w.Close()
	large := bytes.Repeat([]byte("large"), 30_000)
	for n := range 4 {
		if n == 2 { // the session has prepared with the second
			plan.cutNext()
		}
		must(t, w.Write(t.Context(), batchOf(large)))
	}
	if rows := stored(t, db); len(rows) != 4 {
		t.Errorf("%d rows, want 4", len(rows))
	}
}

// TestAppender_NeighboursOfARefusedOne: the answer to a batch with one invalid message is
// lost. The other messages are stored.
func TestAppender_NeighboursOfARefusedOne(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		exec(t, db.Pool, `ALTER TABLE tidewire.`+tableOf(t, db, s)+` ADD CHECK (payload <> 'bad')`)
		plan := newCuts()
		a := run(t, cutPool(t, db, plan), s, stream.AppenderConfig{Linger: 200 * time.Millisecond})
		mustAppend(t, a, messages("first")...)
		mustAppend(t, a, messages("second")...)
		plan.cutNext()
		var all []*answers
		for _, payload := range []string{"m0", "bad", "m2"} {
			all = append(all, submitAll(t, []*stream.Appender{a}, payload))
		}
		for i, one := range all {
			one.Wait()
			if err := one.errs[0]; i != 1 && err != nil || i == 1 && (err == nil || errors.Is(err, stream.ErrOutcomeUnknown)) {
				t.Errorf("message %d: %v", i, err)
			}
		}
	})
}
