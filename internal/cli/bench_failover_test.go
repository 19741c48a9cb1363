package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestBenchFailover: PostgreSQL fails over under load, and every promise is kept. It is a fault test of the whole
// server: what was sent, acknowledged and delivered is recorded and compared. With more seeds there are more
// promotions, and asynchronous replication too.
func TestBenchFailover(t *testing.T) {
	t.Parallel()
	promotions, faults, replications := 1, "cut-off", []string{"quorum"}
	if pgtest.Seeds() > 1 {
		promotions, faults, replications = 2, "cut-off,freeze", []string{"quorum", "asynchronous"}
	}
	for seed := range pgtest.Seeds() {
		for _, replication := range replications {
			args := append([]string{"failover", "--replication", replication, "--promotions", fmt.Sprint(promotions), "--fault", faults, "--seed", fmt.Sprint(seed)}, privateFlags()...)
			r, out := benchmark(t, cli.ExitOK, args...)
			all := r.Row(replication + ", all")
			if !r.Valid || all == nil {
				t.Fatalf("seed %d: %+v\n%s", seed, r.Rows, out)
			}
			if all.Metrics["promotions"] != float64(promotions) || all.Metrics["acknowledged"] < 100 || all.Metrics["delivered"] < 100 {
				t.Errorf("seed %d, %s: %v: there was no load", seed, replication, all.Metrics)
			}
			if lost := all.Metrics["lost"]; replication == "asynchronous" && lost == 0 {
				t.Error("a standby that was cut off had everything")
			}
		}
	}
}

// privateFlags ask for the PostgreSQL that the tests run with.
func privateFlags() (flags []string) {
	kind, version, _ := strings.Cut(os.Getenv("TIDEWIRE_TEST_PG"), ":")
	if kind != "" && !filepath.IsAbs(kind) {
		flags = append(flags, "--postgres", kind)
	}
	if version != "" {
		flags = append(flags, "--pg-version", version)
	}
	return flags
}

// TestBenchFailover_BadFlags: invalid flags are rejected before anything starts.
func TestBenchFailover_BadFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want int
		says string
		args []string
	}{
		{cli.ExitUsage, "--promotions is 0", []string{"--promotions", "0"}},
		{cli.ExitUsage, "flood", []string{"--fault", "flood"}},
		{cli.ExitUsage, "--pace is 0s", []string{"--pace", "0s"}},
		{cli.ExitUsage, "replication", []string{"--replication", "none"}},
		{cli.ExitDataDir, "exists already", []string{"--data-dir", t.TempDir()}},
	} {
		code, _, text := run(t, nil, append([]string{"bench", "failover", "--out", filepath.Join(t.TempDir(), "r.json")}, c.args...)...)
		if code != c.want || !strings.Contains(text, c.says) {
			t.Errorf("%v: exit code %d, want %d, and %q in %s", c.args, code, c.want, c.says, text)
		}
	}
}
