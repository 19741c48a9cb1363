package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tidewire/tidewire/bench"
	"github.com/tidewire/tidewire/bench/report"
	"github.com/tidewire/tidewire/bench/scenario"
	"github.com/tidewire/tidewire/internal/live"
)

// benchCmd groups the scenarios.
type benchCmd struct {
	Ingest  benchIngestCmd  `cmd:"" help:"WebSocket to PostgreSQL: which way of writing pays."`
	Chat    benchChatCmd    `cmd:"" help:"Rooms: many members, every chat to all of them."`
	Lanes   benchLanesCmd   `cmd:"" help:"Requests on a connection that is flooded."`
	Queue   benchQueueCmd   `cmd:"" help:"Competing consumers on PostgreSQL, or with --mode pubsub groups."`
	Pubsub  benchPubsubCmd  `cmd:"" help:"Publish and subscribe on PostgreSQL: every group reads everything."`
	Events  benchEventsCmd  `cmd:"" help:"The event store: append, conditional append, queries and projections."`
	Echo    benchEchoCmd    `cmd:"" help:"Round trips of small messages."`
	Idle    benchIdleCmd    `cmd:"" help:"Memory of connections that do nothing."`
	All     benchAllCmd     `cmd:"" help:"Every scenario, and one report of all."`
	List    benchListCmd    `cmd:"" help:"What there is to measure."`
	Compare benchCompareCmd `cmd:"" help:"Two results: what changed, and whether that may be chance."`
	Report  benchReportCmd  `cmd:"" help:"Result files as one page, Markdown or CSV."`
	Run     benchRunCmd     `cmd:"" help:"A benchmark again, from the .rerun.toml beside its result."`
	Part    benchPartCmd    `cmd:"" hidden:"" help:"A process of bench queue; it is told what to do on its standard input."`
}

// resultFlags say where a result goes.
type resultFlags struct {
	Out       string            `placeholder:"FILE" help:"Result file. Default: a new one under results/."`
	Threshold []bench.Threshold `sep:"none" placeholder:"BOUND" help:"A bound for every row, such as 'p99<25ms' or 'lost==0'; may be given several times. Exit code 8 if one is missed."`
	Quick     bool              `help:"Small, and once: tidewire bench list says what it stands for."`
	Quiet     bool              `help:"No progress."`
}

// ceilingFlags look for the highest rate.
type ceilingFlags struct {
	FindCeiling  bool    `help:"Raise the offered rate until it is not kept, find the knee, and run at 70 % of it: a row for each rate, each as long as --duration or its like says (10s is good)."`
	CeilingStart float64 `default:"1000" placeholder:"N" help:"The rate to begin with, a second."`
}

// ceiling is nil if none is looked for.
func (f ceilingFlags) ceiling(progress func(string, ...any)) *scenario.Ceiling {
	if !f.FindCeiling {
		return nil
	}
	return &scenario.Ceiling{Start: f.CeilingStart, Progress: progress}
}

// watch shows the run on a terminal, and as a line every so often elsewhere; 0 is
// five seconds. What the command logs goes through it until it is stopped.
func (f resultFlags) watch(p *process, every time.Duration) *live.View {
	view := live.Start(p.ctx, live.Config{In: p.In, Out: p.Err, Getenv: p.Getenv, Quiet: f.Quiet, Every: every})
	p.Err, p.log = view, slog.New(slog.NewTextHandler(view, nil))
	return view
}

// finish describes the machine, writes the files and the table, and turns an
// invalid result, or a bound that was missed, into its exit code.
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

// isInvalid reports whether a benchmark ran, and found its result not valid or
// beyond a threshold.
func isInvalid(err error) bool {
	var coded *exitError
	return errors.As(err, &coded) && (coded.code == ExitInvalid || coded.code == ExitThreshold)
}

// self is the program to start servers with: this one. A server under test
// gets no database but the one it is told.
func self() (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own program: %w", err)
	}
	return program, nil
}
