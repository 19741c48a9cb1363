package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/report"
	"github.com/tidewire/tidewire/internal/bench/runner"
	"github.com/tidewire/tidewire/internal/bench/scenario"
	"github.com/tidewire/tidewire/internal/live"
)

// benchCmd groups the scenarios.
type benchCmd struct {
	Ingest   benchIngestCmd   `cmd:"" help:"Store WebSocket messages in PostgreSQL: compare ways of writing."`
	Chat     benchChatCmd     `cmd:"" help:"Chat rooms: each chat goes to all members."`
	Lanes    benchLanesCmd    `cmd:"" help:"Latency of requests on a connection that carries a flood of data."`
	Queue    benchQueueCmd    `cmd:"" help:"Queues on PostgreSQL: the readers share the messages."`
	Pubsub   benchPubsubCmd   `cmd:"" help:"Streams on PostgreSQL: each group reads all messages."`
	Events   benchEventsCmd   `cmd:"" help:"The event store: append, conditional append, queries and projections."`
	Echo     benchEchoCmd     `cmd:"" help:"Round trips of small messages over WebSocket."`
	Idle     benchIdleCmd     `cmd:"" help:"Memory of idle connections."`
	Failover benchFailoverCmd `cmd:"" help:"PostgreSQL fails over under load: which data is lost, whether clients are told, and how long they wait."`
	Cluster  benchClusterCmd  `cmd:"" help:"Several nodes on one PostgreSQL: what is lost, and who is told, when nodes and networks fail; and what more nodes cost."`
	All      benchAllCmd      `cmd:"" help:"Run every benchmark, and write one report."`
	List     benchListCmd     `cmd:"" help:"List the benchmarks."`
	Compare  benchCompareCmd  `cmd:"" help:"Compare two results: what changed, and whether chance could explain it."`
	Report   benchReportCmd   `cmd:"" help:"Turn result files into one page, Markdown or CSV."`
	Run      benchRunCmd      `cmd:"" help:"Repeat a benchmark from the .rerun.toml file beside its result."`
	Part     benchPartCmd     `cmd:"" hidden:"" help:"A worker process of bench queue. It reads what to do from its standard input."`
}

// resultFlags say where a result goes.
type resultFlags struct {
	Out       string            `placeholder:"FILE" help:"Where to write the result. Default: a new file in results/."`
	Threshold []bench.Threshold `sep:"none" placeholder:"BOUND" help:"A bound for each row, such as 'lost==0' or 'p99<25ms' (bench queue and pubsub: 'end_to_end_p99<25ms'). Can be given several times. If a row misses a bound, the exit code is 8. docs/reference/results.md lists the metrics."`
	Quick     bool              `help:"Run a small version, once."`
	Quiet     bool              `help:"Do not show progress."`
}

// AfterApply is called by kong. It rejects a threshold that no row can have and a file that
// cannot be written, so that the command fails before the run and not after it.
func (f resultFlags) AfterApply(ctx *kong.Context) error {
	if err := writable(f.Out); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	for _, t := range f.Threshold {
		if err := t.In(ctx.Selected().Name); err != nil {
			return err
		}
	}
	return nil
}

// writable returns why the file cannot be written, or nil. It creates the file's directory.
func writable(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory: name a file", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	probe, err := os.CreateTemp(filepath.Dir(path), ".tidewire-*")
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// ceilingFlags configure the search for the highest rate.
type ceilingFlags struct {
	FindCeiling  bool    `help:"Find the highest rate that the system keeps up with, then run at 70 % of it. Each rate that is tried takes as long as --duration says (10s is good) and is a row of the result."`
	CeilingStart float64 `default:"1000" placeholder:"N" help:"First rate that --find-ceiling tries, in messages (or calls, or chats) a second."`
}

// ceiling returns nil if no ceiling is to be found.
func (f ceilingFlags) ceiling(progress func(string, ...any)) *scenario.Ceiling {
	if !f.FindCeiling {
		return nil
	}
	return &scenario.Ceiling{Start: f.CeilingStart, Progress: progress}
}

// watch shows the run: live on a terminal, elsewhere as a line at each interval
// (every; 0 means five seconds). It also prints the command's log until it is
// stopped.
func (f resultFlags) watch(p *process, every time.Duration) *live.View {
	view := live.Start(p.ctx, live.Config{In: p.In, Out: p.Err, Getenv: p.Getenv, Quiet: f.Quiet, Every: every, Events: p.Getenv(runner.Watched) != ""})
	p.Err, p.log = view, slog.New(slog.NewTextHandler(view, nil))
	return view
}

// finish describes the machine, and writes the files and the table. It returns
// an error with an exit code if the result is invalid or missed a threshold.
func (f resultFlags) finish(p *process, result *bench.Result) error {
	result.Describe(p.ctx)
	result.Finish()
	result.Command = commandLine(p.Args)
	for _, t := range f.Threshold {
		result.Thresholds = append(result.Thresholds, t.Check(result.Rows))
	}
	path := f.Out
	if path == "" {
		path = result.DefaultPath()
	}
	if err := result.Write(path); err != nil {
		return err
	}
	if err := p.rerun.write(path); err != nil {
		return err
	}
	if err := report.Table(p.Out, result); err != nil {
		return err
	}
	fmt.Fprintln(p.Out, "result file:", filepath.ToSlash(path))
	if !result.Valid {
		return exit(ExitInvalid, "the result is not valid: see the failed checks above")
	}
	if slices.ContainsFunc(result.Thresholds, func(c bench.Check) bool { return !c.OK }) {
		return exit(ExitThreshold, "a threshold was missed: see above")
	}
	return nil
}

// isInvalid reports whether the benchmark ran, but its result is invalid or
// missed a threshold.
func isInvalid(err error) bool {
	var coded *exitError
	return errors.As(err, &coded) && (coded.code == ExitInvalid || coded.code == ExitThreshold)
}

// self returns the path of the program that also runs as the server under
// test. Such a server gets no database except the one in its arguments.
func (p *process) self() (string, error) {
	if p.Program != "" {
		return p.Program, nil
	}
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own program: %w", err)
	}
	return program, nil
}
