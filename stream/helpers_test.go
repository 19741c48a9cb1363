package stream_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// poolWith opens a pool on a database with a changed configuration.
func poolWith(t *testing.T, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	change(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// dialing changes the connections of a pool.
func dialing(wrap func(net.Conn) net.Conn) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) {
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return wrap(conn), nil
		}
	}
}

// newRole makes a role that may call all functions, and has the other grants, in which # is its name. It ends with the test.
func newRole(t *testing.T, db pgtest.DB, grants string) (role string) {
	t.Helper()
	role = value[string](t, db.Pool, `SELECT current_database() || '_role'`)
	exec(t, db.Pool, strings.ReplaceAll(`CREATE ROLE #; GRANT USAGE ON SCHEMA tidewire TO #; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tidewire TO #; `+grants, "#", role))
	t.Cleanup(func() {
		if _, err := db.Pool.Exec(context.Background(), strings.ReplaceAll(`DROP OWNED BY #; DROP ROLE #`, "#", role)); err != nil {
			t.Error(err)
		}
	})
	return role
}

// onTables are the grants of a role that writes.
const onTables = `GRANT ALL ON ALL TABLES IN SCHEMA tidewire TO #; GRANT ALL ON ALL SEQUENCES IN SCHEMA tidewire TO #`

// value returns the value that a query has for a result.
func value[T any](t *testing.T, on interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, sql string, args ...any) (v T) {
	t.Helper()
	if err := on.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func rollBack(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func ensureWith(t *testing.T, pool *pgxpool.Pool, name string, opts stream.Options) *stream.Stream {
	t.Helper()
	s, err := stream.Ensure(t.Context(), pool, name, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func lookUp(t *testing.T, pool *pgxpool.Pool, name string) *stream.Stream {
	t.Helper()
	s, err := stream.Lookup(t.Context(), pool, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// awaitLockWaiters waits until so many sessions wait for a lock in the database of the test.
func awaitLockWaiters(t *testing.T, db pgtest.DB, n int) {
	t.Helper()
	testkit.Eventually(t, "sessions wait for locks", func() bool {
		return n <= value[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	})
}
