package conformance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tidewire/tidewire/internal/testbin"
)

// library is a client library with its runner.
type library struct {
	name  string
	needs string // what has to be there, below clients/
	make  string // says how it gets there
	run   func() (*exec.Cmd, error)
}

var libraries = []library{
	{"ts", "ts/dist/index.js", "make clients-ready", func() (*exec.Cmd, error) {
		return in("ts", "node", "conformance/runner.js"), nil
	}},
	{"python", "python/.venv/bin/python", "make clients-ready", func() (*exec.Cmd, error) {
		return in("python", ".venv/bin/python", "tests/conformance_runner.py"), nil
	}},
	{"go", "go/go.mod", "git checkout clients/go", func() (*exec.Cmd, error) {
		path, err := testbin.Build("clients/go", "./conformance")
		return in("go", path), err
	}},
}

// in returns a command in a folder below clients/. A program that is a path begins there, too.
func in(folder, program string, args ...string) *exec.Cmd {
	dir, _ := filepath.Abs(filepath.Join("..", folder))
	if filepath.Base(program) != program && !filepath.IsAbs(program) {
		program = filepath.Join(dir, program)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	return cmd
}

// require skips the test if the library is not built; CI fails.
func (l library) require(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("..", l.needs)); err == nil {
		return
	}
	text := fmt.Sprintf("the client for %s is not built: %s", l.name, l.make)
	if os.Getenv("CI") != "" {
		t.Fatal(text)
	}
	t.Skip(text)
}
