package cli_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadme_Program: the Go program of README.md compiles unchanged, does its job, and stops on a signal.
func TestReadme_Program(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(text), "```go\n")
	if !found {
		t.Fatal("README.md shows no program")
	}
	program, _, _ = strings.Cut(program, "```")
	cache := "../../.cache" // within the module, for the program's imports
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(cache, "readme-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), binary)
	run.Env = append(os.Environ(), "DATABASE_URL="+migrated(t).URL)
	run.Stderr = os.Stderr
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "sent to Ann\n" {
		t.Errorf("%q, %v: want that it was sent", line, err)
	}
	if err := run.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(lines); string(rest) != "stopped: <nil> <nil>\n" {
		t.Errorf("%q, %v: want that it stopped", rest, err)
	}
	if err := run.Wait(); err != nil {
		t.Error(err)
	}
}
