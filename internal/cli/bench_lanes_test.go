package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

func TestBenchLanes_EveryVariant(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "lanes.toml")
	err := os.WriteFile(config, []byte("[server]\ndummy_message_size = \"200KB\"\ndummy_message_duration = \"2ms\"\n[client]\nrequest_duration = \"5ms\"\ntotal_request = 30\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r, out := benchmark(t, cli.ExitOK, "lanes", "--config", config, "--variants", "plain,lanes,lanes+credit,two-connections", "--repeat", "2")
	for _, variant := range []string{"plain", "lanes", "lanes+credit", "two-connections"} {
		row := r.Row(variant + ": every 5ms, 200 KB / 2ms")
		if row == nil {
			t.Fatalf("no row of %s in\n%s", variant, out)
		}
		m := row.Metrics
		if _, measured := m["server_cpu_seconds"]; !measured || m["sent"] != 30 || m["lost"] != 0 || m["latency_mean_worst_ms"] < m["latency_mean_ms"] || m["dummy_bytes"] < 200<<10 {
			t.Errorf("%s: %v", variant, m)
		}
	}
}

func TestBenchLanes_Dial(t *testing.T) {
	t.Parallel()
	p := serve(t, "--only", "lanes", "--dummy-message-duration", "1h")
	_, port, _ := strings.Cut(p.addr, ":")
	config := filepath.Join(t.TempDir(), "lanes.toml")
	if err := os.WriteFile(config, []byte("[server]\nhost = \"127.0.0.1\"\nport = "+port+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, _ := benchmark(t, cli.ExitOK, "lanes", "--config", config, "--dial", "--variants", "lanes", "--total-request", "20", "--request-duration", "1ms", "--dummy-message-duration", "1h")
	if m := r.Row("lanes: every 1ms, no dummy").Metrics; m["received"] != 20 || m["dummy_bytes"] != 0 {
		t.Errorf("%v", m)
	}
}

func TestBenchLanes_BadFlags(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("[server]\nhots = \"x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--variants", "fast"}, {"--repeat", "-1"}, {"--total-request", "-5"}, {"--config", "missing.toml"}, {"--config", bad},
		{"--dummy-message-size", "65MB"}, {"--dummy-message-size", "-1"}, {"--latency", "none"}, {"--matrix", "--dial"},
		{"--dial", "--variants", "two-connections"}, {"--request-duration", "-1ms"},
	} {
		code, _, errOut := run(t, nil, append([]string{"bench", "lanes"}, args...)...)
		if code != cli.ExitUsage || errOut == "" {
			t.Errorf("%v: exit code %d, %q", args, code, errOut)
		}
		if len(args) == 2 && args[0] == "--config" || strings.HasPrefix(args[0], "--dummy") {
			code, _, errOut = run(t, nil, append([]string{"serve", "--only", "lanes", "--port", "0"}, args...)...)
			if code != cli.ExitUsage || errOut == "" {
				t.Errorf("serve %v: exit code %d, %q", args, code, errOut)
			}
		}
	}
}
