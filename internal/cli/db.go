package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// dbCmd looks after the private PostgreSQL.
type dbCmd struct {
	Start  dbStartCmd  `cmd:"" help:"Start it in the background; a later serve uses it and leaves it running."`
	Stop   dbStopCmd   `cmd:"" help:"Stop it."`
	Status dbStatusCmd `cmd:"" help:"Say whether it runs, and where."`
	Psql   dbPsqlCmd   `cmd:"" help:"Run psql on it; without psql on this machine, only -c SQL."`
	URL    dbURLCmd    `cmd:"" name:"url" help:"Print its URL."`
}

// dirFlags name the data directory.
type dirFlags struct {
	DataDir string `name:"data-dir" placeholder:"DIR" default:"${data_dir}" help:"Where the private PostgreSQL keeps its data."`
}

type dbStartCmd struct{ embeddedFlags }

// Run is called by kong.
func (c *dbStartCmd) Run(p *process) error {
	cfg := c.config(p)
	cfg.Detach = true
	server, err := embedpg.Start(p.ctx, cfg)
	if err != nil {
		return explainEmbedded(err)
	}
	fmt.Fprintf(p.Out, "PostgreSQL %s is running: %s\n", server.Version(), server.URL())
	return server.Stop(p.ctx) // gives up the directory, leaves PostgreSQL
}

type dbStopCmd struct{ dirFlags }

// Run is called by kong.
func (c *dbStopCmd) Run(p *process) error {
	if err := embedpg.StopDir(p.ctx, c.DataDir); err != nil {
		return explainEmbedded(err)
	}
	fmt.Fprintln(p.Out, "PostgreSQL is stopped")
	return nil
}

type dbStatusCmd struct{ dirFlags }

// Run is called by kong. It exits 0 only if PostgreSQL runs.
func (c *dbStatusCmd) Run(p *process) error {
	s, err := embedpg.Status(p.ctx, c.DataDir)
	if err != nil {
		return explainEmbedded(err)
	}
	fmt.Fprintln(p.Out, "data directory:", c.DataDir)
	switch {
	case s.Major == 0:
		fmt.Fprintln(p.Out, "no database there yet")
	case !s.Running:
		fmt.Fprintf(p.Out, "PostgreSQL %d, not running\n", s.Major)
	default:
		fmt.Fprintf(p.Out, "PostgreSQL %s runs, pid %d\n", s.Version, s.PID)
		fmt.Fprintln(p.Out, "url:", s.URL)
	}
	if s.Owned {
		fmt.Fprintln(p.Out, "used by process", s.OwnerPID)
	}
	if !s.Running {
		return exit(ExitDatabase, "%w; start it with: tidewire db start", embedpg.ErrNotRunning)
	}
	return nil
}

type dbURLCmd struct{ dirFlags }

// Run is called by kong.
func (c *dbURLCmd) Run(p *process) error {
	s, err := c.running(p)
	if err != nil {
		return err
	}
	fmt.Fprintln(p.Out, s.URL)
	return nil
}

func (f dirFlags) running(p *process) (embedpg.State, error) {
	s, err := embedpg.Status(p.ctx, f.DataDir)
	if err == nil && !s.Running {
		err = fmt.Errorf("%w in %s", embedpg.ErrNotRunning, f.DataDir)
	}
	if err != nil {
		return s, explainEmbedded(err)
	}
	return s, nil
}

type dbPsqlCmd struct {
	dirFlags
	Command []string `short:"c" placeholder:"SQL" sep:"none" help:"SQL to run, instead of asking for it."`
	Args    []string `arg:"" optional:"" passthrough:"" help:"Further arguments of psql, after --."`
}

// Run is called by kong.
func (c *dbPsqlCmd) Run(p *process) error {
	s, err := c.running(p)
	if err != nil {
		return err
	}
	program, err := findPsql(p)
	if err != nil {
		if len(c.Command) == 0 {
			return exit(ExitPostgreSQL, "no psql on this machine: install a PostgreSQL client, or use tidewire db psql -c SQL")
		}
		return c.withoutPsql(p, s.URL)
	}
	args := []string{s.URL}
	for _, sql := range c.Command {
		args = append(args, "-c", sql)
	}
	for _, a := range c.Args {
		if a != "--" {
			args = append(args, a)
		}
	}
	return p.attached(program, args...)
}

// findPsql looks in the PATH that the command was given.
func findPsql(p *process) (string, error) {
	for _, dir := range filepath.SplitList(p.Getenv("PATH")) {
		if program, err := exec.LookPath(filepath.Join(dir, "psql")); err == nil {
			return program, nil
		}
	}
	return "", exec.ErrNotFound
}

// attached runs a program on the terminal of this one; its exit code, if not
// 0, becomes a failure.
func (p *process) attached(program string, args ...string) error {
	cmd := exec.CommandContext(p.ctx, program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.In, p.Out, p.Err
	var ended *exec.ExitError
	if err := cmd.Run(); errors.As(err, &ended) {
		return exit(ExitFailure, "psql ended with exit code %d", ended.ExitCode())
	} else if err != nil {
		return fmt.Errorf("run psql: %w", err)
	}
	return nil
}

// withoutPsql runs the SQL and prints it as psql -At does: rows one a line,
// columns separated by "|", NULL as nothing; for what returns no rows, its
// command tag.
func (c *dbPsqlCmd) withoutPsql(p *process, url string) error {
	conn, err := pgx.Connect(p.ctx, url)
	if err != nil {
		return exit(ExitDatabase, "connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(p.ctx))
	for _, sql := range c.Command {
		results, err := conn.PgConn().Exec(p.ctx, sql).ReadAll()
		for _, r := range results {
			printResult(p, r)
		}
		if err != nil {
			return exit(ExitFailure, "%w", err)
		}
	}
	return nil
}

func printResult(p *process, r *pgconn.Result) {
	if len(r.FieldDescriptions) == 0 {
		fmt.Fprintln(p.Out, r.CommandTag)
		return
	}
	for _, row := range r.Rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = string(cell)
		}
		fmt.Fprintln(p.Out, strings.Join(cells, "|"))
	}
}
