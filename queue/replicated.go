package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// waitIfUnwrittenSQL makes the COMMIT of a transaction that has written nothing wait until the standbys have what it
// read. On a standby it fails, as every write does.
const waitIfUnwrittenSQL = `SELECT CASE WHEN pg_current_xact_id() IS NOT NULL THEN ` + pg.WaitSQL + ` END WHERE pg_current_xact_id_if_assigned() IS NULL`

// inReadCommitted sends the statements that fill adds in a READ COMMITTED transaction, whatever the database's defaults
// are, in one round trip: so a client that freezes leaves no locks. wait bounds the wait for each lock. Results are
// valid only if the error is nil.
func inReadCommitted(ctx context.Context, pool *pgxpool.Pool, wait time.Duration, fill func(*pgx.Batch)) error {
	batch := &pgx.Batch{}
	batch.Queue(beginSQL)
	batch.Queue(pg.WriterSettings(wait))
	fill(batch)
	batch.Queue(commitSQL)
	return pg.SendBatch(ctx, pool, batch)
}

// replicated returns when the standbys have all that is committed now.
func replicated(ctx context.Context, pool *pgxpool.Pool) error {
	return inReadCommitted(ctx, pool, ensurePatience, func(b *pgx.Batch) { b.Queue(waitIfUnwrittenSQL) })
}
