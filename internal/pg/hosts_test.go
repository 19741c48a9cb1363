package pg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

// startPair starts a pair whose commits wait for nobody, with a table.
func startPair(t *testing.T) pgtest.Pair {
	t.Helper()
	p := pgtest.StartPair(t, pgxpool.New)
	p.Unsynchronised(t)
	if _, err := p.Pool.Exec(t.Context(), `CREATE TABLE public.t (n int)`); err != nil {
		t.Fatal(err)
	}
	p.CatchUp(t)
	return p
}

// promote makes the standby a primary while the old primary continues to run.
func promote(t *testing.T, p pgtest.Pair) *pgxpool.Pool {
	t.Helper()
	pool := openPool(t, pg.PoolConfig{URL: p.Standby.URL()})
	if _, err := pool.Exec(t.Context(), `SELECT pg_promote()`); err != nil {
		t.Fatal(err)
	}
	return pool
}

func openPool(t *testing.T, cfg pg.PoolConfig) *pgxpool.Pool {
	t.Helper()
	pool, err := pg.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// insert inserts until it succeeds.
func insert(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for failed := 0; ; failed++ {
		_, err := pool.Exec(ctx, `INSERT INTO public.t VALUES ($1)`, n)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("nothing goes on: %v", err)
		}
		if !pg.Retryable(err) {
			t.Fatalf("not retryable: %v", err)
		}
		pg.Backoff(ctx, failed)
	}
}

