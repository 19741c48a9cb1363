package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// TestAppender_VisibleOrderIsPositionOrder has several nodes append while readers
// follow, each with its own pool: once a reader has seen the stream up to p,
// nothing may appear below p.
func TestAppender_VisibleOrderIsPositionOrder(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	const nodes, calls = 4, 100
	appending, done := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for n, pool := range pools(t, db.URL, nodes) {
		a := run(t, pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: stream.Method(n % 3)}})
		for c := range 3 {
			writing.Go(func() {
				random := rand.New(rand.NewPCG(uint64(n), uint64(c)))
				for i := range calls {
					msgs := make([]stream.Message, 1+random.IntN(10))
					for m := range msgs {
						msgs[m].Payload = fmt.Appendf(nil, "%d %d %d %d", n, c, i, m)
					}
					if _, err := a.Append(t.Context(), msgs...); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	seen := make([][]int64, 3)
	var reading sync.WaitGroup
	for r, pool := range pools(t, db.URL, len(seen)) {
		reading.Go(func() {
			followed, err := stream.Lookup(t.Context(), pool, s.Name())
			for over := false; err == nil; {
				over = appending.Err() != nil // before the last read
				var page []stream.Message
				after := int64(0)
				if len(seen[r]) > 0 {
					after = seen[r][len(seen[r])-1]
				}
				page, err = followed.Read(t.Context(), after, 50)
				for _, m := range page {
					seen[r] = append(seen[r], m.Position)
				}
				if over && len(page) == 0 {
					return
				}
			}
			t.Error(err)
		})
	}
	writing.Wait()
	done()
	reading.Wait()
	var all []int64
	for _, m := range everything(t, s) {
		all = append(all, m.Position)
	}
	for r := range seen {
		if !slices.Equal(seen[r], all) {
			t.Errorf("reader %d followed %d messages, the stream has %d", r, len(seen[r]), len(all))
		}
	}
}

// TestAppender_LostConnectionsStoreEachCallOnce cuts connections around
// COMMIT, while a node without faults moves the head of the stream.
func TestAppender_LostConnectionsStoreEachCallOnce(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		for name, method := range bothMethods {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				t.Parallel()
				db, s := ensure(t)
				cut := run(t, cutPool(t, db, randomPlan(seed, 400)), s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: method}})
				whole := run(t, db.Pool, s, stream.AppenderConfig{})
				var l ledger
				var calling sync.WaitGroup
				for n, a := range []*stream.Appender{cut, cut, cut, whole} {
					calling.Go(func() {
						for i := range 30 {
							l.append(t, t.Context(), a, fmt.Sprint(n, " ", i))
						}
					})
				}
				calling.Wait()
				l.check(t, everything(t, s))
			})
		}
	}
}

// ledger records the positions that each call returned.
type ledger struct {
	mu    sync.Mutex
	first map[string]int64
}

// append appends two messages in one call, and records the result. It reports
// whether the caller may continue.
func (l *ledger) append(t *testing.T, ctx context.Context, a *stream.Appender, name string) bool {
	first, err := firstOf(a.Append(ctx, stream.Message{Key: name, Payload: []byte(name + " a")}, stream.Message{Payload: []byte(name + " b")}))
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("call %s: %v", name, err)
		}
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = make(map[string]int64)
	}
	l.first[name] = first
	return true
}

// check wants every recorded call once, at its returned position, and nothing else.
func (l *ledger) check(t *testing.T, all []stream.Message) {
	t.Helper()
	if len(all) != 2*len(l.first) {
		t.Errorf("%d messages stored, %d acknowledged", len(all), 2*len(l.first))
	}
	stored := make(map[string]int64)
	for _, m := range all {
		if stored[string(m.Payload)] != 0 {
			t.Errorf("%q is stored twice", m.Payload)
		}
		stored[string(m.Payload)] = m.Position
	}
	for name, first := range l.first {
		if stored[name+" a"] != first || stored[name+" b"] != first+1 {
			t.Errorf("call %s is at %d and %d, its answer said %d", name, stored[name+" a"], stored[name+" b"], first)
		}
	}
}

// TestAppender_PostgreSQLKilledUnderLoad kills PostgreSQL repeatedly while two
// nodes append: all calls are answered eventually, and every message is stored
// once.
func TestAppender_PostgreSQLKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			nodes := pools(t, server.URL(), 3)
			if _, err := migrate.Up(t.Context(), nodes[0]); err != nil {
				t.Fatal(err)
			}
			s := ensureWith(t, nodes[0], "killed", stream.Options{Keyed: true})
			var l ledger
			var calling, killing sync.WaitGroup
			loading := make(chan struct{})
			for n, pool := range nodes[1:] {
				a := run(t, pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{CopyRows: 16}})
				for c := range 20 {
					calling.Go(func() {
						for i := 0; ; i++ {
							select {
							case <-loading:
								return
							default:
							}
							if !l.append(t, t.Context(), a, fmt.Sprint(n, " ", c, " ", i)) {
								return
							}
						}
					})
				}
			}
			killing.Go(func() {
				defer close(loading)
				random := rand.New(rand.NewPCG(seed, 4))
				for range 3 {
					time.Sleep(time.Duration(50+random.IntN(300)) * time.Millisecond)
					pgtest.Crash(t, server)
				}
				time.Sleep(100 * time.Millisecond)
			})
			killing.Wait()
			calling.Wait()
			if len(l.first) == 0 {
				t.Error("nothing was appended")
			}
			l.check(t, everything(t, s))
		})
	}
}

// far is a connection with a latency of a millisecond.
type far struct{ net.Conn }

func (c far) Write(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return c.Conn.Write(p)
}

// TestAppender_FarNodeGetsItsTurn lets a node close to PostgreSQL write as fast as
// it can: the head known to the far node is always outdated.
func TestAppender_FarNodeGetsItsTurn(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return far{conn}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	near := run(t, db.Pool, s, stream.AppenderConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	loading, enough := context.WithCancel(ctx)
	var calling sync.WaitGroup
	for range 20 {
		calling.Go(func() {
			for loading.Err() == nil {
				if _, err := near.Append(loading, stream.Message{}); err != nil && loading.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	a := run(t, pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: stream.Copy}})
	for n := range 50 {
		if _, err := a.Append(ctx, stream.Message{}); err != nil {
			t.Fatalf("append %d: %v", n, err)
		}
	}
	enough()
	calling.Wait()
}

// TestAppender_WritesWhenPostgreSQLIsBack starts while PostgreSQL is stopped.
func TestAppender_WritesWhenPostgreSQLIsBack(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	pool, err := pg.Open(t.Context(), pg.PoolConfig{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := migrate.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s := ensureWith(t, pool, "away", stream.Options{})
	if err := server.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, stop := start(t, pool, s, stream.AppenderConfig{})
	var first int64
	err = a.Submit(t.Context(), []stream.Message{{Payload: []byte("kept")}}, func(at stream.Appended, err error) {
		if first = at.First; err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	if all := everything(t, s); len(all) != 1 || all[0].Position != first {
		t.Errorf("stored %v, want one at %d", all, first)
	}
}
