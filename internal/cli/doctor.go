package cli

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/doctor"
)

// serveConnections is how many connections serve opens at most, with its default of --workers: those of
// its pool, one that listens, and one that probes whether a write would succeed.
const serveConnections = 24 + 4 + 2

type doctorCmd struct {
	JSON bool `name:"json" help:"Print one JSON object."`
	databaseFlags
}

// Help is called by kong.
func (c *doctorCmd) Help() string {
	return "Exit code 0: nothing worse than a note. 9: warnings. 10: errors. The database is only read, and not migrated."
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
	pool.Close() // it has said that the server can be reached, and is not to be counted
	_, given := c.given(p)
	cfg := doctor.Config{Connections: serveConnections, Private: !given}
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

// probeTimeoutAtStart bounds the look at what server this is.
const probeTimeoutAtStart = 5 * time.Second

// refuseForeignServer fails for a server that only resembles PostgreSQL, in eight round trips on two connections. If it cannot
// ask, as where no second connection is free, it leaves that to those who need the connections.
func refuseForeignServer(p *process, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(p.ctx, probeTimeoutAtStart)
	defer cancel()
	if err := doctor.ProbePool(ctx, pool); errors.Is(err, doctor.ErrNotPostgreSQL) {
		return exit(ExitDatabase, "%w; name a PostgreSQL, version 14 to 18, with --database-url: Tidewire's guarantees rest on its locks", err)
	}
	return nil
}
