package scenario

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
)

// Checkpoints are counted in a view of their own from PostgreSQL 17 on.
const (
	checkpointsSQL     = `SELECT num_timed + num_requested FROM pg_stat_checkpointer`
	checkpointsSQLTo16 = `SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter`
)

// withCheckpoints adds to counters how many checkpoints PostgreSQL has begun, for
// whoever asks why a second was slow. It does without where PostgreSQL does not say.
func withCheckpoints(ctx context.Context, pool *pgxpool.Pool, count func() bench.Counters) func() bench.Counters {
	if pool == nil {
		return count
	}
	sql := checkpointsSQL
	if _, err := number(ctx, pool, sql); err != nil {
		sql = checkpointsSQLTo16
	}
	return func() bench.Counters {
		c := count()
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if n, err := number(ctx, pool, sql); err == nil {
			c.Checkpoints = n
		}
		return c
	}
}
