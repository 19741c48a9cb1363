package report_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/report"
)

// queueResult makes a result of one row with a trial for each value.
func queueResult(values ...float64) *bench.Result {
	r := bench.NewResult("queue", map[string]any{"writers": 10.0})
	r.Environment = bench.Environment{CPU: "Some CPU", Cores: 2, PostgreSQL: &bench.PostgreSQL{
		Version: "18.3", Durability: map[string]string{"fsync": "on"}, Settings: map[string]string{"shared_buffers": "16384"}}}
	for _, v := range values {
		r.AddTrial("lease", "", map[string]float64{"messages_per_second": v, "latency_p99_ms": 5, "index_bytes": 1})
	}
	return r
}

// TestCompare_KnownData: the U-test of two known samples, exact as tables of the
// statistic have it: of 4 against 4 that do not overlap, 2/70; of 5 against 5, 2/252.
func TestCompare_KnownData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		was, is     []float64
		p           float64
		significant bool
	}{
		{[]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2.0 / 70, true},
		{[]float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}, 2.0 / 252, true},
		{[]float64{1, 2, 3}, []float64{4, 5, 6}, 2.0 / 20, false},
		{[]float64{1, 3, 5, 7}, []float64{2, 4, 6, 8}, 0.6857, false}, // U = 6
		{[]float64{7}, []float64{9}, 1, false},
	} {
		changes := report.Compare(queueResult(c.was...), queueResult(c.is...))
		i := slices.IndexFunc(changes, func(c report.Change) bool { return c.Metric == "messages_per_second" })
		got := changes[i]
		if math.Abs(got.P-c.p) > 1e-4 || got.Significant != c.significant {
			t.Errorf("%v and %v: p is %g, significant %t; want %g, %t", c.was, c.is, got.P, got.Significant, c.p, c.significant)
		}
		if want := bench.Median(c.is) / bench.Median(c.was); got.Ratio() != want {
			t.Errorf("%v and %v: ratio %g, want %g", c.was, c.is, got.Ratio(), want)
		}
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	if all := report.Differences(queueResult(1), queueResult(2)); len(all) != 0 {
		t.Errorf("alike, and different in %q", all)
	}
	other := queueResult(1)
	other.Scenario = "pubsub"
	other.Params["writers"], other.Params["readers"] = 20.0, 3.0
	other.Environment.Cores = 4
	other.Environment.Commit = "abc" // is what is compared
	other.Environment.PostgreSQL.Durability["fsync"] = "off"
	other.Environment.PostgreSQL.Settings = nil
	all := report.Differences(queueResult(1), other)
	want := []string{"scenario: queue, and pubsub", "parameter readers: none, and 3", "parameter writers: 10, and 20", "cores: 2, and 4",
		"durability fsync: on, and off", "setting shared_buffers: 16384, and none"}
	if !slices.Equal(all, want) {
		t.Errorf("different in %q, want %q", all, want)
	}
	a, b := queueResult(1), queueResult(2)
	for name, value := range map[string]string{
		"unix_socket_directories": "/tmp/b", "data_directory": "/tmp/b/data", "hba_file": "/tmp/b/hba", "port": "5433", "listen_addresses": "",
		"lc_messages": "C", "log_timezone": "UTC", "TimeZone": "UTC", "cluster_name": "b", "unix_socket_permissions": "0700",
	} {
		b.Environment.PostgreSQL.Settings[name] = value
	}
	if all := report.Differences(a, b); len(all) != 0 {
		t.Errorf("where PostgreSQL lies makes a difference: %q", all)
	}
	other.Environment.PostgreSQL = nil
	if all := report.Differences(queueResult(1), other); !slices.Contains(all, "PostgreSQL: true, and false") {
		t.Errorf("different in %q", all)
	}
}

func TestComparisonTable(t *testing.T) {
	t.Parallel()
	a, b := queueResult(1000, 1010, 990, 1005), queueResult(1500, 1510, 1490, 1505)
	a.AddTrial("skip-locked", "", map[string]float64{"messages_per_second": 7})
	var short, long strings.Builder
	if err := report.ComparisonTable(&short, a, b, false); err != nil {
		t.Fatal(err)
	}
	if err := report.ComparisonTable(&long, a, b, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+49.9 %", "~", "skip-locked is not in the second", "0.029"} {
		if !strings.Contains(short.String(), want) {
			t.Errorf("there is no %q in\n%s", want, short.String())
		}
	}
	if strings.Contains(short.String(), "index_bytes") || !strings.Contains(long.String(), "index_bytes") {
		t.Error("all metrics are there only if asked for")
	}
}
