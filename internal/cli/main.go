package cli

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// Main runs the tidewire program and returns its exit code. The first SIGINT, SIGTERM
// or SIGHUP (sent when a terminal is closed) starts a graceful stop. A second SIGINT
// or SIGTERM ends the process at once, and its private PostgreSQL too.
func Main() int {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP)
	}
	received := make(chan os.Signal, 4)
	signal.Notify(received, signals...)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var atOnce atomic.Bool
	go func() {
		<-received
		stop()
		signal.Ignore(syscall.SIGHUP) // the shell and the system may both send it
		for sig := range received {
			if sig != syscall.SIGHUP {
				atOnce.Store(true)
				endAtOnce(sig.(syscall.Signal))
			}
		}
	}()
	code := Run(ctx, Env{Args: os.Args[1:], Getenv: os.Getenv, In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	if atOnce.Load() {
		select {} // Run has only returned because its PostgreSQL was ended: the signal follows
	}
	return code
}

// endAtOnce ends the process by the signal, as if it were not caught, but stops
// the private PostgreSQL first.
func endAtOnce(sig syscall.Signal) {
	embedpg.EndOwned() // nobody can read its error any more
	signal.Reset(sig)
	syscall.Kill(os.Getpid(), sig)
}