func rows(t *testing.T, pool *pgxpool.Pool, where string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM public.t WHERE `+where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// backwards returns the address with its hosts in reverse order: this process knows nothing about it yet.
func backwards(url string) string {
	fields := strings.Fields(url)
	for i, f := range fields {
		for _, name := range []string{"host=", "port="} {
			if list, ok := strings.CutPrefix(f, name); ok {
				first, second, _ := strings.Cut(list, ",")
				fields[i] = name + second + "," + first
			}
		}
	}
	return strings.Join(fields, " ")
}

// TestHosts_FrozenPrimary: the primary is first in the address, and freezes. Waiting calls are retried, and succeed
// after the standby was promoted. The former primary comes back and would accept writes: nothing is written there any
// more, whether this process has seen the promotion or not.
func TestHosts_FrozenPrimary(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	var log testkit.Log
	pool := openPool(t, pg.PoolConfig{URL: p.Both(t), Log: slog.New(slog.NewTextHandler(&log, nil))})
	insert(t, pool, 1)
	p.CatchUp(t)
	thaw := pgtest.FreezeServer(t, p.Primary)
	frozen := time.Now()
	inserted := make(chan time.Time, 1)
	go func() {
		insert(t, pool, 2)
		inserted <- time.Now()
	}()
	testkit.Eventually(t, "the silence is noticed", func() bool { return log.Count("does not answer") > 0 })
	t.Logf("noticed %v after the freeze", time.Since(frozen).Round(time.Millisecond))
	if stats := pg.HostsOf(pool); stats != (pg.HostStats{Silent: 1}) {
		t.Errorf("%+v", stats)
	}
	promoted := time.Now() // pg_promote returns later than the first INSERT
	standby := promote(t, p)
	t.Logf("inserted %v after the promotion was asked for", (<-inserted).Sub(promoted).Round(time.Millisecond))

	thaw()
	former := connectTo(t, p.Primary.URL())
	testkit.Eventually(t, "the former primary is refused", func() bool { return log.Count("server is refused") > 0 })
	var wg sync.WaitGroup
	const clients = 50 // PostgreSQL admits 97
	for i := range clients {
		wg.Go(func() {
			conn, err := pg.Connect(t.Context(), p.Both(t))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close(context.Background())
			if _, err := conn.Exec(t.Context(), `INSERT INTO public.t VALUES ($1)`, 100+i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := rows(t, standby, `n >= 100`); n != clients {
		t.Errorf("%d of %d inserts are on the new primary", n, clients)
	}
	var n int
	if err := former.QueryRow(t.Context(), `SELECT count(*) FROM public.t WHERE n >= 100`).Scan(&n); err != nil || n > 0 {
		t.Errorf("%d rows on the former primary, %v", n, err)
	}
	if n := log.Count("server is refused"); n != 1 {
		t.Errorf("the refusal is told %d times", n)
	}
	if stats := pg.HostsOf(pool); stats != (pg.HostStats{Refused: 1}) {
		t.Errorf("%+v", stats)
	}
}

// TestHosts_FormerPrimary: connections to a primary that continues to run after its standby was promoted are closed. A new
// process knows nothing: it asks all hosts before it trusts the first. When only the former primary is there, it is refused, and
// the error says why.
func TestHosts_FormerPrimary(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	before := openPool(t, pg.PoolConfig{URL: p.Both(t)})
	insert(t, before, -2)
	p.CatchUp(t)
	waits := make(chan error, 1)
	go func() {
		_, err := before.Exec(t.Context(), `SELECT pg_sleep(3600)`)
		waits <- err
	}()
	standby := promote(t, p)
	if err := <-waits; !pg.Retryable(err) {
		t.Errorf("what waits on the former primary: %v", err)
	}
	insert(t, before, -1)
	if n := rows(t, standby, `n = -1`); n != 1 {
		t.Error("not inserted on the new primary")
	}
	pool := openPool(t, pg.PoolConfig{URL: backwards(p.Both(t))}) // this process knows nothing about the order yet
	for i := range 20 {
		insert(t, pool, i)
	}
	if n := rows(t, standby, `n >= 0`); n != 20 {
		t.Errorf("%d of 20 rows are on the new primary", n)
	}
	if err := p.Standby.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := pool.Exec(t.Context(), `INSERT INTO public.t VALUES (200)`)
		if err == nil {
			t.Fatal("the former primary is written to")
		}
		if !pg.Retryable(err) {
			t.Fatalf("not retryable: %v", err)
		}
		if !errors.Is(err, pg.ErrFormerPrimary) {
			continue // a connection of before
		}
		for _, part := range []string{"its timeline is 1", "has timeline 2", "pg_rewind"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v: lacks %q", err, part)
			}
		}
		break
	}
	if err := p.Standby.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert(t, pool, 300)
}

// TestHosts_OtherCluster: a server with other data is refused.
func TestHosts_OtherCluster(t *testing.T) {
	t.Parallel()
	p := pgtest.Pair{Primary: pgtest.Start(t), Standby: pgtest.StartOther(t)}
	var log testkit.Log
	pool := openPool(t, pg.PoolConfig{URL: p.Both(t), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if log.Count("system identifier") != 1 {
		t.Errorf("the log lacks it: %s", log.String())
	}
	if err := p.Primary.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		if err := pool.Ping(t.Context()); err == nil {
			t.Fatal("the other cluster is used")
		} else if errors.Is(err, pg.ErrOtherCluster) {
			break
		}
	}
	if err := p.Primary.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for failed := 0; pool.Ping(t.Context()) != nil; failed++ {
		pg.Backoff(t.Context(), failed)
	}
}

// TestHosts_SlowIsNotSilent: a wait for a lock, a COPY that the server does not read, a long query, and a COMMIT that
// waits for a standby are not ended, though they take longer than the watch needs to find a silent server. They are not
// ended either if only the watch's own connection hangs.
func TestHosts_SlowIsNotSilent(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes longer than the watch needs to find a silent server")
	}
	p := pgtest.StartPair(t, pgxpool.New)
	url, _ := overTCP(t, p)
	var log testkit.Log
	pool := openPool(t, pg.PoolConfig{URL: url, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, table := range []string{"public.t", "public.other"} {
		if _, err := pool.Exec(t.Context(), `CREATE TABLE `+table+` (n int)`); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(context.Background())
	if _, err := lock.Exec(t.Context(), `LOCK TABLE public.t`); err != nil {
		t.Fatal(err)
	}
	thaw := p.Freeze(t)
	slept, done := make(chan error, 1), make(chan error, 3)
	start := func(done chan<- error, sql string) {
		go func() {
			_, err := pool.Exec(t.Context(), sql)
			done <- err
		}()
	}
	start(done, `INSERT INTO public.t VALUES (1)`)
	start(done, `INSERT INTO public.other VALUES (1)`)
	go func() {
		done <- pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error { // pgx's CopyFrom would wait before it sends
			_, err := conn.Conn().PgConn().CopyFrom(t.Context(), strings.NewReader(strings.Repeat("1\n", 4<<20)), `COPY public.t FROM STDIN`)
			return err
		})
	}()
	for _, what := range []string{
		`query LIKE 'COPY%' AND wait_event_type = 'Lock'`, `query LIKE 'INSERT INTO public.t %' AND wait_event_type = 'Lock'`, `wait_event = 'SyncRep'`,
	} {
		awaitBackend(t, p.Pool, what)
	}
	watch := awaitBackend(t, p.Pool, `application_name = 'tidewire watch'`)
	if err := syscall.Kill(watch, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(watch, syscall.SIGCONT)
	awaitBackend(t, p.Pool, fmt.Sprintf(`application_name = 'tidewire watch' AND pid <> %d`, watch)) // it asks on a new one
	start(slept, `SELECT pg_sleep(6)`)
	if err := <-slept; err != nil {
		t.Error(err)
	}
	if n := p.Waiting(t, "1"); n == 0 {
		t.Error("no COMMIT waits for the standby")
	}
	thaw()
	if err := lock.Commit(t.Context()); err != nil { // which locks the table on the standby, too
		t.Errorf("idle in a transaction: %v", err)
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if log.Count("does not answer") > 0 {
		t.Error(log.String())
	}
}

// awaitBackend waits until a backend is as the condition on pg_stat_activity says, and returns its process.
func awaitBackend(t *testing.T, pool *pgxpool.Pool, condition string) (pid int) {
	t.Helper()
	testkit.Eventually(t, "a backend with "+condition, func() bool {
		err := pool.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE `+condition+` LIMIT 1`).Scan(&pid)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		return err == nil
	})
	return pid
}

