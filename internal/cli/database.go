package cli

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/migrate"
)

// embeddedFlags configure the private PostgreSQL.
type embeddedFlags struct {
	DataDir   string `name:"data-dir" placeholder:"DIR" default:"${data_dir}" help:"${data_dir_help}"`
	Postgres  string `enum:"auto,system,fetch" default:"auto" help:"Which programs the private PostgreSQL uses: those installed on this machine (system), downloaded ones (fetch), or whichever are available (auto)."`
	PGVersion int    `name:"pg-version" placeholder:"N" help:"Major version of the private PostgreSQL, 14 to 18. Default: the newest that is available."`
	PGMirror  string `name:"pg-mirror" placeholder:"URL" help:"Maven repository to download PostgreSQL from."`
}

// private reports whether the flags ask for a private PostgreSQL. It works for
// commands where --data-dir has no default.
func (f embeddedFlags) private() bool {
	return f.DataDir != "" || f.Postgres != "auto" || f.PGVersion != 0 || f.PGMirror != ""
}

// databaseFlags choose the database: a given one, or the private one.
type databaseFlags struct {
	DatabaseURL string `name:"database-url" placeholder:"URL" help:"URL of the PostgreSQL to use, version 14 to 18. Default: DATABASE_URL, the PG* variables, or the private PostgreSQL in --data-dir."`
	embeddedFlags
}

// defaultDataDir returns the default directory of the private PostgreSQL. All commands use
// TIDEWIRE_DATA_DIR, so that they find the database of a server that was started with it.
func defaultDataDir(env Env) string {
	return cmp.Or(env.Getenv(envName("data-dir")), embedpg.DefaultDataDir(env.Getenv))
}

func (f embeddedFlags) config(p *process) embedpg.Config {
	return embedpg.Config{
		DataDir: f.DataDir, Binaries: f.Postgres, Version: f.PGVersion, MirrorURL: f.PGMirror,
		Getenv:   p.Getenv,
		Progress: func(line string) { p.log.Info(line) },
	}
}

// given returns the URL of the database that the user named, if any. An empty
// URL with ok true stands for the PG* variables, which pgx reads itself.
func (f databaseFlags) given(p *process) (url string, ok bool) {
	if url := cmp.Or(f.DatabaseURL, p.Getenv(envName("database-url")), p.Getenv("DATABASE_URL")); url != "" {
		return url, true
	}
	for _, name := range []string{"PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE"} {
		if p.Getenv(name) != "" {
			return "", true
		}
	}
	return "", false
}

// database is the database of a command, and the private PostgreSQL to stop at the end, if there is
// one.
type database struct {
	url     string
	private *embedpg.Server // nil for a database that was given
}

// open finds or starts the database. The caller must stop it.
func (f databaseFlags) open(p *process) (*database, error) {
	if url, ok := f.given(p); ok {
		return &database{url: url}, nil
	}
	server, err := embedpg.Start(p.ctx, f.config(p))
	if err != nil {
		return nil, explainEmbedded(err)
	}
	p.log.Info("private PostgreSQL is running", "version", server.Version(), "data", f.DataDir)
	return &database{url: server.URL(), private: server}, nil
}

func (d *database) stop(ctx context.Context) error {
	if d.private == nil {
		return nil
	}
	return d.private.Stop(ctx)
}

// supervise restarts the private PostgreSQL when its postmaster has died, until
// ctx ends. PostgreSQL itself restarts its child processes.
func (d *database) supervise(ctx context.Context, p *process) {
	if d.private == nil {
		return
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if d.private.Running() {
			continue
		}
		p.log.Warn("the private PostgreSQL has died; starting it again")
		if err := d.private.Restart(ctx); err != nil && ctx.Err() == nil {
			p.log.Error("the private PostgreSQL does not start; trying again", "error", err)
		}
	}
}

// connect opens a pool on the database.
func (d *database) connect(ctx context.Context, conns int, log *slog.Logger) (*pgxpool.Pool, error) {
	pool, err := pg.Open(ctx, pg.PoolConfig{URL: d.url, MaxConns: conns, Log: log})
	if err != nil {
		return nil, explainDatabase(err)
	}
	return pool, nil
}

func explainEmbedded(err error) error {
	switch {
	case errors.Is(err, embedpg.ErrVersion):
		return exit(ExitUsage, "--pg-version: %w", err)
	case errors.Is(err, embedpg.ErrInUse), errors.Is(err, embedpg.ErrOtherMajor),
		errors.Is(err, embedpg.ErrForeignDir), errors.Is(err, embedpg.ErrNotWritable):
		return exit(ExitDataDir, "%w", err)
	case errors.Is(err, embedpg.ErrNoBinaries), errors.Is(err, embedpg.ErrFetch),
		errors.Is(err, embedpg.ErrNoUser), errors.Is(err, embedpg.ErrStart):
		return exit(ExitPostgreSQL, "%w", err)
	case errors.Is(err, embedpg.ErrNotRunning):
		return exit(ExitDatabase, "%w; start it with: tidewire db start", err)
	}
	return err
}

func explainDatabase(err error) error {
	var rights *migrate.RightsError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rights):
		return exit(ExitDatabase, "%w", err)
	case errors.Is(err, migrate.ErrTable):
		return exit(ExitUsage, "%w", err)
	case errors.Is(err, pg.ErrURL):
		return exit(ExitUsage, "%w; want postgres://USER:PASSWORD@HOST:PORT/DATABASE", err)
	case errors.Is(err, pg.ErrLogin):
		return exit(ExitDatabase, "%w; are the user, the password and the database in --database-url right, and may they connect (pg_hba.conf)?", err)
	case errors.Is(err, pg.ErrUnreachable):
		return exit(ExitDatabase, "%w; is it running, is --database-url right, and if it fails over, has a standby been promoted? Without an address, tidewire runs a private PostgreSQL", err)
	case errors.Is(err, pg.ErrTooOld):
		return exit(ExitDatabase, "%w; without --database-url, tidewire runs a private one", err)
	case errors.Is(err, migrate.ErrForeignTable), pg.Code(err) == migrate.CodeForeignTable:
		return exit(ExitDatabase, "%w: ingested messages need a separate table; give another name with --table, and the server creates it", err)
	case pg.Code(err) == "42P05", pg.Code(err) == "26000": // a prepared statement of another connection, or one that is not in this session
		return exit(ExitDatabase, "%w: a pooler seems to lend the sessions of PostgreSQL for a transaction at a time (in PgBouncer: pool_mode = transaction); name PostgreSQL itself with --database-url, or a pool with pool_mode = session", err)
	case pg.Code(err) == "42501":
		return exit(ExitDatabase, "%w: the role lacks a right; tidewire db migrate --dry-run says which, with the SQL that gives it", err)
	}
	return exit(ExitDatabase, "%w", err)
}
