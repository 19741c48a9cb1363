package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestBenchChat_All tries every scenario, shortened. Deliveries are verified as
// in a real run. It does not run in parallel with other tests of this package:
// a generator that gets no CPU for long is a member that lags, and misses
// chats.
func TestBenchChat_All(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chat.json")
	code, out, errOut := run(t, nil, "bench", "chat", "all", "--time-scale", "0.1", "--client-scale", "0.1", "--out", file)
	if code != cli.ExitOK {
		t.Fatalf("exit code %d\n%s%s", code, out, errOut)
	}
	for name, rows := range map[string][]string{
		"steady": {"tidewire"}, "burst": {"tidewire"}, "churn": {"tidewire"},
		"saturation": {"tidewire 20 clients", "tidewire 50 clients", "tidewire 100 clients"},
	} {
		r := readResult(t, strings.TrimSuffix(file, ".json")+"-"+name+".json")
		for _, want := range rows {
			row := r.Row(want)
			if row == nil {
				t.Fatalf("%s: no row %q", name, want)
			}
			m := row.Metrics
			_, measured := m["server_cpu_seconds"] // in ticks of 10 ms, of which there may be none
			if m["lost"] != 0 || m["errors"] != 0 || m["connections"] < 10 || m["peak_connections"] < 1 || m["binary_bytes"] < 1e6 || !measured {
				t.Errorf("%s %s: %v", name, want, m)
			}
			if name != "churn" && (m["expected"] == 0 || m["deliveries_per_second"] <= 0 || m["latency_p99_ms"] <= 0) {
				t.Errorf("%s %s: %v", name, want, m)
			}
		}
	}
	for _, text := range []string{"deliveries/s", "connect p95 ms", "VALID", "a try, not a measurement"} {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in\n%s", text, out)
		}
	}
}

func TestBenchChat_SoakHasAVerdict(t *testing.T) {
	t.Parallel()
	r, out := benchmark(t, cli.ExitOK, "chat", "steady", "--mode", "soak120", "--time-scale", "0.05", "--client-scale", "0.3")
	row := r.Row("tidewire")
	names := make(map[string]bool)
	for _, v := range row.Verdicts {
		names[v.Name] = true
	}
	if len(names) != 4 || row.Metrics["throughput_last_to_first_fifth"] <= 0 {
		t.Errorf("verdicts %+v, metrics %v", row.Verdicts, row.Metrics)
	}
	if !strings.Contains(out, "pass tidewire no crash") {
		t.Errorf("no verdict in\n%s", out)
	}
}

func TestBenchChat_RunningServerAndLoad(t *testing.T) {
	t.Parallel()
	p := serve(t, "--only", "chat")
	r, _ := benchmark(t, cli.ExitOK, "chat", "load", "--target", "mine=ws://"+p.addr+"/ws", "--clients", "20", "--hold", "1s", "--payload", "300")
	if m := r.Row("mine").Metrics; m["lost"] != 0 || m["expected"] < 19*80 {
		t.Errorf("%v", m)
	}
}

func TestBenchChat_BadFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"storm"}, {}, {"steady", "--time-scale", "0"}, {"steady", "--time-scale", "2"}, {"steady", "--repeat", "0"}, {"steady", "--client-scale", "0"}, {"steady", "--client-scale", "1.1"},
		{"steady", "--mode", "soak1"}, {"load", "--clients", "0"}, {"load", "--clients", "70000"}, {"load", "--rate", "0"},
		{"load", "--payload", "20"}, {"load", "--hold", "0"}, {"load", "--mode", "soak120"},
		{"steady", "--target", "nobody"}, {"steady", "--target", "x=http://localhost"},
	} {
		out := filepath.Join(t.TempDir(), "r.json")
		code, _, errOut := run(t, nil, append(append([]string{"bench", "chat"}, args...), "--out", out)...)
		if code != cli.ExitUsage || errOut == "" {
			t.Errorf("%v: exit code %d, %q; want %d", args, code, errOut, cli.ExitUsage)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%v: wrote a result", args)
		}
	}
	code, _, errOut := run(t, nil, "bench", "chat", "load", "--clients", "5", "--hold", "1s",
		"--target", "gone=ws://127.0.0.1:1/ws", "--out", filepath.Join(t.TempDir(), "r.json"))
	if code == cli.ExitOK {
		t.Errorf("nobody there: exit code 0\n%s", errOut)
	}
}

// TestBenchChat_Compress: with compression and batches every chat arrives as without, and in fewer bytes. Not parallel, as TestBenchChat_All.
func TestBenchChat_Compress(t *testing.T) {
	bytes := make(map[string]float64)
	for _, flag := range []string{"--compress", "--quiet"} {
		file := filepath.Join(t.TempDir(), "chat.json")
		code, out, errOut := run(t, nil, "bench", "chat", "load", "--clients", "60", "--rate", "8", "--hold", "2s", "--out", file, flag)
		if code != cli.ExitOK {
			t.Fatalf("%s: exit code %d\n%s%s", flag, code, out, errOut)
		}
		m := readResult(t, file).Row("tidewire").Metrics
		if m["lost"] != 0 || m["errors"] != 0 || m["duplicated"] != 0 || m["expected"] == 0 {
			t.Errorf("%s: %v", flag, m)
		}
		bytes[flag] = m["wire_bytes_per_delivery"]
	}
	if bytes["--quiet"] < 128 || bytes["--compress"] <= 0 || bytes["--compress"] > 0.8*bytes["--quiet"] {
		t.Errorf("bytes per delivery: %v", bytes)
	}
}
