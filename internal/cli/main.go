package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// Main runs the process as the tidewire program and returns its exit code. The
// first SIGINT, SIGTERM or SIGHUP, which a terminal that is closed sends, stops it in
// good order; a second one of the first two ends it at once, and a private
// PostgreSQL with it.
func Main() int {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signals = append(signals, syscall.SIGHUP)
	}
	received := make(chan os.Signal, 4)
	signal.Notify(received, signals...)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		<-received
		stop()
		signal.Ignore(syscall.SIGHUP) // the shell and the system may both send it
		for sig := range received {
			if sig != syscall.SIGHUP {
				endAtOnce(sig.(syscall.Signal))
			}
		}
	}()
	return Run(ctx, Env{Args: os.Args[1:], Getenv: os.Getenv, In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
}

// endAtOnce ends the process by the signal, as if nobody had caught it, but leaves
// no PostgreSQL running.
func endAtOnce(sig syscall.Signal) {
	embedpg.EndOwned() // nobody reads its error any more
	signal.Reset(sig)
	syscall.Kill(os.Getpid(), sig)
}
