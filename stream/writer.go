package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// Method is how a batch travels.
type Method int

const (
	// Auto takes Array or Copy by the size of the batch.
	Auto Method = iota
	// Array is INSERT … SELECT FROM unnest: its parameters have arrived before
	// the lock is taken, so a client that freezes holds up nobody.
	Array
	// Copy is binary COPY: half the cost per row, but the rows arrive while the
	// lock is held.
	Copy
)

// WriterConfig configures a Writer.
type WriterConfig struct {
	// Method of writing. Defaults to Auto.
	Method Method
	// CopyRows is the number of rows from which Auto uses COPY. Defaults to
	// 256, where the two cost the same with 100-byte messages
	// (docs/strategies.md).
	CopyRows int
	// CopyBytes is the batch size from which Auto uses COPY. Defaults to 256
	// KiB.
	CopyBytes int
	// Timeout bounds one attempt to write a batch. Defaults to 30 s.
	Timeout time.Duration
	// LockTimeout bounds the wait for the stream's lock; past it, a holder that
	// is Tidewire's own and frozen is ended. Defaults to 10 s.
	LockTimeout time.Duration
	// Log receives a line for each attempt that failed. Defaults to none.
	Log *slog.Logger
}

func (c WriterConfig) withDefaults() WriterConfig {
	if c.CopyRows == 0 {
		c.CopyRows = 256
	}
	if c.CopyBytes == 0 {
		c.CopyBytes = 256 << 10
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// codeStaleHead is what tidewire.begin_batch raises when another writer has
// moved the head of the stream.
const codeStaleHead = "TW001"

// Writer writes batches in position order. It keeps one connection of the
// pool. Not safe for concurrent use: gather callers with pg.Group.
type Writer struct {
	cfg    WriterConfig
	pool   *pgxpool.Pool
	conn   *pgxpool.Conn
	id     int64 // with number, names each batch once and for all
	number int64
	head   int64 // last position taken, as far as we know
	array  []byte
	marks  marks
}

// NewWriter returns a Writer; it connects when it first writes.
func NewWriter(pool *pgxpool.Pool, cfg WriterConfig) *Writer {
	return &Writer{cfg: cfg.withDefaults(), pool: pool, id: rand.Int64()}
}

// Write stores the batch, sets its First position, and returns when the
// batch is committed. While PostgreSQL is away it tries again, until ctx ends;
// the batch is stored once however often that took. Any other error means that
// nothing of the batch was stored, except for ctx's own: then it is unknown.
func (w *Writer) Write(ctx context.Context, b *Batch) error {
	if b.Len() == 0 {
		return nil
	}
	w.number++
	for failed := 0; ; {
		err := w.attempt(ctx, b)
		switch {
		case err == nil:
			return w.forget(ctx)
		case pg.Code(err) == codeStaleHead:
			continue // attempt has learnt the head
		case ctx.Err() != nil:
			return fmt.Errorf("write batch: %w", ctx.Err())
		case !pg.Retryable(err):
			return fmt.Errorf("write batch: %w", err)
		}
		w.cfg.Log.Warn("batch not written, trying again", "rows", b.Len(), "attempt", failed+1, "error", err)
		if pg.Code(err) == pg.CodeLockNotAvailable {
			w.endFrozen(ctx)
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			return fmt.Errorf("write batch: %w", err)
		}
		failed++
	}
}

// Close ends the writer's connection. It does not go back to the pool: it
// carries settings and statements of ours.
func (w *Writer) Close() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.conn.Conn().Close(ctx)
	w.conn.Release()
	w.conn = nil
}

func (w *Writer) attempt(ctx context.Context, b *Batch) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	if err := w.connect(ctx); err != nil {
		return err
	}
	b.number(w.head + 1)
	err := w.send(ctx, b)
	if err == nil {
		w.head += int64(b.Len())
		return nil
	}
	return w.recover(ctx, b, err)
}

