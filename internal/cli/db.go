package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// dbCmd looks after the private PostgreSQL, and the schema.
type dbCmd struct {
	Start  dbStartCmd  `cmd:"" help:"Start the private PostgreSQL in the background. A later serve uses it and leaves it running."`
	Stop   dbStopCmd   `cmd:"" help:"Stop the private PostgreSQL."`
	Status dbStatusCmd `cmd:"" help:"Show whether the private PostgreSQL runs, and where."`
	Psql   dbPsqlCmd   `cmd:"" passthrough:"" help:"Run psql on the private PostgreSQL. Where psql is not installed, only -c SQL works."`
	URL    dbURLCmd    `cmd:"" name:"url" help:"Print the URL of the private PostgreSQL."`

	Migrate dbMigrateCmd `cmd:"" help:"Bring the database schema up to date, as serve does when it starts."`
}

// dirFlags name the data directory.
type dirFlags struct {
	DataDir string `name:"data-dir" placeholder:"DIR" default:"${data_dir}" help:"${data_dir_help}"`
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

// dbPsqlCmd takes the arguments of psql, which kong does not know.
type dbPsqlCmd struct {
	Args []string `arg:"" optional:"" help:"Arguments of psql, such as -c SQL; --data-dir DIR is ours."`
}

// Run is called by kong.
func (c *dbPsqlCmd) Run(p *process) error {
	dir, args := dirFlags{DataDir: defaultDataDir(p.Env)}, []string(nil)
	for i := 0; i < len(c.Args); i++ {
		name, value, ok := strings.Cut(c.Args[i], "=")
		switch {
		case name != "--data-dir":
			args = append(args, c.Args[i])
		case ok:
			dir.DataDir = value
		case i+1 < len(c.Args):
			i++
			dir.DataDir = c.Args[i]
		default:
			return exit(ExitUsage, "--data-dir: want a directory")
		}
	}
	program, missing := findPsql(p)
	if slices.Contains(args, "--help") { // of psql, which needs no server for that
		return psqlHelp(p, program)
	}
	s, err := dir.running(p)
	if err != nil {
		return err
	}
	if missing == nil {
		return p.attached(program, append([]string{s.URL}, args...)...)
	}
	commands, err := psqlCommands(args)
	if err != nil {
		return err
	}
	return withoutPsql(p, s.URL, commands)
}

// psqlHelp says what db psql takes, and lets psql, if it is there, say what that does.
func psqlHelp(p *process, program string) error {
	fmt.Fprint(p.Out, "tidewire db psql [--data-dir DIR] [ARGUMENTS OF psql]\n"+
		"Runs psql on the private PostgreSQL. Without psql on this machine it takes -c SQL alone.\n")
	if program == "" {
		return nil
	}
	fmt.Fprintln(p.Out)
	return p.attached(program, "--help")
}

// psqlCommands picks the SQL out of psql's arguments. The look is that of
// psql -At whatever they say.
func psqlCommands(args []string) (commands []string, err error) {
	const install = "no psql on this machine: install a PostgreSQL client, or use tidewire db psql -c SQL"
	for i := 0; i < len(args); i++ {
		name, value, ok := strings.Cut(args[i], "=")
		switch {
		case name == "--command" && ok:
			commands = append(commands, value)
		case (args[i] == "-c" || args[i] == "--command" || args[i] == "-Atc") && i+1 < len(args):
			i++
			commands = append(commands, args[i])
		case args[i] != "-A" && args[i] != "-t" && args[i] != "-At" && args[i] != "-q" && args[i] != "-X":
			return nil, exit(ExitPostgreSQL, "%s (not %s)", install, args[i])
		}
	}
	if len(commands) == 0 {
		return nil, exit(ExitPostgreSQL, install)
	}
	return commands, nil
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
func withoutPsql(p *process, url string, commands []string) error {
	conn, err := pgx.Connect(p.ctx, url)
	if err != nil {
		return exit(ExitDatabase, "connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(p.ctx))
	for _, sql := range commands {
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
