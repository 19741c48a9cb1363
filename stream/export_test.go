package stream

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// RotateRequests is what an Appender does every minute.
func RotateRequests(ctx context.Context, pool *pgxpool.Pool, s *Stream) error {
	return rotateRequests(ctx, pool, s.id)
}
