package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// Method is how a batch is sent to PostgreSQL.
type Method int

const (
	// Auto chooses Array or Copy by the size of the batch.
	Auto Method = iota
	// Array is INSERT … SELECT FROM unnest, in one round trip with the lock.
	Array
	// Copy is binary COPY: half the cost per row. Its rows already contain their
	// positions: if another writer has taken those, the batch is sent as Array.
	Copy
)

// WriterConfig says how an Appender writes its batches.
type WriterConfig struct {
	// Method of writing. Defaults to Auto.
	Method Method
	// CopyRows is the number of rows from which Auto uses COPY. Defaults to
	// 256, where the two cost the same with 100-byte messages
	// (docs/explanation/strategies.md).
	CopyRows int
	// CopyBytes is the batch size from which Auto uses COPY. Defaults to 256
	// KiB.
	CopyBytes int
	// Timeout bounds one attempt to write a batch. An attempt that follows one that
	// took too long has twice the time, up to 64 times the Timeout, so that a large
	// batch gets through a slow line. Defaults to 30 s.
	Timeout time.Duration
	// LockTimeout bounds the wait for the stream's lock; after it, a frozen holder
	// that is a Tidewire session is terminated. At most 30 s, because AtTime relies
	// on a message's time being no older than a minute when it is stored. Defaults
	// to 10 s.
	LockTimeout time.Duration
	// Log receives a line for each attempt that failed. Defaults to none.
	Log *slog.Logger
}

