package eventstore

import (
	"context"
	"testing"

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
