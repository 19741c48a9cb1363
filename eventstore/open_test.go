package eventstore

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ensureStore returns the store of a new Client.
func ensureStore(ctx context.Context, pool *pgxpool.Pool, name string, cfg Config) (*Store, error) {
	c, err := Open(ctx, pool, cfg)
	if err != nil {
		return nil, err
	}
	return c.Ensure(ctx, name)
}

// slow skips a test that takes more than about a second, if that is too long.
func slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
}

// begin begins a transaction that ends with the test at the latest.
func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}
