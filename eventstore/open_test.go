package eventstore

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ensureStore is the store of a Client of its own.
func ensureStore(ctx context.Context, pool *pgxpool.Pool, name string, cfg Config) (*Store, error) {
	c, err := Open(ctx, pool, cfg)
	if err != nil {
		return nil, err
	}
	return c.Ensure(ctx, name)
}
