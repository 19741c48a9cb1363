package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/fault"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

// benchmark runs a benchmark, and returns its result and what it prints. The result may be invalid if a machine without free CPU time sent late or
// measured nothing.
func benchmark(t *testing.T, args ...string) (*bench.Result, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "result.json")
	code, out, errOut := command(t, append(append([]string{"bench"}, args...), "--out", file)...)
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

// readResult reads a result, and checks that thresholds can name its metrics.
func readResult(t *testing.T, file string) *bench.Result {
	t.Helper()
	r, err := bench.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	scenario, _, _ := strings.Cut(r.Scenario, "-")
	if known := bench.Metrics(scenario); r.Scenario != "chat-profiles" { // has no thresholds
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

// figures wants metrics of a row that are above 0, unless the machine was so busy that the result is not valid, and others that are 0.
func figures(t *testing.T, r *bench.Result, row *bench.Row, positive, zero string) {
	t.Helper()
	for _, name := range strings.Fields(positive) {
		if value, ok := row.Metrics[name]; value <= 0 && (r.Valid || !ok) {
			t.Errorf("%s: %s is %v", row.Name, name, row.Metrics[name])
		}
	}
	for _, name := range strings.Fields(zero) {
		if value, ok := row.Metrics[name]; !ok || value != 0 {
			t.Errorf("%s: %s is %v, %v", row.Name, name, value, ok)
		}
	}
}

const (
	quickChat  = " --clients 12 --hold 500ms --rate 8" // less than the server allows one connection, however long the run takes
	quickQueue = " --writers 2 --in-flight 4 --duration 500ms --warm-up 100ms --report 100ms --payload 100 --throttle-writes 300"
)

// TestBench: each scenario runs, and its result has the figures. The scenarios' own tests hold what they measure.
func TestBench(t *testing.T) {
	notShort(t)
	t.Parallel()
	for name, c := range map[string]struct {
		line           string
		rows           int
		positive, zero string
		prints         string
		long           bool
	}{
		"echo":         {"echo --clients 4 --messages 1000 --repeat 2 --tls", 1, "received", "", "VALID", false},
		"idle":         {"idle --connections 50 --settle 10ms", 1, "connections server_rss_bytes", "", "VALID", false},
		"lanes":        {"lanes --request-duration 5ms --total-request 150 --dummy-message-size 200KB --dummy-message-duration 2ms --variants plain,lanes,lanes+credit,two-connections --repeat 1", 4, "sent latency_mean_ms dummy_bytes", "lost", "", false},
		"chat":         {"chat load --tls" + quickChat, 1, "expected wire_bytes_per_delivery", "lost errors duplicated", "deliveries/s", false},
		"chat, zipped": {"chat load --compress" + quickChat, 1, "expected wire_bytes_per_delivery", "lost errors duplicated", "", true},
		"queue":        {"queue --via server --readers 2 --connections 1" + quickQueue, 1, "read wire_bytes_per_delivery", "lost duplicated", "", false},
		"groups":       {"queue --via server --mode pubsub --consumer-groups 2 --encoding cbor --compress" + quickQueue, 1, "read", "lost duplicated", "", true},
		"subscribers":  {"queue --via server --mode pubsub --subscribers 20 --encoding cbor" + quickQueue, 1, "read", "lost duplicated", "", true},
		"streams":      {"pubsub --streams 8 --consumer-groups 2 --read-batch 10 --writers 4 --duration 500ms --warm-up 100ms --payload 100 --throttle-writes 300", 1, "read", "lost duplicated", "", true},
		"pubsub":       {"pubsub --strategy log,counter-rows --consumer_groups 2 --partitions 2 --write-batch 2 --hold-xmin --tune_table_vacuum" + quickQueue, 2, "sent read", "lost", "end to end p50 ms", false},
		"publish only": {"pubsub --consumer-groups 0" + quickQueue, 1, "sent rows_verified", "lost duplicated", "rows verified", false},
		"events":       {"events --datasets tiny --concurrency 2 --batch 1 --ops append,appendif,query,projectionlimits --warm-up 20ms --duration 150ms", 6, "", "", "calls/s", false},
		"every event":  {"events --datasets tiny --concurrency 2 --batch 1,3 --conflict-events 1,10 --warm-up 20ms --duration 250ms", 0, "", "", "calls/s", true},
		"event stores": {"events --streams 3 --datasets tiny --concurrency 6 --batch 1 --warm-up 20ms --duration 150ms", 2, "", "", "", true},
		"ingest":       {"ingest --clients 3 --repeat 1 --messages 300 --naive-messages 30 --modes naive,auto --ack", 0, "rows_verified seconds", "", "of raw COPY", false},
		"every ingest": {"ingest --clients 3 --repeat 1 --messages 3000 --naive-messages 300 --ack", 0, "rows_verified seconds", "", "x naive", true},
		"closed loop":  {"ingest --clients 20 --repeat 1 --messages 2000 --modes auto --closed-loop", 0, "rows_verified", "", "", true},
		"open loop":    {"ingest --clients 20 --repeat 1 --messages 2000 --modes auto --rate 5000", 0, "rows_verified", "", "", true},
		"chat, all":    {"chat all --time-scale 0.1 --client-scale 0.1", 0, "", "", "a try, not a measurement", true},
		"soak":         {"chat steady --mode soak120 --time-scale 0.05 --client-scale 0.3", 1, "throughput_last_to_first_fifth", "", "pass tidewire no crash", true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.long {
				testkit.Long(t)
			}
			t.Parallel()
			args := strings.Fields(c.line)
			if slices.Contains([]string{"queue", "pubsub", "events"}, args[0]) {
				args = append(args, "--database-url", migrated(t).URL)
			} else if args[0] == "ingest" {
				args = append(args, "--database-url", pgtest.Open(t).URL)
			}
			if c.rows == 0 && args[0] == "chat" { // each scenario has a file
				code, out, errOut := command(t, append(append([]string{"bench"}, args...), "--out", filepath.Join(t.TempDir(), "chat.json"))...)
				if code != cli.ExitOK || !strings.Contains(out, c.prints) {
					t.Errorf("exit code %d\n%s%s", code, out, errOut)
				}
				return
			}
			r, out := benchmark(t, args...)
			if c.rows > 0 && len(r.Rows) != c.rows {
				t.Errorf("%d rows, want %d", len(r.Rows), c.rows)
			}
			for i := range r.Rows {
				figures(t, r, &r.Rows[i], c.positive, c.zero)
			}
			if !strings.Contains(out, c.prints) {
				t.Errorf("no %q in\n%s", c.prints, out)
			}
		})
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

// TestBench_Faults: nodes and their network fail, and PostgreSQL fails over, under load, and every promise is kept: what was sent, acknowledged and
// delivered is recorded and compared. The machine may be busy, so the times after a repair have wide bounds.
func TestBench_Faults(t *testing.T) {
	testkit.Long(t)
	kinds := "kill,freeze"
	if fault.Available() == nil {
		kinds += ",cut,cut-one-way,slow,cut-database"
	}
	for seed := range pgtest.Seeds() {
		for row, line := range map[string]string{
			"all":               "cluster --faults 6 --longest 15s --told-within 30s --present-within 30s --fault " + kinds,
			"quorum, all":       "failover --replication quorum --promotions 2 --fault cut-off,freeze",
			"asynchronous, all": "failover --replication asynchronous --promotions 2 --fault cut-off,freeze",
		} {
			r, out := benchmark(t, append(append(strings.Fields(line), "--seed", fmt.Sprint(seed)), privateFlags()...)...)
			if !r.Valid || r.Row(row) == nil {
				t.Fatalf("seed %d, %s: %+v\n%s", seed, line, r.Rows, out)
			}
			figures(t, r, r.Row(row), "acknowledged delivered", "")
			if lost := r.Row(row).Metrics["lost"]; strings.HasPrefix(row, "asynchronous") && lost == 0 {
				t.Error("a standby that was cut off had everything")
			}
		}
	}
	r, _ := benchmark(t, append(strings.Fields("cluster --steady --nodes 1,2 --rate 500 --subscribers 3 --duration 500ms --repeat 1"), privateFlags()...)...)
	for _, name := range []string{"nodes 1", "nodes 2"} {
		if m := r.Row(name).Metrics; m["sent"] == 0 || m["delivered"] != 3*m["sent"] {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// TestBench_RunningServer: a server that runs is measured, and messages that people have sent to it are kept.
func TestBench_RunningServer(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	p := serve(t, "--database-url", db.URL, "--mode", "bulk")
	at := "ws://" + p.Addr + "/ws"
	r, _ := benchmark(t, "ingest", "--url", at+"/ingest", "--database-url", db.URL, "--messages", "500", "--repeat", "1")
	if row := r.Row("server"); row.Metrics["rows_verified"] != 500 {
		t.Errorf("metrics %v", row.Metrics)
	}
	file := filepath.Join(t.TempDir(), "r.json")
	if code, out, _ := command(t, "bench", "ingest", "--url", at+"/ingest", "--messages", "500", "--repeat", "1", "--out", file); code != cli.ExitInvalid || !strings.Contains(out, "rows not verified") {
		t.Errorf("a run that verified nothing: exit code %d\n%s", code, out)
	}
	if code, _, text := command(t, "bench", "ingest", "--database-url", db.URL, "--messages", "100"); code != cli.ExitDatabase || !strings.Contains(text, "not empty") {
		t.Errorf("exit code %d, %q", code, text)
	}
	if n := rows(t, db.URL, countSQL); n != 1000 {
		t.Errorf("%d rows are left of 1000", n)
	}
	chats := append([]string{"chat", "load", "--target", "mine=" + at + "/chat"}, strings.Fields(quickChat)...)
	r, _ = benchmark(t, chats...)
	figures(t, r, r.Row("mine"), "expected", "lost")
}

// TestBench_PrivatePostgreSQL: the data directory of --data-dir is used, and stays.
func TestBench_PrivatePostgreSQL(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	data := dataDir(t)
	for _, want := range []int{cli.ExitOK, cli.ExitDatabase} { // messages that are there are not dropped
		code, _, errOut := command(t, "bench", "ingest", "--data-dir", data, "--modes", "auto", "--messages", "1000", "--clients", "1", "--repeat", "1",
			"--out", filepath.Join(t.TempDir(), "result.json"))
		if code != want {
			t.Errorf("exit code %d, want %d: %s", code, want, errOut)
		}
		if _, err := os.Stat(data); err != nil {
			t.Errorf("--data-dir has no effect: %v", err)
		}
	}
}
