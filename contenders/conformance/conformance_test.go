package conformance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

const (
	// contendersVar names the servers to test.
	contendersVar = "TIDEWIRE_CONTENDERS"
	// asTidewire makes the test's own program behave as tidewire, so that
	// Tidewire runs with the race detector if the test does.
	asTidewire = "TIDEWIRE_CONFORMANCE_AS_TIDEWIRE"
)

func TestMain(m *testing.M) {
	if os.Getenv(asTidewire) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop)
		os.Exit(cli.Run(ctx, cli.Env{Args: os.Args[1:], Getenv: os.Getenv, In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
	os.Exit(m.Run())
}

// contender is a server to test.
type contender struct {
	name    string
	url     string   // of a running server, or
	command []string // to start one
	env     []string // in addition, for the command
}

func contenders() ([]contender, error) {
	list := os.Getenv(contendersVar)
	if list == "" {
		self, err := os.Executable()
		// The race detector sleeps for a second at a process's end by default.
		env := []string{asTidewire + "=1", "GORACE=atexit_sleep_ms=0"}
		return []contender{{name: "tidewire", command: []string{self, "serve", "--only", "chat"}, env: env}}, err
	}
	var all []contender
	for entry := range strings.SplitSeq(list, ",") {
		c, err := parseContender(entry)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func parseContender(entry string) (contender, error) {
	name, value, _ := strings.Cut(strings.TrimSpace(entry), "=")
	command := strings.Fields(value)
	switch {
	case name == "" || len(command) == 0:
		return contender{}, fmt.Errorf("%s has %q: want NAME=PROGRAM ARGS or NAME=ws://HOST:PORT/PATH", contendersVar, entry)
	case strings.HasPrefix(value, "ws://"):
		return contender{name: name, url: value}, nil
	case name == "tidewire" && len(command) == 1:
		command = append(command, "serve", "--only", "chat")
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		return contender{}, fmt.Errorf("%s: build %s first: %w", contendersVar, name, err)
	}
	return contender{name: name, command: command}, nil
}

// wireCase is a case that shares its server with other cases.
type wireCase struct {
	name string
	run  func(*testing.T, *server)
}

// processCase is a case with its own server settings, or that checks the end of the server.
type processCase struct {
	name string
	run  func(*testing.T, contender)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	all, err := contenders()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			shared := &server{url: c.url}
			if c.url == "" {
				shared = c.start(t, unlimited...)
				for _, p := range processCases {
					t.Run(p.name, func(t *testing.T) {
						t.Parallel()
						p.run(t, c)
					})
				}
			}
			for _, w := range wireCases {
				t.Run(w.name, func(t *testing.T) {
					t.Parallel()
					w.run(t, shared)
				})
			}
		})
	}
}
