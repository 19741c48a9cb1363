package stream

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// RetentionWorkerConfig configures a RetentionWorker.
type RetentionWorkerConfig struct {
	// Every is how often the streams are looked at, give or take a quarter.
	// Defaults to 10 s.
	Every time.Duration
	// Log receives a line when messages were dropped, or could not be. Defaults
	// to none.
	Log *slog.Logger
}

func (c RetentionWorkerConfig) withDefaults() RetentionWorkerConfig {
	if c.Every <= 0 {
		c.Every = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// RetentionWorker applies the Retention of all streams of a database: it drops the
// messages that need not be kept, of a stream with tables of its own in whole
// segments. Once an hour it also deletes what writers that died have left. Any
// number of processes may run one; advisory locks let one of them work at a time.
//
// It looks at all streams that share a table with two queries, and deletes messages of
// many in one transaction. Nobody waits for that but who moves or drops a stream. It looks at
// each of the others for itself, and nobody waits for it longer than its bound for
// locks, some 40 ms: while a long transaction reads a stream, that stream keeps its
// segments, and the RetentionWorker tries again in its next round.
type RetentionWorker struct {
	cfg   RetentionWorkerConfig
	pool  *pgxpool.Pool
	swept time.Time // when batchGC were looked for; of Run alone
}

// NewRetentionWorker returns a RetentionWorker that works through the pool. It does nothing until
// Run.
func NewRetentionWorker(pool *pgxpool.Pool, cfg RetentionWorkerConfig) *RetentionWorker {
	return &RetentionWorker{cfg: cfg.withDefaults(), pool: pool}
}

// Bounds of what a RetentionWorker waits for locks.
const (
	// sealWait is for the lock of a stream, which is granted in turn: waiting
	// for it delays nobody.
	sealWait = time.Second
	// dropWait is for a stream's table, for the first attempt of dropTries; it
	// doubles each time. Everybody who comes to the table waits as well.
	dropWait  = 5 * time.Millisecond
	dropTries = 4
	// dropBatch is the most segments that tidewire.drop_segments drops at once, and so drop_expired.
	dropBatch = 32
)

// Run applies retention until ctx ends. A failure is logged, and tried again in
// the next round.
func (k *RetentionWorker) Run(ctx context.Context) {
	timer := time.NewTimer(rand.N(k.cfg.Every))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := k.round(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("retention not applied", "error", err)
		}
		if time.Since(k.swept) >= pg.SweepEvery {
			k.swept = time.Now()
			if err := pg.SweepBatches(ctx, k.pool); err != nil && ctx.Err() == nil {
				k.cfg.Log.Warn("old batch marks not deleted", "error", err)
			}
		}
		timer.Reset(pg.Jitter(k.cfg.Every))
	}
}

// policy names a stream with tables of its own that has a Retention.
type policy struct {
	id   int32
	name string
}

// round applies the retention of each stream once.
func (k *RetentionWorker) round(ctx context.Context) error {
	if err := k.keepShared(ctx); err != nil && ctx.Err() == nil {
		k.cfg.Log.Warn("messages of shared streams not dropped", "error", err)
	}
	rows, err := k.pool.Query(ctx, listPoliciesSQL)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p policy, err error) {
		return p, row.Scan(&p.id, &p.name)
	})
	if err != nil {
		return err
	}
	for _, p := range all {
		dropped, err := k.keep(ctx, p.id)
		if dropped > 0 {
			k.cfg.Log.Info("segments dropped", "stream", p.name, "segments", dropped)
		}
		if err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("segments not dropped", "stream", p.name, "error", err)
		}
	}
	return nil
}

// keep applies the retention of one stream and returns how many segments it
// dropped.
func (k *RetentionWorker) keep(ctx context.Context, id int32) (dropped int, err error) {
	var settled *int64
	if err := step(ctx, k.pool, sealWait, &settled, sealSegmentSQL, id); err != nil {
		return 0, fmt.Errorf("seal: %w", err)
	}
	if settled == nil {
		return 0, nil // another process keeps
	}
	var upto int64
	if err := step(ctx, k.pool, sealWait, &upto, expiredSQL, id, *settled); err != nil {
		return 0, fmt.Errorf("look for segments: %w", err)
	}
	if upto == 0 {
		return 0, nil
	}
	for {
		n, err := k.drop(ctx, dropExpiredSQL, id, *settled)
		if dropped += n; err != nil || n < dropBatch {
			return dropped, err
		}
	}
}

// drop has the query drop segments up to that position, a batch of them at most. It waits a
// little longer with each attempt: after short reads it gets its turn, and
// after a long one it gives up.
func (k *RetentionWorker) drop(ctx context.Context, sql string, id int32, upto int64) (dropped int, err error) {
	for failed := range dropTries {
		err = step(ctx, k.pool, dropWait<<failed, &dropped, sql, id, upto)
		if pg.Code(err) != pg.CodeLockNotAvailable {
			return dropped, err
		}
		if waitErr := pg.Backoff(ctx, failed); waitErr != nil {
			return 0, waitErr
		}
	}
	return 0, err
}
