package cli_test

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/cli"
)

func TestBenchEvents_EveryOperation(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	r, out := loaded(t, "events", "--database-url", db.URL,
		"--datasets", "tiny", "--concurrency", "2", "--batch", "1,3", "--conflict-events", "1,10",
		"--warm-up", "20ms", "--duration", "250ms")
	for _, name := range []string{
		"append/tiny/c2/x1", "append/tiny/c2/x3", "appendif/tiny/c2/x1", "appendif-conflict/tiny/c2/x1/k10", "appendif-websocket/tiny/c2/x3",
		"query/tiny/c2", "querystream/tiny/c2", "project/tiny/c2", "projectstream/tiny/c2",
	} {
		row := r.Row(name)
		if row == nil {
			t.Errorf("no row %s in %v", name, names(r))
			continue
		}
		if row.Metrics["calls_per_second"] == 0 {
			t.Logf("%s: no call has ended in time", name)
			continue
		}
		wantPositive(t, row, "calls_per_second", "latency_p99_ms", "bytes_per_call", "allocs_per_call")
	}
	for name, want := range map[string]float64{"projectionlimits/tiny/c5": 1, "projectionlimits/tiny/c8": 0.625, "projectionlimits/tiny/c10": 0.5} {
		m := r.Row(name).Metrics
		if m["calls_per_second"] == 0 {
			t.Logf("%s: no round has ended in time", name)
			continue
		}
		if m["success_rate"] < want-0.02 || m["success_rate"] > want+0.02 || m["success_rate"]+m["limit_exceeded_rate"] != 1 {
			t.Errorf("%s: success %v and refused %v, want %v", name, m["success_rate"], m["limit_exceeded_rate"], want)
		}
	}
	if strings.Count(out, "calls/s") < 8 {
		t.Errorf("want a table for each operation: %s", out)
	}
}

// TestBenchEvents_Streams measures several event stores, and leaves none.
func TestBenchEvents_Streams(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	r, _ := loaded(t, "events", "--database-url", db.URL, "--streams", "3",
		"--datasets", "tiny", "--concurrency", "6", "--batch", "1", "--warm-up", "20ms", "--duration", "150ms")
	for _, name := range []string{"append/tiny/c6/x1", "appendif/tiny/c6/x1"} {
		if r.Row(name) == nil {
			t.Errorf("no row %s in %v", name, names(r))
		}
	}
	if len(names(r)) != 2 {
		t.Errorf("rows %v, want two", names(r))
	}
	if n := rows(t, db.URL, `SELECT count(*) FROM tidewire.event_store`); n != 0 {
		t.Errorf("%d event stores are left", n)
	}
}

func TestBenchEvents_ComparedDatabase(t *testing.T) {
	t.Parallel()
	db, other := migrated(t), migrated(t)
	r, out := loaded(t, "events", "--database-url", db.URL, "--compare-database", other.URL,
		"--datasets", "tiny", "--concurrency", "2", "--batch", "1", "--ops", "append,query", "--warm-up", "20ms", "--duration", "150ms")
	for _, name := range []string{"append/tiny/c2/x1", "query/tiny/c2"} {
		row := r.Row(name)
		if row == nil {
			t.Fatalf("no row %s in %v", name, names(r))
		}
		if row.Metrics["calls_per_second"] == 0 || row.Metrics["compare_calls_per_second"] == 0 {
			t.Logf("%s: no call has ended in time", name)
			continue
		}
		wantPositive(t, row, "gain")
	}
	if !strings.Contains(out, "other / this") {
		t.Errorf("the databases are not compared: %s", out)
	}
}

// wantPositive wants figures that are above 0 however slow or fast the machine is.
func wantPositive(t *testing.T, row *bench.Row, metrics ...string) {
	t.Helper()
	for _, metric := range metrics {
		if row.Metrics[metric] <= 0 {
			t.Errorf("%s: %s is %v", row.Name, metric, row.Metrics[metric])
		}
	}
}

func names(r *bench.Result) (all []string) {
	for _, row := range r.Rows {
		all = append(all, row.Name)
	}
	return all
}

func TestBenchEvents_BadFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		say  string
	}{
		{[]string{"--datasets", "vast"}, "none of"},
		{[]string{"--ops", "delete"}, "none of"},
		{[]string{"--concurrency", "0"}, "--concurrency"},
		{[]string{"--batch", "5000"}, "--batch"},
		{[]string{"--duration", "0"}, "--duration"},
		{[]string{"--streams", "2", "--ops", "query"}, "append and appendif"},
		{[]string{"--streams", "20", "--concurrency", "10"}, "--concurrency is 10"},
	} {
		code, _, errOut := run(t, nil, append([]string{"bench", "events"}, c.args...)...)
		if code != cli.ExitUsage || !strings.Contains(errOut, c.say) {
			t.Errorf("%v: exit code %d, %s", c.args, code, errOut)
		}
	}
}
