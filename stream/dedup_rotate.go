package stream

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// rotateEvery is how often a process looks whether records of requests are to be
// rotated, as long as it adds to them, give or take a quarter.
const rotateEvery = time.Minute

// requestKeeper keeps the records of requests from the first that is added on.
type requestKeeper struct {
	once     sync.Once
	cancel   context.CancelFunc
	recorded chan struct{} // one slot: something was recorded
}

// note says that requests were recorded. With the first, a goroutine of helpers begins to
// rotate, and does so until ctx ends, or stop.
func (k *requestKeeper) note(ctx context.Context, helpers *sync.WaitGroup, rotate func(context.Context) error, log *slog.Logger) {
	k.once.Do(func() {
		k.recorded = make(chan struct{}, 1)
		ctx, k.cancel = context.WithCancel(ctx)
		helpers.Go(func() { k.keep(ctx, rotate, log) })
	})
	pg.Signal(k.recorded)
}

// stop ends the goroutine that rotates, if there is one.
func (k *requestKeeper) stop() {
	if k.cancel != nil {
		k.cancel()
	}
}

// keep rotates when something is added at first, and every now and then while more is
// added. It tries again the next time if it fails: more is kept until then.
func (k *requestKeeper) keep(ctx context.Context, rotate func(context.Context) error, log *slog.Logger) {
	for {
		select {
		case <-k.recorded:
		case <-ctx.Done():
			return
		}
		err := rotate(ctx)
		if err != nil && pg.Code(err) != pg.CodeLockNotAvailable && ctx.Err() == nil {
			log.Warn("records of requests not rotated", "error", err)
		}
		select {
		case <-time.After(pg.Jitter(rotateEvery)):
		case <-ctx.Done():
			return
		}
	}
}

// noteRequests says that requests to the stream were recorded. Those of a stream with
// tables of its own are kept by its Appender until Stop, and those of all others by
// the committer.
func (a *Appender) noteRequests() {
	log := a.cfg.Writer.Log
	if c := a.committer.Load(); a.stream.storage.shared() {
		c.keeper.note(c.life, &c.helpers, c.rotateRequests, log)
		return
	}
	a.keeper.note(a.work, &a.helpers, a.rotateInTurn, log)
}

// rotateInTurn keeps the Appenders that share connections from rotating all at
// once: their streams have the same age, and each fold reads a whole table.
func (a *Appender) rotateInTurn(ctx context.Context) error {
	if a.rotating != nil {
		select {
		case a.rotating <- struct{}{}:
			defer func() { <-a.rotating }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := rotateRequests(ctx, a.pool, a.stream.id); err != nil {
		return fmt.Errorf("stream %q: %w", a.stream.name, err)
	}
	return nil
}

// rotateRequests gives up the records that need not be kept: in a transaction that
// may take its time and delays nobody, by vacuuming, and in a transaction that has
// the stream's lock.
func rotateRequests(ctx context.Context, pool *pgxpool.Pool, stream int32) error {
	var due bool
	folding, cancel := context.WithTimeout(ctx, KeepRequests)
	defer cancel()
	err := inReadCommitted(folding, pool, foldRequestsSQL, []any{stream, KeepRequests}, scanOne(&due))
	if err != nil || !due {
		return err
	}
	if err := vacuumOld(folding, pool, oldRequestsSQL, stream); err != nil {
		return err
	}
	return step(ctx, pool, sealWait, &due, swapRequestsSQL, stream, KeepRequests)
}

const (
	// keepShared is for how long each of the two tables of shared streams is in use. A
	// transaction that is under way at the change leaves its record in the one that has gone
	// out of use: if it takes up to a minute, its record is kept for KeepRequests all the same.
	keepShared = KeepRequests + time.Minute
	// foldBlocks is how much of a table is in one transaction: some 5,000 records.
	foldBlocks = 64
)

// rotateRequests gives up the records of shared streams that need not be kept, some in each
// transaction, so that nobody waits for long.
func (c *committer) rotateRequests(ctx context.Context) error { return rotateShared(ctx, c.pool) }

func rotateShared(ctx context.Context, pool *pgxpool.Pool) error {
	folding, cancel := context.WithTimeout(ctx, KeepRequests)
	defer cancel()
	var turn int64
	for block, end := int64(0), int64(1); block < end; block += foldBlocks {
		var in, blocks *int64 // nothing if it is not time, or another process is at it
		err := inReadCommitted(folding, pool, foldSharedRequestsSQL, []any{keepShared, block, block + foldBlocks}, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&in, &blocks}, func() error { return nil })
			return err
		})
		if err != nil || in == nil || block > 0 && *in != turn {
			return err
		}
		turn, end = *in, *blocks
	}
	if err := vacuumOld(folding, pool, oldSharedRequestsSQL); err != nil {
		return err
	}
	var swapped bool
	return step(ctx, pool, sealWait, &swapped, swapSharedRequestsSQL, turn)
}

// vacuumOld gives back what the table of records held that the query names, as far as no
// snapshot sees it.
func vacuumOld(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) error {
	var old *string
	if err := pool.QueryRow(ctx, sql, args...).Scan(&old); err != nil || old == nil {
		return err
	}
	return vacuum(ctx, pool, *old)
}

// vacuum gives back what a table held that was emptied, as far as no snapshot sees
// it.
func vacuum(ctx context.Context, pool *pgxpool.Pool, table string) error {
	_, err := pool.Exec(ctx, fmt.Sprintf(vacuumFmt, table))
	return err
}

// step runs one query in a transaction, and waits for no lock longer than the
// bound.
func step(ctx context.Context, pool *pgxpool.Pool, wait time.Duration, dst any, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return stepRows(ctx, pool, wait, scanOne(dst), sql, args...)
}

// stepRows is step with a query that returns any rows, until ctx ends.
func stepRows(ctx context.Context, pool *pgxpool.Pool, wait time.Duration, collect func(pgx.Rows) error, sql string, args ...any) error {
	var b pgx.Batch
	b.Queue(beginSQL)
	b.Queue(pg.WriterSettings(wait))
	b.Queue(sql, args...).Query(collect)
	b.Queue(commitSQL)
	return pg.SendBatch(ctx, pool, &b)
}
