package report_test

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/report"
)

// blank is a result without rows, from some machine at some time.
func blank(scenario string, params map[string]any) *bench.Result {
	r := bench.NewResult(scenario, params)
	r.Started = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r.Environment = bench.Environment{
		CPU: "Some CPU", Cores: 8, MemoryBytes: 32 << 30, OS: "linux/amd64 debian 12", Kernel: "6.1", Go: "go1.26", Commit: "0123abcd",
		PostgreSQL: &bench.PostgreSQL{
			Version: "18.3", Disk: "ext4 on /dev/sda", SyncP50Ms: 0.14, SyncP99Ms: 3.7,
			Durability: map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"},
			Settings:   map[string]string{"shared_buffers": "262144", "max_wal_size": "4096"},
		},
	}
	return r
}

// latencies are a made-up distribution with a long tail, the same in each run.
func latencies(median time.Duration, n int) *bench.Histogram {
	h := bench.NewHistogram()
	for i := range n {
		q := (float64(i) + 0.5) / float64(n)
		h.Record(time.Duration(float64(median) * (0.5 + q + 0.25*math.Pow(1/(1-q), 0.55))))
	}
	return h
}

// queueFixture has two strategies, three repeats, raw data and two checkpoints.
func queueFixture(name string) *bench.Result {
	r := blank("queue", map[string]any{"payload": 1024, "writers": 10, "strategies": []string{"skip-locked", "lease"},
		"prices": map[string]any{"per_year": 700, "per_gb_month": 0.1}})
	r.Command = "tidewire bench queue --strategy skip-locked,lease --repeat 3 --config " + name + ".rerun.toml"
	for trial := range 3 {
		for i, strategy := range []string{"skip-locked", "lease"} {
			rate := []float64{4100, 15_600}[i] * (1 + 0.03*float64(trial-1))
			m := map[string]float64{
				"messages_per_second": rate, "read_messages_per_second": rate, "seconds": 30, "wal_bytes_per_message": 1217,
				"table_bytes_per_message": 1100, "index_bytes_per_message": 90, "lost": 0, "duplicated": 0,
			}
			for kind, median := range map[string]time.Duration{"write_": 2 * time.Millisecond, "end_to_end_": 6 * time.Millisecond} {
				h := latencies(median*time.Duration(3-2*i), 20_000)
				h.Metrics(m, kind)
			}
			r.Recording.Latencies(strategy, trial, "end_to_end_", latencies(6*time.Millisecond*time.Duration(3-2*i), 20_000))
			r.Recording.Latencies(strategy, trial, "write_", latencies(2*time.Millisecond*time.Duration(3-2*i), 20_000))
			r.AddTrial(strategy, "as it is", m)
			seconds(&r.Recording, strategy, trial, rate, 36)
			r.Check(fmt.Sprintf("%s: every message read once", strategy), true, "all of them, repeat %d", trial+1)
		}
	}
	r.Row("lease").Limiter, r.Row("skip-locked").Limiter = bench.LimitWaiting, bench.LimitPostgreSQL
	return r
}

// seconds adds ticks: two of warm-up, the measurement, two of drain.
func seconds(to *bench.Recording, row string, trial int, rate float64, n int) {
	for i := range n {
		phase, wave := bench.PhaseMeasured, math.Sin(float64(i)/4)
		switch {
		case i < 2:
			phase = bench.PhaseWarmUp
		case i >= n-2:
			phase = bench.PhaseDrain
		}
		m := map[string]float64{
			"messages_per_second": rate * (1 + 0.04*wave), "latency_p50_ms": 3 + 0.2*wave, "latency_p99_ms": 9 + 2*wave, "latency_p999_ms": 20 + 5*wave,
			"server_cpu_cores": 0.8 + 0.05*wave, "postgres_cpu_cores": 1.9 + 0.2*wave, "generator_cpu_cores": 0.7,
			"server_rss_bytes": 60e6 + 2e4*float64(i) + 1e5*wave, "generator_rss_bytes": 40e6,
		}
		if i%15 == 12 {
			m["postgres_checkpoints"], m["latency_p999_ms"] = 1, 140
		}
		to.Tick(bench.Tick{Row: row, Trial: trial, Phase: phase, At: float64(i + 1), Seconds: 1, Metrics: m})
	}
}

// ceilingFixture has the steps of two strategies. One has a marked knee; the
// other's must be found.
func ceilingFixture() *bench.Result {
	r := blank("pubsub", map[string]any{"payload": 200, "consumer_groups": 5})
	for _, strategy := range []struct {
		name string
		most float64
	}{{"log", 80_000}, {"counter-rows", 22_000}} {
		for _, offered := range []float64{5000, 10_000, 20_000, 40_000, 60_000, 80_000, 100_000} {
			done := min(offered, strategy.most*1.02)
			p50 := 2 / (1.02 - min(offered/strategy.most/1.05, 1))
			m := map[string]float64{
				"offered_messages_per_second": offered, "messages_per_second": done, "read_messages_per_second": 5 * done,
				"end_to_end_latency_p50_ms": p50, "end_to_end_latency_p99_ms": 2.5 * p50, "end_to_end_latency_p999_ms": 5 * p50,
			}
			if strategy.name == "counter-rows" && offered == 20_000 {
				m["knee"] = 1
			}
			r.AddTrial(fmt.Sprintf("%s %.0f/s", strategy.name, offered), "", m)
		}
	}
	r.Check("every message read by every group", true, "all")
	return r
}

// soakFixture is a long run of a chat whose server's memory grows.
func soakFixture() *bench.Result {
	r := blank("chat-steady", map[string]any{"mode": "soak300"})
	r.Environment.PostgreSQL = nil
	r.AddTrial("tidewire", "", map[string]float64{
		"messages_per_second": 100, "deliveries_per_second": 9900, "latency_p50_ms": 1.6, "latency_p99_ms": 2.1, "seconds": 300, "server_peak_rss_bytes": 62e6,
		"server_rss_slope_bytes_per_second": 20_000, "server_rss_slope_low_bytes_per_second": 15_000, "server_rss_slope_high_bytes_per_second": 25_000,
	})
	seconds(&r.Recording, "tidewire", 0, 100, 300)
	r.Rows[0].Limiter = bench.LimitRate
	r.Rows[0].Verdicts = []bench.Check{{Name: "no decay", OK: true, Detail: "last fifth did 1.000 of the first"}, {Name: "no growth", Detail: "memory +19.5 KiB/s"}}
	r.Check("every chat reached every other member", true, "all")
	return r
}

// invalidFixture lost messages.
func invalidFixture() *bench.Result {
	r := blank("ingest", map[string]any{"payload": 100})
	r.Environment.Commit += "+changes"
	r.Environment.PostgreSQL.Durability["fsync"] = "off"
	r.AddTrial("naive", "one INSERT per message", map[string]float64{"seconds": 10, "messages_per_second": 10_000})
	r.AddTrial("auto", "group commit", map[string]float64{"seconds": 0.6, "messages_per_second": 1_666_667, "latency_p50_ms": 0.5, "latency_p99_ms": 1.2345})
	r.Check("auto: rows equal sent", false, "1 lost of 1,000,000")
	r.Check("naive: rows equal sent", true, "all")
	r.Thresholds = []bench.Check{{Name: "p99<1ms", Detail: "auto 1.2345"}}
	return r
}

// open writes the result, and reads it with the files beside it.
func open(t *testing.T, name string, r *bench.Result) report.File {
	t.Helper()
	r.Finish()
	path := filepath.Join(t.TempDir(), name+".json")
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	f, err := report.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
