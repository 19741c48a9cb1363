package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tidewire/tidewire/bench"
	"github.com/tidewire/tidewire/bench/report"
)

// benchCmd groups the scenarios.
type benchCmd struct {
	Ingest benchIngestCmd `cmd:"" help:"WebSocket to PostgreSQL: which way of writing pays."`
	Chat   benchChatCmd   `cmd:"" help:"Rooms: many members, every chat to all of them."`
	Lanes  benchLanesCmd  `cmd:"" help:"Requests on a connection that is flooded."`
	Queue  benchQueueCmd  `cmd:"" help:"Competing consumers on PostgreSQL, or with --mode pubsub groups."`
	Pubsub benchPubsubCmd `cmd:"" help:"Publish and subscribe on PostgreSQL: every group reads everything."`
	Events benchEventsCmd `cmd:"" help:"The event store: append, conditional append, queries and projections."`
	Echo   benchEchoCmd   `cmd:"" help:"Round trips of small messages."`
	Idle   benchIdleCmd   `cmd:"" help:"Memory of connections that do nothing."`
	Part   benchPartCmd   `cmd:"" hidden:"" help:"A process of bench queue; it is told what to do on its standard input."`
}

// resultFlags say where a result goes.
type resultFlags struct {
	Out   string `placeholder:"FILE" help:"Result file. Default: a new one under results/."`
	Quiet bool   `help:"No progress."`
}

// progress writes a line each time something has gone on, unless --quiet.
func (f resultFlags) progress(p *process) func(string, ...any) {
	if f.Quiet {
		return func(string, ...any) {}
	}
	return func(format string, args ...any) { fmt.Fprintf(p.Err, format+"\n", args...) }
}

// finish describes the machine, writes the file and the table, and turns an
// invalid result into its exit code.
func (f resultFlags) finish(p *process, result *bench.Result) error {
	result.Describe(p.ctx)
	result.Finish()
	path := f.Out
	if path == "" {
		path = result.DefaultPath()
	}
	if err := result.Write(path); err != nil {
		return err
	}
	if err := report.Table(p.Out, result); err != nil {
		return err
	}
	fmt.Fprintln(p.Out, "result file:", filepath.ToSlash(path))
	if !result.Valid {
		return exit(ExitInvalid, "the result is not valid: see the failed checks above")
	}
	return nil
}

// isInvalid reports whether a benchmark ran, and found its result not valid.
func isInvalid(err error) bool {
	var coded *exitError
	return errors.As(err, &coded) && coded.code == ExitInvalid
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
