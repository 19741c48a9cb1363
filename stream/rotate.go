package stream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// rotateEvery is how often an Appender looks whether the records of its
// stream's producers are to be rotated, as long as it adds to them, give or take
// a quarter.
const rotateEvery = time.Minute

// noteRequests says that requests were recorded; with the first, it has somebody keep the
// records while Run lasts.
func (a *Appender) noteRequests() {
	signal(a.recorded)
	a.keeping.Do(func() {
		a.helpers.Go(func() { a.keepRequests(a.gathering) })
	})
}

// keepRequests rotates the records of the stream's producers, at the first that
// this Appender adds and every now and then while it adds more, until ctx ends.
// What fails is tried again the next time: more is kept until then.
func (a *Appender) keepRequests(ctx context.Context) {
	for {
		select {
		case <-a.recorded:
		case <-ctx.Done():
			return
		}
		err := a.rotateInTurn(ctx)
		if err != nil && pg.Code(err) != pg.CodeLockNotAvailable && ctx.Err() == nil {
			a.cfg.Writer.Log.Warn("records of producers not rotated", "stream", a.stream.name, "error", err)
		}
		select {
		case <-time.After(rotateEvery*3/4 + rand.N(rotateEvery/2)):
		case <-ctx.Done():
			return
		}
	}
}

// rotateInTurn keeps the Appenders that share connections from rotating all at
// once: their streams have the same age, and each fold reads a whole table.
func (a *Appender) rotateInTurn(ctx context.Context) error {
	select {
	case a.rotating <- struct{}{}:
		defer func() { <-a.rotating }()
		return rotateRequests(ctx, a.writer.pool, a.stream.id)
	case <-ctx.Done():
		return ctx.Err()
	}
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
	var old *string
	if err := pool.QueryRow(folding, oldRequestsSQL, stream).Scan(&old); err != nil {
		return err
	}
	if old != nil {
		if err := vacuum(folding, pool, *old); err != nil {
			return err
		}
	}
	return step(ctx, pool, sealWait, &due, swapRequestsSQL, stream, KeepRequests)
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
	var b pgx.Batch
	b.Queue(beginSQL)
	b.Queue(pg.WriterSettings(wait))
	b.Queue(sql, args...).Query(scanOne(dst))
	b.Queue(commitSQL)
	return pool.SendBatch(ctx, &b).Close()
}
