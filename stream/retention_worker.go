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
	// Every is the interval of checks, plus or minus a quarter. Defaults to 10 s.
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

// RetentionWorker applies the Retention of all streams of a database: it drops messages past
// their retention; for a stream with its own tables it drops whole segments. Once an hour it
// also deletes the batch marks of dead writers. Any number of processes may run one; advisory
// locks ensure that one of them works at a time.
//
// It checks all streams in the shared table with two queries, and deletes messages of many
// streams in one transaction; only a move or a drop of a stream waits for that. It checks
// each stream with its own tables separately, and delays other transactions for at most its
// bound for locks, some 40 ms: while a long transaction reads a stream, that stream keeps its
// segments, and the RetentionWorker tries again in its next round.
type RetentionWorker struct {
	cfg   RetentionWorkerConfig
	pool  *pgxpool.Pool
	swept time.Time // when old batch marks were last deleted; used only by Run
}

// NewRetentionWorker returns a RetentionWorker that works through the pool. It does nothing until
// Run.
func NewRetentionWorker(pool *pgxpool.Pool, cfg RetentionWorkerConfig) *RetentionWorker {
	return &RetentionWorker{cfg: cfg.withDefaults(), pool: pool}
}

// Bounds of a RetentionWorker's waits for locks.
const (
	// sealWait is for the lock of a stream, which is granted in turn, so waiting
	// for it delays no one.
	sealWait = time.Second
	// dropWait is for a stream's table, for the first of dropTries attempts; it
	// doubles each time. All later users of the table wait as well (lock queue).
	dropWait  = 5 * time.Millisecond
	dropTries = 4
	// dropBatch is the most segments that tidewire.drop_segments and drop_expired drop at once.
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

// policy is a stream with its own tables and a Retention.
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

// keep applies the retention of one stream and returns the number of dropped
// segments.
func (k *RetentionWorker) keep(ctx context.Context, id int32) (dropped int, err error) {
	var settled *int64
	if err := step(ctx, k.pool, sealWait, &settled, sealSegmentSQL, id); err != nil {
		return 0, fmt.Errorf("seal: %w", err)
	}
	if settled == nil {
		return 0, nil // another process applies retention
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

// drop runs a query that drops segments up to that position, at most dropBatch. It waits
// longer for the lock with each attempt: it succeeds between short reads, and gives up
// during a long one.
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
