package report_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/report"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestTable_Golden(t *testing.T) {
	t.Parallel()
	r := bench.NewResult("ingest", nil)
	r.Environment = bench.Environment{CPU: "Some CPU", Cores: 2, MemoryBytes: 24 << 30, OS: "linux/amd64", Kernel: "6.1",
		PostgreSQL: &bench.PostgreSQL{Version: "18.3", Disk: "ext4 on /dev/sda",
			Durability: map[string]string{"fsync": "on", "synchronous_commit": "on"}}}
	r.AddTrial("raw COPY", "PostgreSQL alone", map[string]float64{"seconds": 0.5, "messages_per_second": 2_000_000, "share_of_raw_copy": 1})
	r.AddTrial("naive", "one INSERT per message", map[string]float64{"seconds": 10, "messages_per_second": 10_000,
		"share_of_raw_copy": 0.005, "server_cpu_seconds": 2.5, "server_peak_rss_bytes": 50 << 20})
	r.AddTrial("auto", "group commit", map[string]float64{"seconds": 0.6, "messages_per_second": 1_666_666.7,
		"share_of_raw_copy": 0.8333, "latency_p99_ms": 1.2345, "rows_verified": 999_999})
	r.Check("auto: rows equal sent", false, "1 lost")
	r.Check("naive: rows equal sent", true, "all")
	compare(t, r, "ingest.txt")
}

func TestTable_GoldenChat(t *testing.T) {
	t.Parallel()
	r := bench.NewResult("chat-saturation", nil)
	r.Environment = bench.Environment{CPU: "Some CPU", Cores: 2, MemoryBytes: 24 << 30, OS: "linux/amd64", Kernel: "6.1"}
	r.AddTrial("tidewire 1000 clients", "serve --only chat", map[string]float64{
		"messages_per_second": 5000, "offered": 150_000, "accepted": 150_000, "unsent": 0, "received": 149_850_000, "lost": 0, "deliveries_per_second": 4_995_000, "drop_rate": 0, "errors": 0,
		"connections": 1000, "peak_connections": 1000, "latency_p50_ms": 4.321, "latency_p99_ms": 9.876,
		"server_cpu_cores": 0.72, "server_cpu_seconds_per_million_deliveries": 0.144, "server_peak_rss_bytes": 40 << 20, "binary_bytes": 26 << 20,
	})
	r.AddTrial("other 1000 clients", "", map[string]float64{"deliveries_per_second": 950_000, "drop_rate": 0.78123, "errors": 7, "unsent": 12, "lost": 117_067_000})
	r.AddNote("absent", "", "not built: needs cargo")
	r.Row("tidewire 1000 clients").Verdicts = []bench.Check{{Name: "no crash", OK: true, Detail: "fine"}, {Name: "no decay", Detail: "half"}}
	r.Check("sent", true, "all")
	compare(t, r, "chat.txt")
}

func compare(t *testing.T, r *bench.Result, file string) {
	t.Helper()
	r.Finish()
	var out strings.Builder
	if err := report.Table(&out, r); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", file)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
