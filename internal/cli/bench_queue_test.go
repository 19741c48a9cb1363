package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/cli"
)

func TestBenchPubsub_EveryStrategy(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	r, out := loaded(t, "pubsub", "--database-url", db.URL, "--strategy", "log,counter-rows",
		"--writers", "3", "--consumer_groups", "2", "--partitions", "2", "--in-flight", "2", "--write-batch", "2",
		"--duration", "1s", "--warm-up", "200ms", "--report", "50ms", "--payload", "100", "--throttle-writes", "500", "--hold-xmin", "--tune_table_vacuum")
	for _, name := range []string{"log", "counter-rows"} {
		row := r.Row(name)
		if m := row.Metrics; m["lost"] != 0 || m["read"] != 2*m["sent"] {
			t.Errorf("%s: %v", name, m)
		}
		wantPositive(t, row, "sent")
		for _, metric := range []string{"write_messages_per_second", "read_messages_per_second", "wal_bytes_per_message", "table_bytes_per_message",
			"generator_cpu_share", "postgres_cpu_share", "depth_at_end"} { // which may be 0 on a machine that is busy
			if _, ok := row.Metrics[metric]; !ok {
				t.Errorf("%s: no %s", name, metric)
			}
		}
	}
	if !strings.Contains(out, "VALID:") || !strings.Contains(out, "end to end p50 ms") {
		t.Errorf("printed %s", out)
	}
}

// TestBenchQueue_ViaServer: a queue and groups, through a serving node.
func TestBenchQueue_ViaServer(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for _, args := range [][]string{
		{"--mode", "queue", "--readers", "3", "--connections", "1"}, {"--mode", "pubsub", "--consumer-groups", "2", "--encoding", "cbor", "--compress"},
		{"--mode", "pubsub", "--subscribers", "20", "--encoding", "cbor"},
	} {
		r, _ := loaded(t, append([]string{"queue", "--via", "server", "--database-url", db.URL,
			"--writers", "2", "--in-flight", "4", "--write-batch", "2", "--read-batch", "10",
			"--duration", "1s", "--warm-up", "200ms", "--report", "500ms", "--payload", "100", "--throttle-writes", "300"}, args...)...)
		m := r.Rows[0].Metrics
		if _, ok := m["server_cpu_seconds"]; !ok || m["read"] <= 0 || m["lost"] != 0 || m["duplicated"] != 0 || m["wire_bytes_per_delivery"] <= 0 {
			t.Errorf("%v: %v", args, m)
		}
	}
}

// TestBenchQueue_ManyStreams: messages of many streams and queues, each with its own
// reader, in the process and over a few connections to a node.
func TestBenchQueue_ManyStreams(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for strategy, args := range map[string][]string{
		"lease": {"--mode", "queue", "--via", "server"}, "log": {"--mode", "pubsub", "--consumer-groups", "2"},
	} {
		r, _ := loaded(t, append([]string{"queue", "--database-url", db.URL, "--streams", "8",
			"--writers", "4", "--in-flight", "4", "--read-batch", "10",
			"--duration", "500ms", "--warm-up", "200ms", "--report", "500ms", "--payload", "100", "--throttle-writes", "300"}, args...)...)
		if m := r.Row(strategy).Metrics; m["read"] <= 0 || m["lost"] != 0 || m["duplicated"] != 0 {
			t.Errorf("%s: %v", strategy, m)
		}
	}
}

