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

// rotateEvery is how often a process that adds records of requests checks whether
// they have to be rotated, plus or minus a quarter.
const rotateEvery = time.Minute

// requestKeeper rotates the records of requests, starting with the first record that is
// added.
type requestKeeper struct {
	once     sync.Once
	cancel   context.CancelFunc
	recorded chan struct{} // one slot: something was recorded
}

// note tells k that requests were recorded. The first call starts a goroutine in helpers,
// which rotates until ctx ends or stop is called.
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

// keep rotates after the first record, and then about every rotateEvery while more
// are added. If it fails it tries again the next time; until then more records are
// kept.
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

// noteRequests notes that requests to the stream were recorded. The Appender rotates
// the records of a stream with its own tables, until Stop; the committer rotates
// those of shared streams.
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

// rotateRequests deletes expired records, in three steps: a transaction that may be
// slow and delays no one (fold), a vacuum, and a short transaction that holds the
// stream's lock (swap).
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
	// keepShared is how long each of the two record tables of shared streams is in use. A
	// transaction under way during the change leaves its record in the old table: if it takes
	// at most a minute, its record is still kept for KeepRequests.
	keepShared = KeepRequests + time.Minute
	// foldBlocks is how many blocks of a table one transaction processes: some 5,000
	// records.
	foldBlocks = 64
)

// rotateRequests deletes expired records of shared streams, some in each transaction, so
// that no one waits for long.
func (c *committer) rotateRequests(ctx context.Context) error { return rotateShared(ctx, c.pool) }

func rotateShared(ctx context.Context, pool *pgxpool.Pool) error {
	folding, cancel := context.WithTimeout(ctx, KeepRequests)
	defer cancel()
	var turn int64
	for block, end := int64(0), int64(1); block < end; block += foldBlocks {
		var in, blocks *int64 // NULL if no rotation is due, or another process does it
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

// vacuumOld vacuums the record table that the query names, if any. Rows that a snapshot
// still sees stay.
func vacuumOld(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) error {
	var old *string
	if err := pool.QueryRow(ctx, sql, args...).Scan(&old); err != nil || old == nil {
		return err
	}
	return vacuum(ctx, pool, *old)
}

// vacuum frees the space of an emptied table, except for rows that a snapshot still
// sees.
func vacuum(ctx context.Context, pool *pgxpool.Pool, table string) error {
	_, err := pool.Exec(ctx, fmt.Sprintf(vacuumFmt, table))
	return err
}

// step runs one query in a transaction, and waits for each lock no longer than
// wait.
func step(ctx context.Context, pool *pgxpool.Pool, wait time.Duration, dst any, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return stepRows(ctx, pool, wait, scanOne(dst), sql, args...)
}

// stepRows is step for a query that returns any number of rows; only ctx bounds its
// time.
func stepRows(ctx context.Context, pool *pgxpool.Pool, wait time.Duration, collect func(pgx.Rows) error, sql string, args ...any) error {
	var b pgx.Batch
	b.Queue(beginSQL)
	b.Queue(pg.WriterSettings(wait))
	b.Queue(sql, args...).Query(collect)
	b.Queue(commitSQL)
	return pg.SendBatch(ctx, pool, &b)
}
