package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/migrate"
)

// withPool runs work on the database that the user named, or else on the private
// one. If a server already runs the private one, withPool connects to it;
// otherwise it starts PostgreSQL and stops it afterwards. It creates nothing and
// migrates nothing: only serve, bench and db migrate do.
func (f databaseFlags) withPool(p *process, work func(pool *pgxpool.Pool) error) (err error) {
	db, err := f.attach(p, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop(context.WithoutCancel(p.ctx))) }()
	pool, err := db.connect(p.ctx, 4, p.log)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := requireSchema(p, pool); err != nil {
		return err
	}
	return work(pool)
}

// attach finds the database of a command that may run while a server runs. If no database is
// given and there is no private one yet, it creates a private one if mayMake is set, and fails
// otherwise.
func (f databaseFlags) attach(p *process, mayMake bool) (*database, error) {
	if _, given := f.given(p); given {
		return f.open(p)
	}
	s, err := embedpg.Status(p.ctx, f.DataDir)
	switch {
	case err != nil:
		return nil, explainEmbedded(err)
	case s.Running:
		return &database{url: s.URL}, nil
	case s.Major == 0 && !mayMake:
		return nil, exit(ExitDatabase, "no database is given, and there is no private one in %s: "+
			"give one with --database-url or DATABASE_URL, or the directory of a private one with --data-dir, or create one with: tidewire serve", f.DataDir)
	}
	return f.open(p)
}

// requireSchema fails unless the schema has the version that this program needs.
func requireSchema(p *process, pool *pgxpool.Pool) error {
	s, err := migrate.Inspect(p.ctx, pool)
	if err != nil {
		return explainDatabase(err)
	}
	return explainSchema(s)
}

// explainSchema adds to the error of an unusable schema what to do about it.
func explainSchema(s migrate.Status) error {
	err := s.Err()
	switch {
	case err == nil:
		return nil
	case s.Version == 0:
		return exit(ExitDatabase, "Tidewire's tables are not in this database: create them with tidewire db migrate or tidewire serve, or give another database with --database-url")
	case errors.Is(err, migrate.ErrOlder):
		return exit(ExitDatabase, "%w: migrate it with tidewire db migrate (or tidewire serve), after older programs have ended, or use the same version of tidewire as the server", err)
	}
	return explainDatabase(err)
}

// migrateUp brings the schema up to date, and creates the ingest table if one is
// named. Before that, it checks the rights of the role, and whether a table of
// another application has that name. It reports whether it created the table.
func migrateUp(p *process, pool *pgxpool.Pool, table string) (made bool, err error) {
	if err := checkRights(p, pool, table); err != nil {
		return false, err
	}
	s, err := migrate.Inspect(p.ctx, pool)
	if err != nil {
		return false, explainDatabase(err)
	}
	missing, err := lacksTable(p.ctx, pool, table)
	if err != nil {
		return false, err
	}
	if len(s.Pending) == 0 && !missing {
		return false, explainSchema(s)
	}
	applied, err := migrate.Up(p.ctx, pool)
	if err != nil {
		return false, explainDatabase(err)
	}
	if applied > 0 {
		p.log.Info("database schema brought up to date", "migrations", applied)
	}
	if missing {
		made, err = migrate.Ingest(p.ctx, pool, table)
	}
	return made, explainDatabase(err)
}

// checkRights checks that the role may do what migrating and serving need, before anything looks into the schema: without rights,
// that would fail with one of them, and no way to grant it.
func checkRights(p *process, pool *pgxpool.Pool, table string) error {
	return explainDatabase(migrate.Rights(p.ctx, pool, table))
}

// lacksTable reports whether the ingest table is to be created: one is named, and
// it does not exist.
func lacksTable(ctx context.Context, pool *pgxpool.Pool, table string) (bool, error) {
	if table == "" {
		return false, nil
	}
	there, err := migrate.HasIngest(ctx, pool, table)
	return err == nil && !there, explainDatabase(err)
}

// dbMigrateCmd migrates the database, for installations that do so before they start servers.
type dbMigrateCmd struct {
	Status bool    `help:"Only print the version of the schema and the migrations that are missing."`
	Table  *string `placeholder:"NAME" help:"Also create this ingest table if it does not exist. serve --migrate=false --table NAME needs it. --dry-run creates the table messages, as serve does, unless another is named, or none: --table=''."`
	DryRun bool    `name:"dry-run" help:"Apply the missing migrations and do what a server does at its start, and roll all back, to show whether both would succeed. Give --table as to serve. Writers wait meanwhile."`
	databaseFlags
}

// Validate is called by kong.
func (c *dbMigrateCmd) Validate() error {
	if c.Status && c.DryRun {
		return errors.New("--status and --dry-run exclude each other")
	}
	return nil
}

// Run is called by kong.
func (c *dbMigrateCmd) Run(p *process) (err error) {
	db, err := c.attach(p, !c.Status && !c.DryRun)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop(context.WithoutCancel(p.ctx))) }()
	pool, err := db.connect(p.ctx, 2, p.log)
	if err != nil {
		return err
	}
	defer pool.Close()
	table := c.table()
	if !c.Status {
		if err := checkRights(p, pool, table); err != nil {
			return err
		}
	}
	before, err := migrate.Inspect(p.ctx, pool)
	if err != nil {
		return explainDatabase(err)
	}
	if c.Status {
		fmt.Fprintf(p.Out, "schema version: %d\nversion of this program: %d\n", before.Version, before.Latest)
	}
	if errors.Is(before.Err(), migrate.ErrNewer) { // there is nothing to apply, but the schema cannot be used
		return explainSchema(before)
	}
	missing, err := lacksTable(p.ctx, pool, table)
	if err != nil {
		return err
	}
	switch {
	case c.Status:
		c.print(p, "to be applied", before.Pending, "to be made", missing)
	case c.DryRun:
		if _, err := migrate.DryRun(p.ctx, pool, table); err != nil {
			return explainDatabase(err)
		}
		if err := warnUnidentified(p, pool); err != nil {
			return explainDatabase(err)
		}
		c.print(p, "would be applied", before.Pending, "would be made", missing)
	default:
		made, err := migrateUp(p, pool, table)
		if err != nil {
			return err
		}
		c.print(p, "applied", before.Pending, "made", made)
	}
	return nil
}

// table returns the name of the ingest table, or "" for none.
func (c *dbMigrateCmd) table() string {
	switch {
	case c.Table != nil:
		return *c.Table
	case c.DryRun:
		return pg.DefaultTable
	}
	return ""
}

// print lists the migrations, and the ingest table if there is something to say about it.
func (c *dbMigrateCmd) print(p *process, applied string, names []string, made string, table bool) {
	for _, name := range names {
		fmt.Fprintf(p.Out, "%s: %s\n", applied, name)
	}
	if table {
		fmt.Fprintf(p.Out, "%s: table %s\n", made, c.table())
	}
	if len(names) == 0 && !table {
		fmt.Fprintln(p.Out, "nothing to apply")
	}
}
