// Command tidewire is durable real-time messaging on PostgreSQL, and the
// workbench that measures it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tidewire/tidewire/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := cli.Run(ctx, cli.Env{Args: os.Args[1:], Getenv: os.Getenv, In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
