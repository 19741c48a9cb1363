package bench

import "testing"

func TestLimiter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		metrics map[string]float64
		offered float64
		want    string
	}{
		{"a late generator", map[string]float64{"seconds": 10, "latency_p99_ms": 10, "generator_late_p99_ms": 2.1}, 0, LimitGenerator},
		{"one that is late a little", map[string]float64{"seconds": 10, "latency_p99_ms": 10, "generator_late_p99_ms": 1.9}, 0, LimitWaiting},
		{"late, at the rate", map[string]float64{"seconds": 10, "messages_per_second": 100, "latency_p99_ms": 10, "generator_late_p99_ms": 3}, 100, LimitGenerator},
		{"the rate", map[string]float64{"seconds": 10, "messages_per_second": 99.5, "generator_cpu_seconds": 9}, 100, LimitRate},
		{"the rate, and a core of the generator", map[string]float64{"seconds": 10, "messages_per_second": 99.5, "generator_cpu_seconds": 12}, 100, LimitGenerator},
		{"not the rate", map[string]float64{"seconds": 10, "messages_per_second": 90, "postgres_cpu_seconds": 18}, 100, LimitPostgreSQL},
		{"a core of the generator", map[string]float64{"seconds": 10, "generator_cpu_seconds": 9.8, "server_cpu_seconds": 10}, 0, LimitGenerator},
		{"the server", map[string]float64{"seconds": 10, "generator_cpu_seconds": 7, "server_cpu_seconds": 11}, 0, LimitServer},
		{"the rate, half of it lost", map[string]float64{"seconds": 10, "messages_per_second": 100, "drop_rate": 0.5, "server_cpu_seconds": 17}, 100, LimitServer},
		{"the rate of connections", map[string]float64{"seconds": 10, "connections_per_second": 99.9}, 100, LimitRate},
		{"nobody", map[string]float64{"seconds": 10, "generator_cpu_seconds": 3, "postgres_cpu_seconds": 9}, 0, LimitWaiting},
		{"nothing measured", map[string]float64{}, 0, ""},
	} {
		if got := Limiter(c.metrics, 2, c.offered); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
