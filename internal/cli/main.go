package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Main runs the process as the tidewire program and returns its exit code. The
// first SIGINT, SIGTERM or SIGHUP, which a terminal that is closed sends, stops it in
// good order; a second one of the first two ends it at once.
func Main() int {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP) // the shell and the system may both send it
		stop()
	})
	return Run(ctx, Env{Args: os.Args[1:], Getenv: os.Getenv, In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
}
