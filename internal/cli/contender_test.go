package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/testkit"
)

// try makes a run of the chat scenarios as short as possible.
var try = []string{"--time-scale", "0.03", "--client-scale", "0.1"}

// checkout is a source tree, and a folder that is the whole PATH. Commands run
// there as processes, since a working directory belongs to a process.
type checkout struct {
	root, programs string
	env            []string
}

// newCheckout returns one with contenders of these names, and no programs.
func newCheckout(t *testing.T, names ...string) *checkout {
	t.Helper()
	root, programs := t.TempDir(), t.TempDir()
	for _, name := range names {
		dir := filepath.Join(root, "contenders", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "source"), "what it is made of", 0o644)
	}
	return &checkout{root, programs, []string{"PATH=" + programs}}
}

// run runs a command in the tree.
func (c *checkout) run(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	// In a folder of its own: the contenders of the checkout that it is in would be found.
	program := filepath.Join(t.TempDir(), "tidewire")
	if err := os.Link(tidewire(t), program); err != nil {
		copyFile(t, program, tidewire(t))
	}
	cmd := exec.Command(program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.root, append(os.Environ(), c.env...), &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

// benchmark is run for a benchmark that must succeed. It returns the result.
func (c *checkout) benchmark(t *testing.T, args ...string) (*bench.Result, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "result.json")
	code, out, errOut := c.run(t, append(append([]string{"bench"}, args...), "--out", file)...)
	if code != cli.ExitOK {
		t.Fatalf("%v: exit code %d\n%s%s", args, code, out, errOut)
	}
	r := readResult(t, file)
	return r, out
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// TestContender_NotBuilt: what a contender lacks, and why its build fails, is in the result, and the others are measured.
func TestContender_NotBuilt(t *testing.T) {
	notShort(t)
	t.Parallel()
	c := newCheckout(t, "go-gorilla", "rust-tungstenite", "zig-std", "go-gorilla-echo")
	write(t, filepath.Join(c.programs, "cargo"), "#!/bin/sh\necho 'error: what is this?' >&2\necho 'could not compile' >&2\nexit 1\n", 0o755)
	r, out := c.benchmark(t, append([]string{"chat", "steady", "--profile", "b"}, try...)...)
	for name, note := range map[string]string{
		"tidewire": "", "go-gorilla": "not built: needs go", "rust-tungstenite": "not built: cargo build failed: could not compile", "zig-std": "not built: needs python3",
	} {
		row := r.Row(name)
		if row == nil || row.Note != note || (len(row.Metrics) > 0) != (note == "") || !strings.Contains(out, note) {
			t.Errorf("%s: %+v, want note %q, in the table too:\n%s", name, row, note, out)
		}
	}
	file := filepath.Join(t.TempDir(), "r.json")
	code, _, errOut := c.run(t, "bench", "chat", "steady", "--target", "go-gorilla,zig-std", "--out", file)
	if code != cli.ExitFailure || !strings.Contains(errOut, "needs go") || !strings.Contains(errOut, "needs python3") {
		t.Errorf("nothing to measure: exit code %d\n%s", code, errOut)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("nothing was measured, and there is a result")
	}
	code, _, errOut = c.run(t, "bench", "echo", "--target", "gorilla", "--out", file)
	if code != cli.ExitFailure || !strings.Contains(errOut, "target gorilla: not built: needs go") {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
	outside := &checkout{root: t.TempDir()}
	code, _, errOut = outside.run(t, "bench", "chat", "steady", "--target", "tidewire,zig-std", "--out", file)
	if code != cli.ExitUsage || !strings.Contains(errOut, "checkout of Tidewire") || !strings.Contains(errOut, "zig-std=ws://") {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
}

// TestContender_BuiltAndCompared uses a fake cargo that builds Tidewire, in the
// end with rate limits that drop half of the chats.
func TestContender_BuiltAndCompared(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	c := newCheckout(t, "rust-axum", "rust-tungstenite")
	builds := filepath.Join(c.root, "builds")
	write(t, filepath.Join(c.programs, "cargo"), fmt.Sprintf(`#!/bin/sh
PATH=/bin:/usr/bin
name=$(basename "$PWD")
echo "$name $*" >>'%s'
mkdir -p target/release
printf '#!/bin/sh\nexec "%s" serve --only chat $LIMITS "$@"\n' >target/release/$name
chmod +x target/release/$name
`, builds, tidewire(t)), 0o755)
	file := filepath.Join(t.TempDir(), "r.json")
	code, out, errOut := c.run(t, "bench", "chat", "steady", "burst", "saturation", "--target", "rust-tungstenite,rust-axum",
		"--time-scale", "0.01", "--client-scale", "0.1", "--out", file)
	if code != cli.ExitOK {
		t.Fatalf("exit code %d\n%s%s", code, out, errOut)
	}
	if text, err := os.ReadFile(builds); err != nil || string(text) != "rust-tungstenite build --release --locked --target-dir target\nrust-axum build --release --locked --target-dir target\n" {
		t.Errorf("built: %s, %v", text, err)
	}
	read := func(name string) *bench.Result {
		t.Helper()
		return readResult(t, strings.TrimSuffix(file, ".json")+"-"+name+".json")
	}
	profiles := read("profiles")
	cost := profiles.Row("Rust: cost of the framework")
	if cost == nil || !profiles.Valid || profiles.Row("Rust minimal: rust-tungstenite").Metrics["saturation_deliveries_per_second"] == 0 || !strings.Contains(out, "cost of the framework") {
		t.Errorf("%+v", profiles.Rows)
	}

	again := func(want int, scenario string) *bench.Row {
		t.Helper()
		r, _ := c.benchmark(t, append([]string{"chat", scenario, "--target", "rust-axum"}, try...)...)
		text, err := os.ReadFile(builds)
		if got := strings.Count(string(text), "rust-axum"); err != nil || got != want {
			t.Errorf("built %d times, want %d", got, want)
		}
		return r.Row("rust-axum")
	}
	again(1, "churn")
	rerun, err := os.ReadFile(strings.TrimSuffix(file, ".json") + "-steady.rerun.toml")
	if err != nil || !strings.Contains(string(rerun), "args = ['steady', 'burst', 'saturation']") {
		t.Errorf("%v, %s, want to run all three again", err, rerun)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(c.root, "contenders", "rust-axum", "source"), later, later); err != nil {
		t.Fatal(err)
	}
	c.env = append(c.env, "LIMITS=--rate-limit 0.001 --rate-burst 1")
	m := again(2, "steady").Metrics // which is valid: another server's losses are results
	if m["rate_limited"] == 0 || m["accepted"]+m["rate_limited"] != m["sent"] || m["offered"] != m["sent"] ||
		m["lost"] == 0 || m["lost"] > m["expected"] || m["server_peak_rss_bytes"] == 0 || m["binary_bytes"] == 0 {
		t.Errorf("%v", m)
	}
}
