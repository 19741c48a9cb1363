package cli_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tidewire/tidewire/internal/testkit"
)

// TestServe_Bench: a client starts the quick form of a scenario, and its result is in the folder.
func TestServe_Bench(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "results")
	s := serve(t, "--database-url", migrated(t).URL, "--results", dir)
	if status, answer := request(t, "POST", s.Addr, "/v1/bench/run", `{"scenario":"echo"}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	testkit.Eventually(t, "the benchmark is done", func() bool {
		_, answer := request(t, "GET", s.Addr, "/v1/bench/run", "")
		if !strings.Contains(answer, `"state":"running"`) && !strings.Contains(answer, `"state":"done"`) {
			t.Fatal(answer)
		}
		return strings.Contains(answer, `"state":"done"`)
	})
	if all, err := filepath.Glob(filepath.Join(dir, "echo-*.json")); err != nil || len(all) != 1 {
		t.Errorf("%q %v", all, err)
	}
	if _, answer := request(t, "GET", s.Addr, "/v1/bench", ""); !strings.Contains(answer, `"scenario":"echo"`) || !strings.Contains(answer, `"starts":true`) {
		t.Error(answer)
	}
}

// TestServe_BenchEndsWithTheServer: also if the server is killed: then nobody is left to stop the benchmark.
func TestServe_BenchEndsWithTheServer(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"stopped": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "results")
			s := serve(t, "--database-url", migrated(t).URL, "--results", dir)
			if status, answer := request(t, "POST", s.Addr, "/v1/bench/run", `{"scenario":"idle"}`); status != http.StatusOK {
				t.Fatalf("%d %s", status, answer)
			}
			testkit.Eventually(t, "the benchmark runs", func() bool { return runsBelow(t, dir) })
			s.Cmd.Process.Signal(sig)
			<-s.Done
			testkit.Eventually(t, "the benchmark does not run any more", func() bool { return !runsBelow(t, dir) })
		})
	}
}

// runsBelow reports whether a benchmark runs that has a folder in its arguments.
func runsBelow(t *testing.T, dir string) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(all) == 0 {
		t.Skip("no /proc: who runs cannot be seen")
	}
	return slices.ContainsFunc(all, func(path string) bool {
		line, _ := os.ReadFile(path) // it may have ended
		return strings.Contains(string(line), "\x00bench\x00") && strings.Contains(string(line), dir)
	})
}

// TestServe_BenchOfOthers: in open mode, a server that others reach starts no benchmarks.
func TestServe_BenchOfOthers(t *testing.T) {
	t.Parallel()
	s := serve(t, "--database-url", migrated(t).URL, "--host", "0.0.0.0", "--open", "--results", t.TempDir())
	_, port, _ := strings.Cut(s.Addr, ":")
	if status, answer := request(t, "POST", "127.0.0.1:"+port, "/v1/bench/run", `{"scenario":"echo"}`); status != http.StatusNotFound || !strings.Contains(answer, "not_served") {
		t.Errorf("%d %s", status, answer)
	}
}