func (w *Writer) send(ctx context.Context, b *Batch) error {
	c := w.conn.Conn().PgConn()
	if w.cfg.Method == Copy || w.cfg.Method == Auto && (b.Len() >= w.cfg.CopyRows || b.Bytes() >= w.cfg.CopyBytes) {
		_, err := c.CopyFrom(ctx, bytes.NewReader(b.copyData()), copySQL(w.head, b.Len(), w.id, w.number))
		return err
	}
	return w.sendArray(ctx, c, b)
}

// Names of the statements that a writer's connection has prepared.
const (
	stmtBegin      = "tidewire_begin"
	stmtBeginBatch = "tidewire_begin_batch"
	stmtInsert     = "tidewire_insert_array"
	stmtCommit     = "tidewire_commit"
)

// sendArray sends four statements and one Sync: one round trip.
func (w *Writer) sendArray(ctx context.Context, c *pgconn.PgConn, b *Batch) error {
	w.array = b.appendArray(w.array[:0])
	binaryFormat := []int16{1}
	p := c.StartPipeline(ctx)
	p.SendQueryPrepared(stmtBegin, nil, nil, nil)
	p.SendQueryPrepared(stmtBeginBatch, [][]byte{int8(w.head), int8(int64(b.Len())), int8(w.id), int8(w.number)}, binaryFormat, nil)
	p.SendQueryPrepared(stmtInsert, [][]byte{int8(w.head + 1), w.array}, binaryFormat, nil)
	p.SendQueryPrepared(stmtCommit, nil, nil, nil)
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	return p.Close() // reads all results and returns the first error
}

// recover brings the connection back to idle, or drops it, after an attempt
// that ended with err, and learns what the error can teach: a stale head, or
// that an earlier attempt had been committed after all, which is success.
func (w *Writer) recover(ctx context.Context, b *Batch, err error) error {
	if w.conn.Conn().IsClosed() {
		w.Close()
		return err
	}
	if _, rollbackErr := w.conn.Exec(ctx, `ROLLBACK`); rollbackErr != nil {
		w.Close()
		return rollbackErr // what err has to say, the next attempt finds again
	}
	switch pg.Code(err) {
	case codeStaleHead:
		var e *pgconn.PgError
		errors.As(err, &e)
		head, parseErr := strconv.ParseInt(e.Detail, 10, 64)
		if parseErr != nil {
			return fmt.Errorf("stale head without a number: %w", parseErr)
		}
		w.head = head
	case pg.CodeUniqueViolation:
		if pg.Constraint(err) != "batch_pkey" {
			return err
		}
		if err := w.conn.QueryRow(ctx, firstPositionSQL, w.id, w.number).Scan(&b.First); err != nil {
			return err
		}
		return nil
	}
	return err
}

// connect takes a connection and prepares it. What an earlier connection may
// have left under way can only commit before begin_batch gets the lock, and
// then begin_batch finds its mark.
func (w *Writer) connect(ctx context.Context) error {
	if w.conn != nil {
		return nil
	}
	conn, err := w.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect writer: %w", err)
	}
	w.conn = conn
	if err := w.prepare(ctx); err != nil {
		w.Close()
		return fmt.Errorf("prepare writer: %w", err)
	}
	return nil
}

func (w *Writer) prepare(ctx context.Context) error {
	c := w.conn.Conn().PgConn()
	for name, sql := range map[string]string{
		stmtBegin: beginSQL, stmtBeginBatch: beginBatchSQL, stmtInsert: insertArraySQL, stmtCommit: commitSQL,
	} {
		if _, err := c.Prepare(ctx, name, sql, nil); err != nil {
			return err
		}
	}
	if _, err := w.conn.Exec(ctx, fmt.Sprintf(lockTimeoutSQLFmt, w.cfg.LockTimeout.Milliseconds())); err != nil {
		return err
	}
	return w.conn.QueryRow(ctx, headSQL).Scan(&w.head)
}

func (w *Writer) endFrozen(ctx context.Context) {
	ended, err := pg.EndFrozen(ctx, w.pool, LockMessages, w.cfg.LockTimeout)
	if err != nil || ended > 0 {
		w.cfg.Log.Warn("stream lock held too long", "ended", ended, "error", err)
	}
}

func int8(v int64) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(v))
}
