package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/bench/scenario"
)

// targets resolves the values of --target to servers of an endpoint, and builds
// missing programs. A server that cannot be built becomes a target that carries
// the reason. with is the certificate of Tidewire.
func targets(p *process, endpoint string, names []string, flags resultFlags, with *certified) ([]scenario.Target, error) {
	progress := p.Err
	if flags.Quiet {
		progress = io.Discard
	}
	var all []scenario.Target
	for _, name := range names {
		if err := known(endpoint, name); err != nil {
			return nil, err
		}
		if with.config != nil && name != "tidewire" {
			return nil, exit(ExitUsage, "--tls measures Tidewire alone: leave out --target %s, or --tls; a running server with TLS is NAME=wss://HOST:PORT/PATH", name)
		}
	}
	for _, name := range names {
		t, err := target(p, endpoint, name, progress, with)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// builtTargets is targets for a benchmark that needs all of its targets: it fails if one cannot be
// built.
func builtTargets(p *process, endpoint string, names []string, flags resultFlags, with *certified) ([]scenario.Target, error) {
	all, err := targets(p, endpoint, names, flags, with)
	for _, t := range all {
		if t.Missing != "" {
			err = errors.Join(err, exit(ExitFailure, "target %s: %s", t.Name, t.Missing))
		}
	}
	return all, err
}

// known rejects an unknown value of --target before anything is built.
func known(endpoint, name string) error {
	if _, url, ok := strings.Cut(name, "="); ok {
		if !strings.HasPrefix(url, "ws://") && !strings.HasPrefix(url, "wss://") {
			return exit(ExitUsage, "--target %s: want NAME=ws://HOST:PORT/PATH", name)
		}
		return nil
	}
	if name == "tidewire" {
		return nil
	}
	c, ok := findContender(endpoint, name)
	if !ok {
		return exit(ExitUsage, "--target %s: want %s or NAME=ws://HOST:PORT/PATH", name, strings.Join(targetNames(endpoint, ""), ", "))
	}
	_, err := c.source()
	return err
}

// targetNames returns the names of Tidewire and of the contenders with a profile.
func targetNames(endpoint, profile string) []string {
	names := []string{"tidewire"}
	for _, c := range contendersOf(endpoint, profile) {
		names = append(names, c.name)
	}
	return names
}

func target(p *process, endpoint, name string, progress io.Writer, with *certified) (scenario.Target, error) {
	if label, url, ok := strings.Cut(name, "="); ok {
		return scenario.Target{Name: label, Description: url, URL: url, Labels: labels(endpoint, label)}, nil
	}
	t := scenario.Target{Name: name, Labels: labels(endpoint, name)}
	args := []string{"--port", "0"}
	var program string
	var err error
	if c, ok := findContender(endpoint, name); ok {
		t.Description = c.made
		var dir string
		if dir, err = c.source(); err == nil {
			program, t.Missing, err = c.build(p, dir, progress)
		}
	} else {
		t.Own = true
		t.Description = "serve --only " + endpoint
		args = slices.Concat([]string{"serve", "--only", endpoint}, args, with.args)
		t.TLS = with.config
		program, err = p.self()
	}
	if err != nil || t.Missing != "" {
		return t, err
	}
	t.BinaryBytes = strippedSize(p.ctx, program)
	t.Start = func(ctx context.Context) (*scenario.ServerProcess, error) {
		return scenario.StartServer(ctx, nil, nil, program, args...)
	}
	return t, nil
}

// strippedSize returns the size of a program without symbols and debug
// information. If no strip tool can process it, it returns the size of the file;
// 0 if there is no file.
func strippedSize(ctx context.Context, program string) int64 {
	if dir, err := os.MkdirTemp("", "tidewire-strip-"); err == nil {
		defer os.RemoveAll(dir)
		stripped := filepath.Join(dir, "program")
		if exec.CommandContext(ctx, "strip", "-o", stripped, program).Run() == nil {
			program = stripped
		}
	}
	info, err := os.Stat(program)
	if err != nil {
		return 0
	}
	return info.Size()
}
