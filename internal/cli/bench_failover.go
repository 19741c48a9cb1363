package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/failover"
	"github.com/tidewire/tidewire/internal/bench/scenario"
)

// benchFailoverCmd makes PostgreSQL fail over under load.
type benchFailoverCmd struct {
	Replication []string      `default:"quorum,asynchronous" enum:"quorum,asynchronous" help:"quorum: commits wait for the standby. asynchronous: they do not, so some are lost. Several run one after the other."`
	Promotions  int           `default:"20" help:"How many times the primary is lost and the standby is promoted, for each kind of replication."`
	Fault       []string      `default:"kill,cut-off,freeze,switchover" help:"How the primary is lost. Several faults take turns. kill: all its processes are killed. cut-off: the standby receives nothing for up to 2 s, commits that wait for it are cancelled or terminated, and then the primary is killed. freeze: the primary hangs, and comes back as a second primary. switchover: the primary is shut down cleanly."`
	Seed        uint64        `default:"1" help:"Seed of the random choices: how long each step lasts, and what else happens to the primary (the crash of a backend, restarts)."`
	Pace        time.Duration `default:"20ms" help:"Average time between two requests of a client. There are 28 clients."`
	embeddedFlags
	resultFlags
}

// Validate is called by kong.
func (c *benchFailoverCmd) Validate() error {
	if _, err := failover.ParseFaults(c.Fault); err != nil {
		return fmt.Errorf("--fault: %w", err)
	}
	switch {
	case c.Promotions < 1 || c.Promotions > 100_000:
		return fmt.Errorf("--promotions is %d: want 1 to 100000", c.Promotions)
	case c.Pace < time.Millisecond || c.Pace > time.Minute:
		return fmt.Errorf("--pace is %v: want 1ms to 1m", c.Pace)
	case len(c.Fault) == 0 || len(c.Replication) == 0:
		return errors.New("--fault and --replication: want at least one")
	}
	return nil
}

// Run is called by kong.
func (c *benchFailoverCmd) Run(p *process) (err error) {
	program, err := p.self()
	if err != nil {
		return err
	}
	dir, remove, err := c.directory()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	faults, err := failover.ParseFaults(c.Fault)
	if err != nil {
		return err
	}
	result := bench.NewResult("failover", map[string]any{
		"replication": c.Replication, "promotions": c.Promotions, "fault": c.Fault, "seed": c.Seed, "pace": c.Pace.String(),
	})
	view := c.watch(p, 0)
	defer view.Stop()
	result.Recording.Observe(view.Observe)
	var steps []bench.Step
	for _, name := range c.Replication {
		steps = append(steps, bench.Step{Row: name})
	}
	err = view.Control().Run(p.ctx, result, steps, func(ctx context.Context, s bench.Step) error {
		below := filepath.Join(dir, s.Row)
		if err := os.MkdirAll(below, 0o755); err != nil {
			return exit(ExitDataDir, "make a directory for PostgreSQL: %w", err)
		}
		return explainEmbedded(failover.Run(ctx, failover.Config{
			Quorum: s.Row == "quorum", Promotions: c.Promotions, Seed: c.Seed, Faults: faults, Pace: c.Pace,
			PostgreSQL: c.config(p), Dir: below, Control: view.Control(), Progress: view.Progress,
			Serve: func(ctx context.Context, log io.Writer, database string) (*scenario.ServerProcess, error) {
				return scenario.StartServer(ctx, log, nil, program, "serve", "--port", "0", "--database-url", database)
			},
		}, result))
	})
	if err != nil {
		return err
	}
	view.Stop()
	return c.finish(p, result)
}

// directory returns the directory of the data and logs. remove deletes it at the end, unless the
// user named it.
func (f embeddedFlags) directory() (dir string, remove func() error, err error) {
	if f.DataDir != "" {
		if _, err := os.Stat(f.DataDir); err == nil {
			return "", nil, exit(ExitDataDir, "--data-dir: %s exists already: give a new directory for the data and logs of this run", f.DataDir)
		}
		return f.DataDir, func() error { return nil }, os.MkdirAll(f.DataDir, 0o755)
	}
	dir, err = os.MkdirTemp("", "tidewire-bench-")
	if err != nil {
		return "", nil, exit(ExitDataDir, "make a directory for PostgreSQL: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, os.Chmod(dir, 0o755) // PostgreSQL may run as another user
}
