package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/cli"
)

// TestBenchRun_Again runs a benchmark from the file that it wrote.
func TestBenchRun_Again(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	code, _, text := run(t, nil, "bench", "echo", "--clients", "3", "--messages", "300", "--repeat", "2", "--threshold", "lost==0", "--threshold", "p99<1m",
		"--out", first, "--quiet")
	if code != cli.ExitOK {
		t.Fatal(code, text)
	}
	code, _, text = run(t, nil, "bench", "run", filepath.Join(dir, "a.rerun.toml"), "--", "--out", second, "--quiet")
	if code != cli.ExitOK {
		t.Fatal(code, text)
	}
	a, errA := bench.Read(first)
	b, errB := bench.Read(second)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	for _, name := range []string{"clients", "messages", "repeat"} {
		if a.Params[name] != b.Params[name] {
			t.Errorf("%s was %v, and is %v", name, a.Params[name], b.Params[name])
		}
	}
	if len(b.Thresholds) != 2 || !b.Thresholds[0].OK || !b.Thresholds[1].OK || !strings.HasPrefix(b.Command, "tidewire bench echo --clients=3") {
		t.Errorf("thresholds %+v, command %q", b.Thresholds, b.Command)
	}
	code, out, _ := run(t, nil, "bench", "compare", first, second)
	if code != cli.ExitOK || !strings.Contains(out, "messages_per_second") {
		t.Errorf("compared with exit code %d:\n%s", code, out)
	}
	code, _, text = run(t, nil, "bench", "run", filepath.Join(dir, "a.rerun.toml"), "--", "--threshold", "p99<1us", "--clients", "2", "--out", second, "--quiet")
	if code != cli.ExitThreshold || !strings.Contains(text, "threshold") {
		t.Errorf("a threshold that cannot be kept: exit code %d, want %d\n%s", code, cli.ExitThreshold, text)
	}
	code, _, text = run(t, nil, "bench", "compare", first, second)
	if code != cli.ExitUsage || !strings.Contains(text, "parameter clients: 3, and 2") || !strings.Contains(text, "--allow-different") {
		t.Errorf("of other parameters: exit code %d\n%s", code, text)
	}
	if code, _, text = run(t, nil, "bench", "compare", "--allow-different", first, second); code != cli.ExitOK {
		t.Errorf("allowed all the same: exit code %d\n%s", code, text)
	}
}

// TestBenchRun_KeepsNoPassword, neither in the file nor in the result.
func TestBenchRun_KeepsNoPassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"--host", "127.0.0.1", "--port", "1", "--password", "hush"}, {"--database-url", "postgres://me:hush@127.0.0.1:1/x"}, {"--database-url=postgres://me:hush@127.0.0.1:1/x"},
	} {
		file := filepath.Join(dir, "q.toml")
		if err := os.WriteFile(file, []byte("command = 'queue'\n[flags]\nduration = '1s'\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, out, text := run(t, nil, append([]string{"bench", "run", file}, args...)...)
		if said := out + text; strings.Contains(said, "hush") || !strings.Contains(said, "tidewire bench queue --duration=1s") {
			t.Errorf("%q:\n%s", args, said)
		}
	}
}

func TestBenchRun_BadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "no toml": "{", "nobody": "command = 'nobody'", "itself": "command = 'run'", "bad flag": "command = 'echo'\n[flags]\nspeed = 9"} {
		file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, said := run(t, nil, "bench", "run", file); code != cli.ExitUsage || said == "" {
			t.Errorf("%s: exit code %d, want %d: %s", name, code, cli.ExitUsage, said)
		}
	}
	if code, _, said := run(t, nil, "bench", "run", filepath.Join(dir, "none.toml")); code != cli.ExitUsage || !strings.Contains(said, "none.toml") {
		t.Errorf("no file: exit code %d: %s", code, said)
	}
}

// TestBenchList names every scenario that bench all runs.
func TestBenchList(t *testing.T) {
	t.Parallel()
	code, out, _ := run(t, nil, "bench", "list")
	for _, name := range []string{"ingest", "queue", "pubsub", "events", "chat", "lanes", "echo", "failover", "cluster", "idle"} {
		if !slices.Contains(strings.Fields(out), name) {
			t.Errorf("%s is not listed", name)
		}
	}
	if code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if code, _, text := run(t, nil, "bench", "all", "--only", "storm"); code != cli.ExitUsage || !strings.Contains(text, "storm") {
		t.Errorf("of an unknown scenario: exit code %d: %s", code, text)
	}
}
