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

// dbCmd manages the private PostgreSQL and the database schema.
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
	return server.Stop(p.ctx) // releases the directory and leaves PostgreSQL running
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

// dbPsqlCmd passes its arguments, which kong does not know, to psql.
type dbPsqlCmd struct {
	Args []string `arg:"" optional:"" help:"Arguments of psql, such as -c SQL. --data-dir DIR is an argument of tidewire."`
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
	if slices.Contains(args, "--help") { // psql prints its help without a server
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

// psqlHelp prints the help of db psql, and that of psql if it is installed.
func psqlHelp(p *process, program string) error {
	fmt.Fprint(p.Out, "tidewire db psql [--data-dir DIR] [ARGUMENTS OF psql]\n"+
		"Runs psql on the private PostgreSQL. Where psql is not installed, only -c SQL works.\n")
	if program == "" {
		return nil
	}
	fmt.Fprintln(p.Out)
	return p.attached(program, "--help")
}

// psqlCommands picks the SQL out of psql's arguments. The output has the format
// of psql -At, whatever the arguments say.
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

// findPsql searches the PATH of the command's environment.
func findPsql(p *process) (string, error) {
	for _, dir := range filepath.SplitList(p.Getenv("PATH")) {
		if program, err := exec.LookPath(filepath.Join(dir, "psql")); err == nil {
			return program, nil
		}
	}
	return "", exec.ErrNotFound
}

// attached runs a program on this process's terminal. An exit code other than 0
// becomes an error.
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

// withoutPsql runs the SQL and prints the result as psql -At does: one row a
// line, columns separated by "|", NULL as an empty text. For SQL that returns
// no rows it prints the command tag.
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
