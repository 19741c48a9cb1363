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