// overTCP returns an address of both servers through proxies, and the proxies.
func overTCP(t *testing.T, p pgtest.Pair) (url string, proxies []*pgtest.Proxy) {
	t.Helper()
	cfg := parse(t, p.Both(t))
	for _, server := range []*pgxpool.Config{parse(t, p.Primary.URL()), parse(t, p.Standby.URL())} {
		proxies = append(proxies, pgtest.StartProxy(t, "unix", fmt.Sprintf("%s/.s.PGSQL.%d", server.ConnConfig.Host, server.ConnConfig.Port)))
	}
	return fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=%s dbname=%s sslmode=disable target_session_attrs=read-write",
		proxies[0].Port, proxies[1].Port, cfg.ConnConfig.User, cfg.ConnConfig.Database), proxies
}

// TestHosts_Swallowed: all packets between the pool and the primary get lost, and the connections stay open.
func TestHosts_Swallowed(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	url, proxies := overTCP(t, p)
	pool := openPool(t, pg.PoolConfig{URL: url})
	insert(t, pool, 1)
	p.CatchUp(t)
	proxies[0].Swallow()
	swallowed := time.Now()
	_, err := pool.Exec(t.Context(), `SELECT pg_sleep(3600)`)
	if !pg.Retryable(err) {
		t.Errorf("not retryable: %v", err)
	}
	t.Logf("noticed after %v", time.Since(swallowed).Round(time.Millisecond))
	standby := promote(t, p)
	promoted := time.Now()
	insert(t, pool, 2)
	t.Logf("inserted %v after the promotion", time.Since(promoted).Round(time.Millisecond))
	if n := rows(t, standby, `n = 2`); n != 1 {
		t.Error("not inserted on the new primary")
	}
}

func parse(t *testing.T, url string) *pgxpool.Config {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
