package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

func benchmark(t *testing.T, want int, args ...string) (*bench.Result, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "result.json")
	code, out, errOut := run(t, nil, append(append([]string{"bench"}, args...), "--out", file)...)
	if code != want {
		t.Fatalf("%v: exit code %d, want %d\n%s%s", args, code, want, out, errOut)
	}
	r := readResult(t, file)
	return r, out
}

// readResult reads a result, and checks that thresholds can name its metrics.
func readResult(t *testing.T, file string) *bench.Result {
	t.Helper()
	r, err := bench.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	command, _, _ := strings.Cut(r.Scenario, "-")
	if known := bench.Metrics(command); r.Scenario != "chat-profiles" { // has no thresholds
		for _, row := range r.Rows {
			for name := range row.Metrics {
				if !slices.Contains(known, name) {
					t.Errorf("%s: bench.Metrics lacks %s", r.Scenario, name)
				}
			}
		}
	}
	return r
}

// TestBench_UnknownThreshold: a metric that no row can have is rejected before the run.
func TestBench_UnknownThreshold(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "result.json")
	for _, c := range []struct {
		command, threshold string
		says               []string
	}{
		{"queue", "p98<5", []string{"bench queue does not measure p98", "end_to_end_p99", "lost"}},
		{"queue", "p99<5ms", []string{"bench queue does not measure p99", "write_p99"}},
		{"pubsub", "deliveries>0", []string{"bench pubsub does not measure deliveries", "read_messages_per_second"}},
		{"events", "lost==0", []string{"bench events does not measure lost", "calls_per_second", "p99", "kept"}},
		{"echo", "kept==1", []string{"bench echo does not measure kept"}},
		{"idle", "p99<1s", []string{"bench idle does not measure p99", "connect_p99"}},
		{"failover", "p99<1s", []string{"bench failover does not measure p99. It measures acknowledged"}},
		{"lanes", "connect_p99<1s", []string{"bench lanes does not measure connect_p99", "latency_mean_worst_ms"}},
		{"queue", "p98<5ms", []string{"p98 is not a time", "docs/reference/results.md"}},
		{"chat steady", "speed>1", []string{"bench chat does not measure speed", "drop_rate"}},
		{"ingest", "speed>1", []string{"bench ingest does not measure speed", "share_of_raw_copy"}},
		{"ingest", "p99<5ms", []string{"--closed-loop"}},
	} {
		code, _, text := run(t, nil, append(append([]string{"bench"}, strings.Fields(c.command)...), "--threshold", c.threshold, "--out", file)...)
		if code != cli.ExitUsage {
			t.Errorf("%s, %s: exit code %d, want %d\n%s", c.command, c.threshold, code, cli.ExitUsage, text)
		}
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s, %s: want %q in: %s", c.command, c.threshold, want, text)
			}
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("something was measured")
	}
}

func TestBenchIngest_EveryModeVerified(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	const messages = 3000
	r, out := benchmark(t, cli.ExitOK, "ingest", "--database-url", db.URL, "--clients", "3", "--repeat", "1",
		"--messages", "3000", "--naive-messages", "300", "--ack")
	if !r.Valid || r.Environment.Cores == 0 || r.Environment.PostgreSQL.Version == "" {
		t.Errorf("result %+v", r)
	}
	for _, name := range []string{"raw COPY", "naive", "naive ack", "buffered", "bulk", "copy", "copy ack", "auto", "auto ack"} {
		row := r.Row(name)
		if row == nil {
			t.Errorf("no row %q", name)
			continue
		}
		want := float64(messages)
		if strings.HasPrefix(name, "naive") || strings.HasPrefix(name, "buffered") {
			want = 300
		}
		if row.Metrics["rows_verified"] != want || row.Metrics["seconds"] <= 0 || row.Metrics["share_of_raw_copy"] <= 0 {
			t.Errorf("row %q: %v", name, row.Metrics)
		}
	}
	for _, text := range []string{"of raw COPY", "x naive", "rows verified", "VALID", "(300 messages)"} {
		if !strings.Contains(out, text) {
			t.Errorf("the table does not show %q:\n%s", text, out)
		}
	}
}

func TestBenchIngest_LoopsThatWait(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	for _, flags := range [][]string{{"--closed-loop"}, {"--rate", "5000"}} {
		if _, err := db.Pool.Exec(t.Context(), `DROP TABLE IF EXISTS messages CASCADE; DROP SCHEMA IF EXISTS tidewire CASCADE`); err != nil {
			t.Fatal(err)
		}
		r, _ := benchmark(t, cli.ExitOK, append([]string{"ingest", "--database-url", db.URL, "--clients", "20", "--repeat", "1",
			"--messages", "2000", "--modes", "auto"}, flags...)...)
		if m := r.Row("auto").Metrics; m["latency_p99_ms"] <= 0 || m["latency_p50_ms"] > m["latency_p99_ms"] {
			t.Errorf("%v: %v", flags, m)
		}
	}
}

func TestBenchIngest_RunningServer(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	p := serve(t, "--database-url", db.URL, "--mode", "bulk")
	url := "ws://" + p.addr + "/ws/ingest"
	r, _ := benchmark(t, cli.ExitOK, "ingest", "--url", url, "--database-url", db.URL, "--messages", "2000", "--repeat", "1")
	if row := r.Row("server"); row.Metrics["rows_verified"] != 2000 {
		t.Errorf("metrics %v", row.Metrics)
	}
	r, out := benchmark(t, cli.ExitInvalid, "ingest", "--url", url, "--messages", "2000", "--repeat", "1")
	if r.Valid || !strings.Contains(out, "rows not verified") {
		t.Errorf("a run that verified nothing: valid %v\n%s", r.Valid, out)
	}
}

func TestBenchIngest_KeepsPeoplesMessages(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	p := serve(t, "--database-url", db.URL)
	pump(t, bench.PumpConfig{URL: "ws://" + p.addr + "/ws/ingest", Clients: 1, Messages: 5})
	code, _, text := run(t, nil, "bench", "ingest", "--database-url", db.URL, "--messages", "100")
	if code != cli.ExitDatabase || !strings.Contains(text, "not empty") {
		t.Errorf("exit code %d, %q", code, text)
	}
	if n := rows(t, db.URL, countSQL); n != 5 {
		t.Errorf("%d rows are left of 5", n)
	}
}

func TestBenchEchoAndIdle(t *testing.T) {
	t.Parallel()
	r, _ := benchmark(t, cli.ExitOK, "echo", "--clients", "10", "--messages", "5000", "--repeat", "2")
	if row := r.Row("tidewire"); row.Metrics["received"] != 5000 || len(row.Trials) != 2 {
		t.Errorf("echo: %+v", row)
	}
	r, _ = benchmark(t, cli.ExitOK, "idle", "--connections", "200", "--settle", "100ms")
	if row := r.Row("tidewire"); row.Metrics["connections"] != 200 || row.Metrics["server_rss_bytes"] <= 0 {
		t.Errorf("idle: %+v", row)
	}
}
