package stream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// session is a connection of the pool with what writers have set and prepared
// there. Several Writers may have one, of which one at a time writes.
type session struct {
	pool     *pgxpool.Pool
	conn     *pgxpool.Conn
	prepared map[*table]bool
	settings string // after each BEGIN: see pg.OpenWriter
}

func newSession(pool *pgxpool.Pool) *session { return &session{pool: pool} }

// Close ends the writer's connection. It does not go back to the pool: it
// carries settings and statements of ours.
func (s *session) Close() {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.conn.Conn().Close(ctx)
	s.conn.Release()
	s.conn = nil
}

// lane is the session of one or more Appenders, which write there in turn.
type lane struct {
	mu     sync.Mutex // guards the session and expiry
	on     *session
	expiry *time.Timer
}

func newLane(pool *pgxpool.Pool) *lane { return &lane{on: newSession(pool)} }

// keepConnection puts off expire. The caller holds mu.
func (l *lane) keepConnection(idle time.Duration) {
	if l.expiry == nil {
		l.expiry = time.AfterFunc(idle, l.expire)
		return
	}
	l.expiry.Reset(idle)
}

// expire gives the connection back; the next batch takes another.
func (l *lane) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expiry != nil {
		l.expiry.Stop()
	}
	l.on.Close()
}

// connect takes a connection and prepares it for the writer's table. What an
// earlier connection may have left under way can only commit before this one
// gets the lock, and then its mark is found.
func (w *Writer) connect(ctx context.Context) error {
	if w.conn == nil {
		conn, err := w.pool.Acquire(ctx)
		if err != nil {
			return fmt.Errorf("connect writer: %w", err)
		}
		w.conn, w.prepared = conn, make(map[*table]bool)
	}
	if w.prepared[w.table] {
		return nil
	}
	if err := w.prepare(ctx); err != nil {
		w.Close()
		return fmt.Errorf("prepare writer: %w", err)
	}
	w.prepared[w.table] = true
	return nil
}

func (w *Writer) prepare(ctx context.Context) error {
	statements := map[string]string{w.table.stmtTake: w.table.takePositions, w.table.stmtInsert: w.table.insertArray}
	if len(w.prepared) == 0 {
		settings, err := pg.OpenWriter(ctx, w.conn.Conn(), w.cfg.LockTimeout)
		if err != nil {
			return err
		}
		statements[stmtBegin], statements[stmtCommit] = beginSQL, commitSQL
		if w.settings = settings; settings != "" {
			statements[stmtSettings] = settings
			w.settings += "; "
		}
	}
	c := w.conn.Conn().PgConn()
	for name, sql := range statements {
		if _, err := c.Prepare(ctx, name, sql, nil); err != nil {
			return err
		}
	}
	return w.conn.QueryRow(ctx, w.table.head).Scan(&w.head)
}
