package cli

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/engine/postgres"
	"github.com/tidewire/tidewire/internal/ingest"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/serve"
)

// awaitPool returns a pool on the prepared database. While PostgreSQL cannot be used yet, it waits: after a start of the machine
// both start together. Meanwhile a Front, which the caller has to close, says why the server is not ready. The pool is nil after
// an error, and without one if the server has to stop.
//
// The private PostgreSQL runs already.
func (c *serveCmd) awaitPool(p *process, db *database, out *serve.Config) (*pgxpool.Pool, error) {
	began := time.Now()
	for failed := 0; ; failed++ {
		pool, err := c.preparedPool(p, db)
		switch {
		case p.ctx.Err() != nil:
			if pool != nil {
				pool.Close()
			}
			return nil, nil
		case err == nil && failed > 0:
			out.Front.Waits("the server is starting")
			p.log.Info("PostgreSQL can be used", "after", time.Since(began).Round(time.Millisecond))
			return pool, nil
		case err == nil || db.private != nil || !pg.NotYet(err):
			return pool, err
		case failed == 0:
			out.Front = serve.Listen(*out, whyWaiting(err))
			// The error as a text: an error of this kind has the log of outages watch for the end of one.
			p.log.Warn("PostgreSQL cannot be used yet: the server waits, and /readyz answers 503 until then", "listening", out.Listeners[0].Addr(), "error", err.Error())
		}
		out.Front.Waits(whyWaiting(err))
		pg.Backoff(p.ctx, failed)
	}
}

// whyWaiting is why PostgreSQL cannot be used yet, in one line without names or addresses.
func whyWaiting(err error) string {
	if pg.Code(err) == "" && errors.Is(err, context.DeadlineExceeded) {
		return "PostgreSQL does not answer"
	}
	if public, ok := errors.AsType[*engine.NotReadyError](postgres.Explain(err)); ok {
		return public.Reason
	}
	return "PostgreSQL is unreachable"
}

// preparedPool connects, and prepares the database.
func (c *serveCmd) preparedPool(p *process, db *database) (*pgxpool.Pool, error) {
	conns := 24 + c.Workers
	if c.Mode == string(ingest.Naive) {
		conns = ingest.NaiveConnections + 4
	}
	pool, err := db.connect(p.ctx, conns, p.log)
	if err != nil {
		return nil, err
	}
	if err := c.prepareDatabase(p, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}
