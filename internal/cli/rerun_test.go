package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/cli"
)

// TestBenchRun_Again runs a benchmark from the file that it wrote.
func TestBenchRun_Again(t *testing.T) {
	notShort(t)
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
	page := filepath.Join(dir, "page.html")
	if code, out, errOut := run(t, nil, "bench", "report", first, second, "-o", page); code != cli.ExitOK || !strings.Contains(out, "page.html (") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
	for format, want := range map[string]string{"--markdown": "| tidewire |", "--csv": "a.json,echo,true,tidewire,"} {
		if code, out, errOut := run(t, nil, "bench", "report", first, format); code != cli.ExitOK || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, no %q\n%s%s", format, code, want, out, errOut)
		}
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

// TestBenchRun_Refused: files of bench run and bench report that cannot be used.
func TestBenchRun_Refused(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	none := filepath.Join(t.TempDir(), "none", "none.toml")
	good := file(`{"schema": 1}`)
	all := []refusal{
		{"bench run " + none, cli.ExitUsage, "none.toml"},
		{"bench report " + none, cli.ExitUsage, "give the JSON file"},
		{"bench report", cli.ExitUsage, "file"},
		{"bench report " + file("hello"), cli.ExitUsage, "give the JSON file"},
		{"bench report " + file(`{"schema": 9}`), cli.ExitUsage, "schema is 9"},
		{"bench report " + good + " --csv --markdown", cli.ExitUsage, "markdown"},
		{"bench report " + good + " -o " + good, cli.ExitUsage, "choose another name"},
		{"bench report " + good + " -o " + none, cli.ExitUsage, "choose another place"},
	}
	for _, text := range []string{"", "{", "command = 'nobody'", "command = 'run'", "command = 'echo'\n[flags]\nspeed = 9"} {
		all = append(all, refusal{"bench run " + file(text), cli.ExitUsage, "tidewire: "})
	}
	refused(t, all)
}

func TestBenchList(t *testing.T) {
	t.Parallel()
	if code, out, _ := run(t, nil, "bench", "list"); code != cli.ExitOK || !strings.Contains(out, "pubsub") || !strings.Contains(out, "failover") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
