package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/pg"
)

const (
	// probeEvery is the minimum time between two probes.
	probeEvery = time.Second
	// probeTimeout bounds a probe: this is "soon" below.
	probeTimeout = 2 * time.Second
)

// readiness tells whether a write would be acknowledged soon. It probes
// PostgreSQL on a separate connection, because the pool may be exhausted, and
// checks whether the stores make progress. Safe for concurrent use.
type readiness struct {
	probe   func(context.Context) error // one write
	stalled func() error                // nil if the stores make progress

	mu      sync.Mutex
	last    error
	at      time.Time
	running chan struct{} // closed when the running probe has ended; nil if none is running
	ended   bool
}

// check returns why the server is not ready, or nil. Callers share a probe, and
// its result for a second.
func (r *readiness) check(ctx context.Context) error {
	if err := r.stalled(); err != nil {
		return err
	}
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return errStopping
	}
	if r.running == nil && (r.at.IsZero() || time.Since(r.at) >= probeEvery) {
		r.running = make(chan struct{})
		go r.run()
	}
	running, last := r.running, r.last
	r.mu.Unlock()
	if running == nil {
		return last
	}
	select {
	case <-running:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.last
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *readiness) run() {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	err := Explain(r.probe(ctx))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.at = err, time.Now()
	close(r.running)
	r.running = nil
}

// end waits for a running probe; no other begins.
func (r *readiness) end() {
	r.mu.Lock()
	running := r.running
	r.ended = true
	r.mu.Unlock()
	if running != nil {
		<-running
	}
}

var errStopping = &engine.NotReadyError{Reason: "the server is shutting down"}

// Explain returns why a write failed, in one line without names or
// addresses.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	reason := "PostgreSQL is unreachable"
	switch code := pg.Code(err); {
	case errors.Is(err, pg.ErrFormerPrimary):
		reason = "only a former primary of PostgreSQL can be reached: another server was promoted in its place, and is away"
	case errors.Is(err, pg.ErrOtherCluster):
		reason = "only a PostgreSQL server can be reached that does not belong to the others of its address"
	case code == "53100":
		reason = "PostgreSQL's disk is full"
	case code == "25006":
		reason = "PostgreSQL is read-only: a standby, or on its way to another primary"
	case code == pg.CodeUndefinedTable, code == "3F000", code == "42883":
		reason = "Tidewire's tables are missing: tidewire db migrate makes them"
	case code == "42501":
		reason = "PostgreSQL denies permission"
	case code == "53300":
		reason = "PostgreSQL has no free connection"
	case code == "57P03":
		reason = "PostgreSQL is starting or stopping"
	case errors.Is(err, context.DeadlineExceeded):
		reason = fmt.Sprintf("PostgreSQL does not commit within %v", probeTimeout)
	case code != "":
		reason = "PostgreSQL refuses to write (SQLSTATE " + code + ")"
	}
	return &engine.NotReadyError{Reason: reason, Err: err}
}

// writeProbe writes like a batch, as far as possible without a message. Its
// connection stays open between probes.
type writeProbe struct {
	url  string
	id   int64 // a negative writer id, which no real writer has
	conn *pgx.Conn
}

func newWriteProbe(url string) *writeProbe {
	return &writeProbe{url: url, id: -1 - rand.Int64()}
}

const (
	// fillSQL creates the table that detects a full disk: the probe's own row
	// fits into an existing page, while a message needs a new one. A temporary
	// table is emptied at each commit, so its file grows again each time.
	fillSQL = `
SET temp_tablespaces = '';
CREATE TEMPORARY TABLE IF NOT EXISTS tidewire_probe (filler text) ON COMMIT DELETE ROWS;
ALTER TABLE pg_temp.tidewire_probe ALTER filler SET STORAGE PLAIN`
	// probeSQL writes 64 KiB and one row of tidewire.batch, which replaces the
	// last probe's row.
	probeSQL = `
BEGIN ISOLATION LEVEL READ COMMITTED;
INSERT INTO pg_temp.tidewire_probe SELECT repeat('x', 7000) FROM generate_series(1, 8);
DELETE FROM tidewire.batch WHERE writer = %[1]d;
INSERT INTO tidewire.batch (writer, number, first_position) VALUES (%[1]d, 0, 0);
COMMIT`
)

// write is one probe. If the kept connection is lost, write tries again on a new one: PostgreSQL may have been
// restarted meanwhile, or another server promoted.
func (w *writeProbe) write(ctx context.Context) (err error) {
	kept := w.conn != nil
	if err = w.attempt(ctx); kept && pg.Away(err) && ctx.Err() == nil {
		err = w.attempt(ctx)
	}
	return err
}

func (w *writeProbe) attempt(ctx context.Context) (err error) {
	if w.conn == nil {
		if err := w.connect(ctx); err != nil {
			return err
		}
	}
	if err = w.exec(ctx, fmt.Sprintf(probeSQL, w.id)); err != nil {
		w.close()
	}
	return err
}

func (w *writeProbe) connect(ctx context.Context) (err error) {
	if w.conn, err = pg.Connect(ctx, w.url); err != nil {
		w.conn = nil
		return err
	}
	if err = w.exec(ctx, fillSQL); err != nil {
		w.close()
	}
	return err
}

// exec runs several statements in one round trip.
func (w *writeProbe) exec(ctx context.Context, sql string) error {
	_, err := w.conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// close closes the connection.
func (w *writeProbe) close() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	w.conn.Close(ctx)
	w.conn = nil
}
