package cli

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/doctor"
)

// serveConnections is the maximum number of connections that serve opens with the default --workers: 24
// + 4 of its pool, one that listens, and one that probes whether a write would succeed.
const serveConnections = 24 + 4 + 2

type doctorCmd struct {
	JSON  bool   `name:"json" help:"Print one JSON object."`
	Table string `default:"messages" placeholder:"NAME" help:"Table that /ws/ingest fills, as for serve. Empty: no server serves /ws/ingest."`
	databaseFlags
}

// Help is called by kong.
func (c *doctorCmd) Help() string {
	return "Exit code 0: no warnings and no errors. 9: warnings. 10: errors. The command changes nothing, and does not migrate the database."
}

// Run is called by kong.
func (c *doctorCmd) Run(p *process) (err error) {
	db, err := c.attach(p, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop(context.WithoutCancel(p.ctx))) }()
	pool, err := db.connect(p.ctx, 1, p.log)
	if err != nil {
		return err
	}
	database := pool.Config()
	pool.Close() // it has shown that the server is reachable; doctor must not count its connection
	_, given := c.given(p)
	cfg := doctor.Config{Connections: serveConnections, Private: !given, Table: c.Table}
	if !given {
		cfg.Disk = diskOf(c.DataDir)
	}
	report, err := doctor.Run(p.ctx, database, cfg)
	if err != nil {
		return explainDatabase(err)
	}
	if c.JSON {
		lines := json.NewEncoder(p.Out)
		lines.SetEscapeHTML(false)
		lines.SetIndent("", " ")
		err = lines.Encode(report)
	} else {
		err = printReport(p.Out, report, widthOf(p.Out))
	}
	if err != nil {
		return err
	}
	switch report.Worst {
	case doctor.Error:
		return &exitError{code: ExitErrors}
	case doctor.Warning:
		return &exitError{code: ExitWarnings}
	}
	return nil
}

// probeTimeoutAtStart limits the time to find out which server this is.
const probeTimeoutAtStart = 5 * time.Second

// refuseForeignServer fails for a server that only resembles PostgreSQL, and for a pooler that lends sessions for a transaction
// at a time. It needs nine round trips on two connections.
// If it cannot ask, for example because no second connection is free, it reports no error: the code that needs the
// connections will.
func refuseForeignServer(p *process, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(p.ctx, probeTimeoutAtStart)
	defer cancel()
	if _, err := doctor.ProbeSessions(ctx, pool); errors.Is(err, doctor.ErrPooled) {
		return exit(ExitDatabase, "%w (in PgBouncer: pool_mode = transaction), and notifications and prepared statements need their session; name PostgreSQL itself with --database-url, or a pool with pool_mode = session", err)
	}
	if err := doctor.ProbePool(ctx, pool); errors.Is(err, doctor.ErrNotPostgreSQL) {
		return exit(ExitDatabase, "%w; name a PostgreSQL, version 14 to 18, with --database-url: Tidewire's guarantees rest on its locks", err)
	}
	return nil
}
