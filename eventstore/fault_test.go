package eventstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// asProcess has the test's own program race on the database of that URL.
const asProcess = "TIDEWIRE_TEST_EVENTS_URL"

// raceAsProcess appends until it is killed, and prints every outcome.
func raceAsProcess(url string) error {
	ctx := context.Background()
	pool, err := pg.Open(ctx, pg.PoolConfig{URL: url})
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := lookupStore(ctx, pool, "", eventstore.Config{})
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	race(ctx, s, "process", uint64(os.Getpid()), 5, 1<<30, func(o outcome) {
		mu.Lock()
		defer mu.Unlock()
		out.Encode(o)
	})
	return nil
}

// process is another process that appends to the store.
type process struct {
	cmd     *exec.Cmd
	reading sync.WaitGroup
}

func startProcess(t *testing.T, url string, note func(outcome)) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), asProcess+"="+url)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var o outcome
			if json.Unmarshal(lines.Bytes(), &o) == nil { // the last line may be half a one
				note(o)
			}
		}
	})
	return p
}

// kill ends the process without any chance to finish.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.reading.Wait()
	p.cmd.Wait()
}

// cuttable is a connection that breaks at random: before it sends something, after
// that, or when PostgreSQL has processed it and answers.
type cuttable struct {
	net.Conn
	cut      func() int
	atAnswer atomic.Bool
}

func (c *cuttable) Write(b []byte) (int, error) {
	how := c.cut()
	if how == 0 {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Write(b)
	switch how {
	case 1:
		c.Conn.Close()
	case 2:
		c.atAnswer.Store(true)
	}
	return n, err
}

func (c *cuttable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.atAnswer.Load() {
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// cutPool is a pool of connections that break at a fraction of their writes.
func cutPool(t *testing.T, url string, seed uint64, oneOf int) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 7))
	cut := func() int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(oneOf)
	}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cuttable{Conn: conn, cut: cut}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func poolOf(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pg.Open(t.Context(), pg.PoolConfig{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// checkerSeeds is a few, and hundreds if asked for more than one.
func checkerSeeds() uint64 {
	if n := pgtest.Seeds(); n > 1 {
		return 30 * n
	}
	return 3
}

// TestAppendIf_ReplayedOneByOne races two Stores, of which one loses its
// connections.
func TestAppendIf_ReplayedOneByOne(t *testing.T) {
	t.Parallel()
	for seed := range checkerSeeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			var l ledger
			var racing sync.WaitGroup
			open(t, db.Pool, eventstore.Config{})
			for n, pool := range []*pgxpool.Pool{poolOf(t, db.URL), cutPool(t, db.URL, seed, 60)} {
				var s *eventstore.Store
				for s == nil {
					s, _ = lookupStore(t.Context(), pool, "", eventstore.Config{TailEvents: 40})
				}
				t.Cleanup(func() { s.Close(context.Background()) })
				racing.Go(func() { race(t.Context(), s, fmt.Sprint("store", n), seed*10+uint64(n), 12, 40, l.note) })
			}
			racing.Wait()
			l.check(t, readStored(t, db.Pool))
			wantIndexed(t, db.Pool)
		})
	}
}

// TestAppendIf_ReplayedAfterKills kills PostgreSQL and a process under way.
func TestAppendIf_ReplayedAfterKills(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			pool := poolOf(t, server.URL())
			if _, err := migrate.Up(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			var l ledger
			one, two := open(t, pool, eventstore.Config{}), open(t, poolOf(t, server.URL()), eventstore.Config{TailEvents: 20})
			other := startProcess(t, server.URL(), l.note)
			defer other.kill()
			racing, over := context.WithCancel(t.Context())
			defer over()
			var callers sync.WaitGroup
			callers.Go(func() { race(racing, one, "one", seed, 8, 1<<30, l.noteUntil(racing)) })
			callers.Go(func() { race(racing, two, "two", seed+1000, 8, 1<<30, l.noteUntil(racing)) })
			random := rand.New(rand.NewPCG(seed, 4))
			for round := range 2 {
				time.Sleep(time.Duration(100+random.IntN(300)) * time.Millisecond) // a random moment under load
				pgtest.Crash(t, server)
				if round == 0 {
					l.await(t, "process") // it has found its way back as well
					other.kill()
				}
			}
			l.await(t, "one", "two")
			over()
			callers.Wait()
			l.check(t, readStored(t, pool))
			wantIndexed(t, pool)
		})
	}
}

// noteUntil records outcomes until ctx ends: an abandoned append has none.
func (l *ledger) noteUntil(ctx context.Context) func(outcome) {
	return func(o outcome) {
		if o.Err == "" || ctx.Err() == nil {
			l.note(o)
		}
	}
}

// await waits until each of the named has had an answer from now on.
func (l *ledger) await(t *testing.T, names ...string) {
	t.Helper()
	l.mu.Lock()
	next := len(l.outcomes)
	l.mu.Unlock()
	missing := slices.Clone(names)
	for deadline := time.Now().Add(3 * time.Minute); len(missing) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			var stacks strings.Builder
			pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			t.Fatalf("no answers for %v in three minutes\n%s", missing, stacks.String())
		}
		l.mu.Lock() // not for long: those who answer need it
		for ; next < len(l.outcomes); next++ {
			o := l.outcomes[next]
			missing = slices.DeleteFunc(missing, func(name string) bool { return o.Err == "" && strings.HasPrefix(o.Op.Name, name) })
		}
		l.mu.Unlock()
	}
}

// wantIndexed fails the test unless the index has exactly one row for each tag of each
// event.
func wantIndexed(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var missing, wrong int
	err := pool.QueryRow(t.Context(), `
SELECT (SELECT count(*) FROM tidewire.events_1 e
		WHERE (SELECT count(DISTINCT tag) FROM unnest(e.tags) AS tag) <> (SELECT count(*) FROM tidewire.events_1_tag s WHERE s.position = e.position)),
	(SELECT count(*) FROM tidewire.events_1_tag s WHERE NOT EXISTS (SELECT FROM tidewire.events_1 e WHERE e.position = s.position))`,
	).Scan(&missing, &wrong)
	if err != nil || missing+wrong > 0 {
		t.Errorf("%d events are not indexed rightly, %d rows of the index are of none, %v", missing, wrong, err)
	}
}

// TestAppendIf_SeesConflictsBehindOpenTransactions holds a transaction open that has
// written: an implementation that relied on the oldest running transaction would miss all
// later conflicts.
func TestAppendIf_SeesConflictsBehindOpenTransactions(t *testing.T) {
	t.Parallel()
	db := setup(t)
	one, two := open(t, db.Pool, eventstore.Config{}), open(t, poolOf(t, db.URL), eventstore.Config{})
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{`CREATE TABLE other (n int)`, `BEGIN ISOLATION LEVEL REPEATABLE READ`, `INSERT INTO other VALUES (1)`} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	unique := eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("name:x")}
	if _, err := one.AppendIf(t.Context(), []eventstore.Event{event("Taken", "name:x")}, unique); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*eventstore.Store{one, two} {
		got := attempt(t.Context(), s, op{Conditional: true, Condition: unique}, []eventstore.Event{event("Taken", "name:x")})
		if got.Conflict != 1 {
			t.Errorf("%+v, want a conflict at 1", got)
		}
	}
}
