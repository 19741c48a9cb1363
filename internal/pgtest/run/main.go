// Run starts the PostgreSQL of a test run and runs a command whose tests use it:
//
//	go run ./internal/pgtest/run go test ./stream ./queue
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/tidewire/tidewire/internal/pgtest"
)

func main() {
	// The command gets the signals of the terminal too. PostgreSQL stops after it.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	err := pgtest.Serve(func(url string) error {
		cmd := exec.Command(os.Args[1], os.Args[2:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), pgtest.ServerVariable+"="+url)
		return cmd.Run()
	})
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(max(exit.ExitCode(), 1))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}
