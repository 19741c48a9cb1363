package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/engine/postgres"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/ingest"
	"github.com/tidewire/tidewire/internal/ingestlog"
	"github.com/tidewire/tidewire/internal/serve"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// bufferShare is the part of the memory for clients that the messages in memory of one stream, or of one queue, may have. They are for all
// clients, so nobody is counted for them.
const bufferShare = 32

// withDatabase opens the database and an engine on it, serves, and closes everything in the
// reverse order: first the connections of clients, last the storage.
func (c *serveCmd) withDatabase(p *process, out serve.Config, auths *authDatabase) (err error) {
	db, err := c.open(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stopDatabase(db)) }()
	own := *p
	p = &own
	var endLog func()
	p.log, endLog = postgres.OutageLog(p.log, db.url)
	defer endLog()
	cfg := &out.Gateway
	cfg.Log = p.log
	pool, err := c.awaitPool(p, db, &out)
	if out.Front != nil {
		defer out.Front.Close()
	}
	if pool == nil {
		return err
	}
	defer func() { err = errors.Join(err, c.closePool(pool)) }()
	reader, err := c.openStandby(p, pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.closeStandby(reader)) }()
	leave, err := c.join(p, pool, cfg)
	if err != nil {
		return err
	}
	defer leave()
	store, err := c.openEngine(p, postgres.Config{Pool: pool, URL: db.url, MaxMessage: max(int(c.MaxMessage), engine.MaxPayload), BufferBytes: int(budget.ClientShare(c.memory) / bufferShare), Standby: reader, Peers: c.tail, Metrics: cfg.Metrics, Log: p.log}, cfg.Only)
	if err != nil {
		return err
	}
	cfg.Engine = store.Serves()
	out.Engine, err = c.openPresence(p, pool, store, cfg)
	if err != nil {
		return err
	}
	endAuth, err := auths.open(c, p, db, pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endAuth()) }()

	ctx, stop := context.WithCancel(context.WithoutCancel(p.ctx))
	defer stop()
	var supervising sync.WaitGroup
	supervising.Go(func() { db.supervise(ctx, p) })
	err = c.run(p, out)
	stop()
	supervising.Wait()
	return err
}

// prepareDatabase checks which server this is, and prepares the schema.
func (c *serveCmd) prepareDatabase(p *process, pool *pgxpool.Pool) error {
	if err := refuseForeignServer(p, pool); err != nil {
		return err
	}
	if err := c.prepareSchema(p, pool); err != nil {
		return err
	}
	if err := enterHistory(p, pool); err != nil {
		return explainDatabase(err)
	}
	if c.Recreate {
		if err := ingestlog.Recreate(p.ctx, pool, c.Table); err != nil {
			return explainDatabase(err)
		}
		p.log.Warn("table was dropped and created again, because of --recreate", "table", c.Table)
	}
	return nil
}

// enterHistory enters the current history of positions, and logs whether a new one begins, and whether a restored dump would go unnoticed.
func enterHistory(p *process, pool *pgxpool.Pool) error {
	if err := warnUnidentified(p, pool); err != nil {
		return err
	}
	known, err := migrate.KnownHistory(p.ctx, pool)
	if err != nil {
		return err
	}
	base, err := migrate.EnterHistory(p.ctx, pool)
	if err == nil && base > known {
		p.log.Info("a new history of positions has begun: a dump was restored into another cluster, a standby was promoted, or begin_history was called", "base", base)
	}
	return err
}

// warnUnidentified logs if a restored dump would go unnoticed.
func warnUnidentified(p *process, pool *pgxpool.Pool) error {
	sql, err := migrate.IdentitySQL(p.ctx, pool)
	if sql != "" {
		p.log.Warn("a dump that is restored here goes unnoticed, and positions are used again: grant the right, or run SELECT tidewire.begin_history() after a restore", "sql", sql)
	}
	return err
}

// openEngine opens the engine for the served endpoints.
func (c *serveCmd) openEngine(p *process, cfg postgres.Config, only gateway.Endpoint) (_ *postgres.Engine, err error) {
	if only == gateway.All || only == gateway.Ingest {
		if _, err := migrate.Ingest(p.ctx, cfg.Pool, c.Table); err != nil { // fails if the table is another application's
			return nil, explainDatabase(err)
		}
		if cfg.Ingest, err = ingest.New(cfg.Pool, c.ingestFlags.config(p)); err != nil {
			return nil, exit(ExitUsage, "%w", err)
		}
	}
	cfg.Stores = only == gateway.All
	cfg.Rooms = len(c.StoredRooms) > 0 && only != gateway.Ingest
	cfg.RoomsKeep = stream.Retention{MaxAge: time.Duration(c.RoomHistory), MaxBytes: int64(c.RoomHistoryBytes)}
	cfg.RoomBatchBytes = int(c.MaxInflightBytes) / 8
	cfg.MaxOpenStreams = int(budget.ClientShare(c.memory) / 8 / postgres.OpenStreamBytes)
	store, err := postgres.Open(p.ctx, cfg)
	return store, explainDatabase(err)
}

// prepareSchema migrates the database or, with --migrate=false, requires that its schema is up to
// date.
func (c *serveCmd) prepareSchema(p *process, pool *pgxpool.Pool) error {
	table := c.Table
	if c.Only != "" && c.Only != string(gateway.Ingest) {
		table = ""
	}
	if c.Migrate {
		_, err := migrateUp(p, pool, table)
		return err
	}
	if err := checkRights(p, pool, table); err != nil {
		return err
	}
	s, err := migrate.Inspect(p.ctx, pool)
	if err != nil {
		return explainDatabase(err)
	}
	if err := explainSchema(s); err != nil {
		return err
	}
	missing, err := lacksTable(p.ctx, pool, table)
	if missing {
		err = exit(ExitDatabase, "table %s is missing, and --migrate=false does not create it: create it with tidewire db migrate --table %[1]s", table)
	}
	return err
}

// closePool closes the connections to PostgreSQL.
func (c *serveCmd) closePool(pool *pgxpool.Pool) error {
	err := c.stop.Close("closing the connections to PostgreSQL", pool.Close)
	if err != nil {
		err = fmt.Errorf("%w: %d do not end", err, pool.Stat().TotalConns())
	}
	return err
}

// stopDatabase stops a private PostgreSQL.
func (c *serveCmd) stopDatabase(db *database) error {
	ctx, cancel := c.stop.Stage("stopping the private PostgreSQL", serve.SharePostgres)
	defer cancel()
	return db.stop(ctx)
}
