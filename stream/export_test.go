package stream

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Round applies the retention of each stream once.
func (k *RetentionWorker) Round(ctx context.Context) error { return k.round(ctx) }

// RotateRequests is what an Appender does every minute, or the committer for it.
func RotateRequests(ctx context.Context, pool *pgxpool.Pool, s *Stream) error {
	if s.storage.shared() {
		return rotateShared(ctx, pool)
	}
	return rotateRequests(ctx, pool, s.id)
}
