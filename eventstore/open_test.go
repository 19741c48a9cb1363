package eventstore

import (
	"context"

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
