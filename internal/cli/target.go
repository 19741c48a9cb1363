package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tidewire/tidewire/bench/scenario"
)

// targetDir is where servers to be measured are built.
type targetDir string

func newTargetDir() (targetDir, error) {
	dir, err := os.MkdirTemp("", "tidewire-target-")
	return targetDir(dir), err
}

func (d targetDir) remove() { os.RemoveAll(string(d)) }

// targets resolves the values of --target to servers of an endpoint.
func (d targetDir) targets(p *process, endpoint string, names []string) ([]scenario.Target, error) {
	var targets []scenario.Target
	for _, name := range names {
		t, err := d.target(p, endpoint, name)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func (d targetDir) target(p *process, endpoint, name string) (scenario.Target, error) {
	if label, url, ok := strings.Cut(name, "="); ok {
		if !strings.HasPrefix(url, "ws://") {
			return scenario.Target{}, exit(ExitUsage, "--target %s: want NAME=ws://HOST:PORT/PATH", name)
		}
		return scenario.Target{Name: label, Description: url, URL: url}, nil
	}
	t := scenario.Target{Name: name}
	var args []string
	var err error
	switch {
	case name == "tidewire":
		t.Own = true
		t.Description = "serve --only " + endpoint
		args = []string{"serve", "--only", endpoint, "--port", "0"}
		t.Program, err = self()
	case name == "gorilla" && endpoint == "echo":
		t.Description = "net/http + gorilla/websocket"
		args = []string{"--port", "0"}
		t.Program, err = d.buildGorilla(p)
	default:
		known := "tidewire"
		if endpoint == "echo" {
			known += ", gorilla"
		}
		err = exit(ExitUsage, "--target %s: want %s or NAME=ws://HOST:PORT/PATH", name, known)
	}
	t.Start = func(ctx context.Context) (*scenario.ServerProcess, error) {
		return scenario.StartServer(ctx, nil, nil, t.Program, args...)
	}
	return t, err
}

// buildGorilla compiles the contender, which has a module of its own.
func (d targetDir) buildGorilla(p *process) (string, error) {
	const source = "contenders/go-gorilla-echo"
	if _, err := os.Stat(filepath.Join(source, "go.mod")); err != nil {
		return "", exit(ExitUsage, "target gorilla is built from %s: run this in a checkout of Tidewire", source)
	}
	program := filepath.Join(string(d), "gorilla")
	build := exec.CommandContext(p.ctx, "go", "build", "-o", program, ".")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", source, err, out)
	}
	return program, nil
}
