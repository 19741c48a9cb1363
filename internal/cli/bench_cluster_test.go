package cli_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/fault"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestBenchCluster: nodes and their network fail under load, and every promise is kept. It is a fault test of the whole cluster: what was sent,
// acknowledged and delivered is recorded and compared. With more seeds there are more faults, which last longer. The machine may be busy, so
// the times after a repair have wide bounds.
func TestBenchCluster(t *testing.T) {
	t.Parallel()
	count, kinds, longest := 3, "kill,freeze", "2s"
	if fault.Available() == nil {
		kinds += ",cut"
	}
	if pgtest.Seeds() > 1 {
		count, longest = 6, "15s"
		if fault.Available() == nil {
			kinds += ",cut-one-way,slow,cut-database"
		}
	}
	for seed := range pgtest.Seeds() {
		args := append([]string{
			"cluster", "--faults", fmt.Sprint(count), "--fault", kinds, "--longest", longest, "--seed", fmt.Sprint(seed), "--told-within", "30s", "--present-within", "30s",
		}, privateFlags()...)
		r, out := benchmark(t, cli.ExitOK, args...)
		all := r.Row("all")
		if !r.Valid || all == nil {
			t.Fatalf("seed %d: %+v\n%s", seed, r.Rows, out)
		}
		if all.Metrics["faults"] != float64(count) || all.Metrics["acknowledged"] < 100 || all.Metrics["delivered"] < 100 {
			t.Errorf("seed %d: %v: there was no load", seed, all.Metrics)
		}
	}
}

// TestBenchCluster_Steady: what is published at a steady rate is delivered by one node and by two.
func TestBenchCluster_Steady(t *testing.T) {
	t.Parallel()
	args := append([]string{"cluster", "--steady", "--nodes", "1,2", "--rate", "500", "--subscribers", "3", "--duration", "500ms", "--repeat", "1"}, privateFlags()...)
	r, out := benchmark(t, cli.ExitOK, args...)
	for _, name := range []string{"nodes 1", "nodes 2"} {
		row := r.Row(name)
		if row == nil || row.Metrics["sent"] == 0 || row.Metrics["delivered"] != 3*row.Metrics["sent"] || row.Metrics["server_cores"] == 0 || row.Metrics["postgres_cores"] == 0 {
			t.Errorf("%s: %+v\n%s", name, row, out)
		}
	}
}

// TestBenchCluster_BadFlags: invalid flags are rejected before anything starts.
func TestBenchCluster_BadFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want int
		says string
		args []string
	}{
		{cli.ExitUsage, "--faults is 0", []string{"--faults", "0"}},
		{cli.ExitUsage, "flood", []string{"--fault", "flood"}},
		{cli.ExitUsage, "--pace is 0s", []string{"--pace", "0s"}},
		{cli.ExitUsage, "--longest is 2m", []string{"--longest", "2m"}},
		{cli.ExitUsage, "--nodes", []string{"--nodes", "1"}},
		{cli.ExitUsage, "--nodes", []string{"--nodes", "2,3"}},
		{cli.ExitUsage, "--repeat", []string{"--steady", "--repeat", "0"}},
		{cli.ExitDataDir, "exists already", []string{"--data-dir", t.TempDir()}},
	} {
		code, _, text := run(t, nil, append([]string{"bench", "cluster", "--out", filepath.Join(t.TempDir(), "r.json")}, c.args...)...)
		if code != c.want || !strings.Contains(text, c.says) {
			t.Errorf("%v: exit code %d, want %d, and %q in %s", c.args, code, c.want, c.says, text)
		}
	}
}