// TestBenchPubsub_PublishOnly: without groups nobody reads, the stored messages are
// read back at the end, and the rerun file keeps that setting.
func TestBenchPubsub_PublishOnly(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"paced":      {"--strategy", "log,counter-rows", "--throttle-writes", "300", "--partitions", "2"},
		"streams":    {"--streams", "8", "--writers", "4"},
		"via server": {"--via", "server", "--streams", "20", "--writers", "4", "--throttle-writes", "300", "--repeat", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := migrated(t)
			dir := t.TempDir()
			first, second := filepath.Join(dir, "first.json"), filepath.Join(dir, "second.json")
			r, out := loadedTo(t, first, append([]string{"bench", "pubsub", "--database-url", db.URL, "--consumer-groups", "0", "--in-flight", "4",
				"--duration", "500ms", "--warm-up", "0", "--report", "100ms", "--payload", "100"}, args...)...)
			for _, row := range r.Rows {
				m := row.Metrics
				if m["rows_verified"] == 0 || m["rows_verified"] != m["sent"] || m["lost"] != 0 || m["duplicated"] != 0 {
					t.Errorf("%s: %v", row.Name, m)
				}
				for metric := range m {
					if strings.HasPrefix(metric, "read") || strings.HasPrefix(metric, "end_to_end") || metric == "drain_seconds" {
						t.Errorf("%s: %s of nobody", row.Name, metric)
					}
				}
				if m["messages_per_second"] != m["write_messages_per_second"] {
					t.Errorf("%s: %v", row.Name, m)
				}
			}
			if !strings.Contains(out, "rows verified") || strings.Contains(out, "R msg/s") || strings.Contains(out, "end to end") {
				t.Errorf("printed %s", out)
			}
			if name != "streams" {
				return
			}
			loadedTo(t, second, "bench", "run", filepath.Join(dir, "first.rerun.toml"), "--", "--database-url", db.URL)
			for _, args := range [][]string{{"compare", first, second}, {"report", first, second, "--csv"}, {"report", first, "--markdown"}} {
				code, out, errOut := run(t, nil, append([]string{"bench"}, args...)...)
				if code != cli.ExitOK || !strings.Contains(out, "log") || strings.Contains(out, "NaN") || strings.Contains(out, "end_to_end") {
					t.Errorf("%v: exit code %d\n%s%s", args, code, out, errOut)
				}
			}
		})
	}
}

func TestBenchQueue_BadFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		say  string
	}{
		{[]string{"--strategy", "fast"}, "none of"},
		{[]string{"--mode", "log"}, "--mode"},
		{[]string{"--writers", "0"}, "--writers"},
		{[]string{"--consumer-groups", "-1"}, "--consumer-groups"},
		{[]string{"--payload", "5"}, "--payload"},
		{[]string{"--streams", "9"}, "one for each"},
		{[]string{"--streams", "100", "--strategy", "skip-locked"}, "has no streams"},
		{[]string{"--duration", "0"}, "--duration"},
		{[]string{"--throttle-writes", "-1"}, "--throttle-writes"},
		{[]string{"--port", "5432"}, "go with --host"},
		{[]string{"--linger", "-1ms"}, "--linger"},
		{[]string{"--linger", "5ms", "--via", "server"}, "exclude"},
		{[]string{"--via", "server", "--strategy", "skip-locked"}, "a server does not support"},
		{[]string{"--host", "x", "--database-url", "postgres://x"}, "exclude"},
	} {
		code, _, errOut := run(t, nil, append([]string{"bench", "queue"}, c.args...)...)
		if code != cli.ExitUsage || !strings.Contains(errOut, c.say) {
			t.Errorf("%v: exit code %d, %s", c.args, code, errOut)
		}
	}
}

// loaded is benchmark, but accepts an invalid result if a machine without free CPU
// time sent late or measured nothing.
func loaded(t *testing.T, args ...string) (*bench.Result, string) {
	t.Helper()
	return loadedTo(t, filepath.Join(t.TempDir(), "result.json"), append([]string{"bench"}, args...)...)
}

// loadedTo is loaded with a whole command line and a file for the result.
func loadedTo(t *testing.T, file string, args ...string) (*bench.Result, string) {
	t.Helper()
	code, out, errOut := run(t, nil, append(args, "--out", file)...)
	if code != cli.ExitOK && code != cli.ExitInvalid {
		t.Fatalf("%v: exit code %d\n%s%s", args, code, out, errOut)
	}
	r := readResult(t, file)
	for _, c := range r.Checks {
		late := strings.HasSuffix(c.Name, ": the load was sent") || strings.HasSuffix(c.Name, ": there was something to measure")
		if !c.OK && !late {
			t.Errorf("%v: %s: %s\n%s%s", args, c.Name, c.Detail, out, errOut)
		}
	}
	return r, out
}
