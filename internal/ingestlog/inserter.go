package ingestlog

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// MaxRows is the largest number of rows of one multi-row INSERT: the protocol
// counts parameters in 16 bits.
const MaxRows = 65534

// reserveRows is how many positions an Inserter reserves at a time. Unused ones
// become gaps when it ends.
const reserveRows = 10_000

// reserveWait bounds the wait for the lock of the table, which nobody holds for long.
const reserveWait = 10 * time.Second

// InserterConfig configures an Inserter.
type InserterConfig struct {
	// Table is where messages go. Defaults to messages.
	Table string
	// Timeout bounds one INSERT. Defaults to 30 s.
	Timeout time.Duration
	// Log receives a line for each INSERT that has to be settled. Defaults to
	// none.
	Log *slog.Logger
}

// Inserter is the textbook way to write: one connection, and INSERTs that
// commit on their own. It takes no lock, so that Inserters run concurrently and
// their rows become visible in any order.
//
// One thing differs from the textbook: positions come from a range reserved
// before, not from a column default. So the rows of an INSERT whose answer was
// lost can be looked up, and the INSERT need not be repeated or given up.
//
// Not safe for concurrent use.
type Inserter struct {
	cfg  InserterConfig
	sql  inserterSQL
	pool *pgxpool.Pool
	conn *pgxpool.Conn

	pid   int32     // of the backend of conn, or of the last one lost
	start time.Time // of that backend

	next, end int64 // reserved positions not used yet

	rowsSQL  string // the INSERT for rowsSize rows
	rowsSize int
	args     []any

	broken error // the table name is invalid
}

// NewInserter returns an Inserter; it connects when it first inserts.
func NewInserter(pool *pgxpool.Pool, cfg InserterConfig) *Inserter {
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	t, err := pg.IngestTable(cfg.Table)
	return &Inserter{cfg: cfg, pool: pool, sql: newInserterSQL(t), broken: err}
}

// inserterSQL is the SQL for one table.
type inserterSQL struct {
	table, reserve, insertOne, stored string
}

func newInserterSQL(t pg.Table) inserterSQL {
	name := t.Quoted("")
	return inserterSQL{
		name, fmt.Sprintf(reserveFmt, t.Quoted(pg.SuffixPositions)),
		fmt.Sprintf(insertOneFmt, name), fmt.Sprintf(storedFmt, name),
	}
}

// Insert stores the payloads, at most MaxRows, in one INSERT and returns when
// they are committed. While PostgreSQL is away it tries again, until ctx ends;
// the rows are stored once, regardless of the number of attempts. An error
// means that nothing was stored, except ctx's error: then the outcome is
// unknown.
func (i *Inserter) Insert(ctx context.Context, payloads [][]byte) error {
	if len(payloads) == 0 || i.broken != nil {
		return i.broken
	}
	first := int64(0) // 0: no attempt has been sent
	for failed := 0; ; failed++ {
		err := i.attempt(ctx, payloads, &first)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("insert: %w", ctx.Err())
		case !pg.Retryable(err):
			return fmt.Errorf("insert: %w", err)
		}
		i.cfg.Log.Warn("the INSERT of rows failed, trying again", "rows", len(payloads), "attempt", failed+1, "error", err)
		if err := pg.Backoff(ctx, failed); err != nil {
			return fmt.Errorf("insert: %w", err)
		}
	}
}

// Close returns the connection to the pool.
func (i *Inserter) Close() {
	if i.conn != nil {
		i.conn.Release()
		i.conn = nil
	}
}

// attempt inserts once. If *first is not 0, an earlier attempt used that
// position, and the rows may be stored already.
func (i *Inserter) attempt(ctx context.Context, payloads [][]byte, first *int64) error {
	ctx, cancel := context.WithTimeout(ctx, i.cfg.Timeout)
	defer cancel()
	if *first != 0 {
		stored, err := i.settle(ctx, *first)
		if err != nil || stored {
			return err
		}
		*first = 0
	}
	if err := i.connect(ctx); err != nil {
		return err
	}
	if err := i.reserve(ctx, len(payloads)); err != nil {
		i.dropIfClosed()
		return err
	}
	*first = i.next
	i.next += int64(len(payloads))
	err := i.insert(ctx, *first, payloads)
	if pg.Code(err) != "" && !i.conn.Conn().IsClosed() {
		*first = 0 // PostgreSQL rejected it: nothing was stored
	}
	i.dropIfClosed()
	return err
}

func (i *Inserter) insert(ctx context.Context, first int64, payloads [][]byte) error {
	if len(payloads) == 1 {
		_, err := i.conn.Exec(ctx, i.sql.insertOne, first, payloads[0])
		return err
	}
	if i.rowsSize != len(payloads) {
		i.rowsSQL, i.rowsSize = insertRowsSQL(i.sql.table, len(payloads)), len(payloads)
	}
	i.args = append(i.args[:0], first)
	for _, p := range payloads {
		i.args = append(i.args, p)
	}
	_, err := i.conn.Exec(ctx, i.rowsSQL, i.args...)
	clear(i.args) // do not keep the caller's payloads
	return err
}

// settle finds out whether a lost connection committed the rows from first on.
// Its backend may still be running, so it is terminated first; then the answer
// is final.
func (i *Inserter) settle(ctx context.Context, first int64) (stored bool, err error) {
	for alive := 1; alive > 0; {
		if err := i.pool.QueryRow(ctx, endOwnSQL, i.pid, i.start).Scan(&alive); err != nil {
			return false, fmt.Errorf("end lost backend: %w", err)
		}
		if alive > 0 {
			if err := pg.Backoff(ctx, 0); err != nil {
				return false, err
			}
		}
	}
	var rows int
	if err := i.pool.QueryRow(ctx, i.sql.stored, first).Scan(&rows); err != nil {
		return false, fmt.Errorf("look up rows of a lost connection: %w", err)
	}
	i.cfg.Log.Warn("settled an INSERT whose answer was lost", "position", first, "stored", rows > 0)
	return rows > 0, nil
}

func (i *Inserter) connect(ctx context.Context) error {
	if i.conn != nil {
		return nil
	}
	conn, err := i.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect inserter: %w", err)
	}
	i.conn = conn
	if err := conn.QueryRow(ctx, identifySQL).Scan(&i.pid, &i.start); err != nil {
		i.dropIfClosed()
		i.Close()
		return fmt.Errorf("identify backend: %w", err)
	}
	return nil
}

func (i *Inserter) reserve(ctx context.Context, rows int) error {
	if i.end-i.next >= int64(rows) {
		return nil
	}
	size := int64(max(rows, reserveRows))
	var b pgx.Batch
	b.Queue(beginSQL)
	b.Queue(pg.WriterSettings(reserveWait))
	b.Queue(i.sql.reserve, size).QueryRow(func(row pgx.Row) error { return row.Scan(&i.next) })
	b.Queue(commitSQL)
	if err := i.conn.SendBatch(ctx, &b).Close(); err != nil {
		i.next, i.end = 0, 0
		return fmt.Errorf("reserve positions: %w", err)
	}
	i.end = i.next + size
	return nil
}

func (i *Inserter) dropIfClosed() {
	if i.conn != nil && i.conn.Conn().IsClosed() {
		i.Close()
	}
}
