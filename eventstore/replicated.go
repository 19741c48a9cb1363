package eventstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// batchSender sends a batch that ends with a COMMIT, and reads the results. It fails with
// pg.ErrNotReplicated if the COMMIT did not wait for the standbys.
type batchSender func(ctx context.Context, b *pgx.Batch) error

// sendBatch sends on a connection of the pool, or on a new one that takes its place.
func (s *Store) sendBatch(ctx context.Context, b *pgx.Batch) error {
	return pg.SendBatch(ctx, s.pool, b)
}

// sendBatch sends on the connection of the borrowed session.
func (w *writer) sendBatch(ctx context.Context, b *pgx.Batch) error {
	s := w.on.Session()
	return s.Replicated(s.Conn().SendBatch(ctx, b).Close())
}

// inReadCommitted sends the statements that fill adds in a READ COMMITTED transaction, in one round trip. It overrides
// the defaults of the database, the role and the pool. The results are valid only if the error is nil.
func inReadCommitted(ctx context.Context, send batchSender, lockTimeout time.Duration, fill func(*pgx.Batch)) error {
	b := &pgx.Batch{}
	b.Queue(beginSQL)
	b.Queue(pg.WriterSettings(lockTimeout))
	fill(b)
	b.Queue(commitSQL)
	return send(ctx, b)
}

// replicated waits until the standbys have everything that is committed now.
func (s *Store) replicated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return inReadCommitted(ctx, s.sendBatch, s.cfg.LockTimeout, func(b *pgx.Batch) { b.Queue(waitIfUnwrittenSQL) })
}
