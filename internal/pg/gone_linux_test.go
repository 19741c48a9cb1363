package pg_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

// onMachine returns a machine with the server, and the connection parameters for its login.
func onMachine(t *testing.T, server *embedpg.Server) (m *pgtest.Machine, login string) {
	t.Helper()
	cfg := parse(t, server.URL()).ConnConfig
	m = pgtest.StartMachine(t, "unix", fmt.Sprintf("%s/.s.PGSQL.%d", cfg.Host, cfg.Port))
	return m, fmt.Sprintf("user=%s dbname=%s sslmode=disable", cfg.User, cfg.Database)
}

// wantGone fails the test unless a call that waits for the machine soon ends with a lost connection. The system alone would wait for minutes.
func wantGone(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, context.DeadlineExceeded) || !pg.Retryable(err) {
		t.Errorf("%s: %v, want an error that is worth another attempt", what, err)
	}
}

// TestHosts_MachineGone: the only server's machine disappears without closing connections. A query that waits for its answer, and
// one that is sent afterwards, fail.
func TestHosts_MachineGone(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	m, login := onMachine(t, pgtest.Start(t))
	pool := openPool(t, pg.PoolConfig{URL: fmt.Sprintf("host=%s port=%d %s", m.Host, m.Port, login)})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waiting := make(chan error, 1)
	asleep := acquire(t, ctx, pool)
	go func() {
		_, err := asleep.Exec(ctx, `SELECT pg_sleep(3600)`)
		waiting <- err
	}()
	idle := acquire(t, ctx, pool)
	awaitBackend(t, pool, `wait_event = 'PgSleep'`)
	m.Vanish(t)
	vanished := time.Now()
	_, err := idle.Exec(ctx, `SELECT 1`)
	wantGone(t, "a query sent afterwards", err)
	t.Logf("a query sent afterwards failed after %v", time.Since(vanished).Round(time.Millisecond))
	wantGone(t, "a query that waited", <-waiting)
	t.Logf("a query that waited failed after %v", time.Since(vanished).Round(time.Millisecond))
}

func acquire(t *testing.T, ctx context.Context, pool *pgxpool.Pool) *pgxpool.Conn {
	t.Helper()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return conn
}