func (c WriterConfig) withDefaults() WriterConfig {
	if c.CopyRows <= 0 {
		c.CopyRows = 256
	}
	if c.CopyBytes <= 0 {
		c.CopyBytes = 256 << 10
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
	if c.LockTimeout <= 0 {
		c.LockTimeout = 10 * time.Second
	}
	c.LockTimeout = min(c.LockTimeout, timeDisorder/2)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// batchWriter writes batches in position order, on connections that all writers of the
// pool share. Not safe for concurrent use: use pg.Group to combine callers.
type batchWriter struct {
	cfg   WriterConfig
	table *table
	// storage of the stream; nil if the table does not belong to a stream.
	storage *storage
	pool    *pgxpool.Pool
	on      pg.Borrower
	broken  error // why Write fails: the table's name is invalid
	id      int64 // random; with number, identifies each batch permanently
	number  int64
	head    int64 // last position taken, as far as we know; 0 if unknown
	line    line
	marks   batchGC
	took    time.Duration // duration of the last attempt
}

// newTableWriter returns a batchWriter to a table of messages; it connects when it first
// writes. Write fails with ErrInvalid if the table's name is invalid.
func newTableWriter(pool *pgxpool.Pool, name string, cfg WriterConfig) *batchWriter {
	t, err := pg.IngestTable(name)
	w := newWriter(pool, messagesTable(t), nil, cfg)
	if err != nil {
		w.broken = fmt.Errorf("%w table: %w", ErrInvalid, err)
	}
	return w
}

func newWriter(pool *pgxpool.Pool, t *table, s *storage, cfg WriterConfig) *batchWriter {
	return &batchWriter{cfg: cfg.withDefaults(), table: t, storage: s, pool: pool, on: pg.NewBorrower(pool), id: rand.Int64()}
}

// Close returns the batchWriter's connections to the pool. It may be called more than
// once, and Write may be called after it.
func (w *batchWriter) Close() { w.on.Close() }

// Write stores the batch, sets its First position, and returns when the batch is
// committed. While PostgreSQL is unavailable it retries, until ctx ends; the batch is
// stored once, independent of the number of attempts. If a session that is none of Tidewire's holds the stream's lock for
// longer than LockTimeout, the error is a *pg.HeldError. With ctx's own error, or with
// ErrOutcomeUnknown, it may be stored or not: an attempt got no answer. Any other error
// means that nothing of the batch was stored.
func (w *batchWriter) Write(ctx context.Context, b *rowBatch) error {
	if b.Len() == 0 || w.broken != nil {
		return w.broken
	}
	w.number++
	defer w.on.Release()
	stale, slow, unanswered, movedBack := false, 0, false, false
	lock := pg.LockWait{Bound: w.cfg.LockTimeout / 2} // so that the holder is looked at twice
	var before *pg.HeldError
	for failed := 0; ; {
		if err := w.moveFor(ctx, b); err != nil {
			if unanswered && !pg.Retryable(err) {
				err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
			}
			return fmt.Errorf("write batch: %w", err)
		}
		hold := lock.Hold
		if slow > 0 {
			hold = holdSlow
		}
		if err := hold(ctx, &w.on); err != nil {
			return fmt.Errorf("write batch: %w", err)
		}
		began := time.Now()
		err := w.attempt(ctx, b, stale, lock.Next(), w.cfg.Timeout<<slow)
		w.took = time.Since(began)
		if err != nil && pg.Code(err) == "" {
			w.marks.doubt(w.number)
			w.line.broke(b)
			if !errors.As(err, new(*pgconn.ConnectError)) { // something was sent
				// From now on an error counts as final only if that attempt has found
				// that no other attempt was committed, which COPY does not check.
				unanswered, stale = true, true
			}
			if errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err) {
				slow = min(slow+1, 6)
			}
		}
		switch {
		case err == nil:
			w.storage.stored(b.First, b.Len())
			w.forget(ctx)
			return nil
		case pg.Code(err) == codeOwnTables:
			w.storage.own.Store(true)
			w.head = 0
			continue
		case pg.Code(err) == pg.CodeUndefinedTable && w.storage != nil && !w.storage.shared() && !movedBack:
			w.storage.own.Store(false) // or it was dropped, as the next attempt will say
			movedBack = true
			continue
		case pg.Code(err) == codeStaleHead:
			stale = true
			continue
		case ctx.Err() != nil:
			return fmt.Errorf("write batch: %w", ctx.Err())
		case !pg.Retryable(err) && b.First == 0 && w.line.stages(b):
			w.line.direct = true // for example, this role may not create temporary tables
			continue
		case !pg.Retryable(err) && b.First == 0 && unanswered:
			return fmt.Errorf("write batch: %w: %w", ErrOutcomeUnknown, err)
		case !pg.Retryable(err):
			return fmt.Errorf("write batch: %w", err)
		}
		w.on.Release()
		if lock.GoesOn(err) {
			continue
		}
		w.cfg.Log.Warn("batch not written, trying again", "rows", b.Len(), "attempt", failed+1, "error", err)
		switch pg.Code(err) {
		case pg.CodeLockNotAvailable:
			held := w.freeLock(ctx)
			if held.Still(before) && !unanswered {
				return fmt.Errorf("write batch: %w", held)
			}
			before = held
		case codeEnded:
			w.line.broke(b)
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			return fmt.Errorf("write batch: %w", err)
		}
		failed++
	}
}

// holdSlow borrows a connection for a batch that took too long, so that other batches
// do not wait for it again.
func holdSlow(ctx context.Context, b *pg.Borrower) error { return b.HoldSlow(ctx) }

// recover brings the connection back to idle, or drops it, after an attempt that
// ended with err. If an earlier attempt was committed after all, it returns nil.
func (w *batchWriter) recover(ctx context.Context, b *rowBatch, err error) error {
	err = w.on.Session().Recover(ctx, err)
	if pg.Code(err) != pg.CodeUniqueViolation || pg.Constraint(err) != "batch_pkey" {
		return err
	}
	conn := w.on.Session().Conn()
	if conn == nil {
		return fmt.Errorf("the session has ended before the batch was looked up: %w", net.ErrClosed)
	}
	return w.on.Session().Replicated(conn.QueryRow(ctx, firstPositionSQL, w.id, w.number).Scan(&b.First))
}

func (w *batchWriter) freeLock(ctx context.Context) *pg.HeldError {
	return freeLock(ctx, w.pool, w.table.lock, w.cfg.LockTimeout, w.cfg.Log)
}

// freeLock terminates a PostgreSQL session that holds the lock of a stream, if its
// client has silently disappeared. It returns which session holds the lock that is none of Tidewire's.
func freeLock(ctx context.Context, pool *pgxpool.Pool, lock int32, after time.Duration, log *slog.Logger) *pg.HeldError {
	ended, err := pg.FreeLock(ctx, pool, lock, after)
	if err != nil || ended {
		log.Warn("stream lock held too long", "lock", lock, "ended", ended, "error", err)
	}
	held, _ := errors.AsType[*pg.HeldError](err)
	return held
}
