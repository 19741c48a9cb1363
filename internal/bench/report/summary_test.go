package report

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	r := bench.NewResult("queue", nil)
	for _, v := range []float64{990, 1000, 1010, 1005, 995, 1000} {
		r.AddTrial("lease", "", map[string]float64{"messages_per_second": v, "seconds": 10, "postgres_cpu_seconds": 5,
			"end_to_end_latency_p50_ms": 2.25, "end_to_end_latency_p99_ms": 12.5, "end_to_end_latency_p999_ms": 123.4})
	}
	r.Row("lease").Limiter = bench.LimitPostgreSQL
	r.AddTrial("room", "", map[string]float64{"deliveries_per_second": 4_999_999, "messages_per_second": 5000})
	r.AddTrial("churn", "", map[string]float64{"deliveries_per_second": 0, "messages_per_second": 0, "connections_per_second": 99.9, "connect_latency_p50_ms": 0.22, "connect_latency_p99_ms": 0.45})
	r.AddTrial("mute", "", map[string]float64{"deliveries_per_second": 0, "messages_per_second": 100, "connections_per_second": 0})
	r.AddNote("rust-axum", "", "not built: needs cargo")
	r.Thresholds = []bench.Check{{Name: "p99<25ms", OK: true, Detail: "lease 12.5"}, {Name: "lost==0", Detail: "no row has it"}}
	want := `lease: 1,000 msg/s (95 % interval 990 to 1,010, 6 trials); p50 2.25, p99 12.50, p99.9 123.4 ms; limited by PostgreSQL CPU; 500 CPU s per million messages
room: 4,999,999 deliveries/s (one trial: indicative)
churn: 100 connections/s (one trial: indicative); p50 0.22, p99 0.45 ms to connect
mute: 0 deliveries/s (one trial: indicative)
rust-axum: not built: needs cargo
threshold p99<25ms kept: lease 12.5
threshold lost==0 missed: no row has it
`
	if got := summary(r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for range maxSummary {
		r.AddTrial(strings.Repeat("x", len(r.Rows)), "", map[string]float64{"calls_per_second": 1})
	}
	if got := summary(r); strings.Contains(got, "lease: ") {
		t.Errorf("%d rows, and a line each:\n%s", len(r.Rows), got)
	}
}
