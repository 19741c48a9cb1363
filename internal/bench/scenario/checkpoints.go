package scenario

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
)

// Since PostgreSQL 17, checkpoints are counted in a separate view.
const (
	checkpointsSQL     = `SELECT num_timed + num_requested FROM pg_stat_checkpointer`
	checkpointsSQLTo16 = `SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter`
)

// withCheckpoints adds the number of checkpoints that PostgreSQL has begun to the
// counters, which may explain a slow second. If PostgreSQL does not report it, the
// counters stay without it.
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
