package bench

import (
	"fmt"
	"slices"
	"strings"
)

// measures lists the metrics of a scenario's rows. Some of them exist only with certain flags.
type measures struct {
	names     []string
	latencies []string // prefixes of latencies
	ceiling   bool     // the scenario has --find-ceiling
}

var (
	queueMeasures = measures{
		names: []string{
			"cost_per_million_messages", "cost_per_year", "dead_tuples", "depth_at_end", "disk_gigabytes", "disk_writes_per_second", "drain_seconds",
			"duplicated", "errors", "generator_cpu_seconds", "generator_cpu_share", "generator_late_p99_ms", "gigabytes_per_day", "index_bytes",
			"index_bytes_per_message", "last_fifth_share", "lost", "messages_per_second", "postgres_cpu_seconds", "postgres_cpu_share", "read",
			"read_bytes_per_second", "read_messages_per_second", "reordered", "rows_verified", "seconds", "sent", "server_cpu_seconds", "server_cpu_share",
			"server_peak_rss_bytes", "table_bytes_per_message", "unsent", "wal_bytes_per_message", "wire_bytes_per_delivery", "write_bytes_per_second", "write_messages_per_second",
		},
		latencies: []string{"write_", "read_", "end_to_end_"},
		ceiling:   true,
	}
	measured = map[string]measures{
		"queue":  queueMeasures,
		"pubsub": queueMeasures,
		"ingest": {
			names: []string{
				"connections", "duplicated", "generator_cpu_seconds", "generator_late_p99_ms", "lost", "messages_per_second", "offered",
				"postgres_cpu_seconds", "reordered", "rows_verified", "seconds", "sent", "server_cpu_seconds", "server_peak_rss_bytes", "share_of_raw_copy",
				"unsent", "wal_bytes_per_message", "write_transactions",
			},
			latencies: []string{""},
			ceiling:   true,
		},
		"events": {
			names: []string{
				"allocs_per_call", "bytes_per_call", "calls_per_second", "compare_calls_per_second", "compare_latency_p50_ms", "compare_latency_p99_ms",
				"errors", "events_per_second", "gain", "generator_cpu_seconds", "generator_cpu_share", "limit_exceeded_rate", "messages_per_second",
				"postgres_cpu_seconds", "postgres_cpu_share", "seconds", "server_cpu_seconds", "server_cpu_share", "success_rate", "wal_bytes_per_event",
			},
			latencies: []string{""},
			ceiling:   true,
		},
		"chat": {
			names: []string{
				"accepted", "binary_bytes", "connections", "connections_per_second", "deliveries", "deliveries_per_second", "drop_rate",
				"due_deliveries_per_second", "duplicated", "errors", "errors_first_fifth", "errors_last_fifth", "expected", "generator_cpu_seconds",
				"generator_late_p99_ms", "lost", "messages_per_second", "offered", "peak_connections", "rate_limited", "received", "reordered", "seconds",
				"sent", "server_cpu_cores", "server_cpu_seconds", "server_cpu_seconds_per_million_deliveries", "server_peak_rss_bytes",
				"server_rss_slope_bytes_per_second", "server_rss_slope_high_bytes_per_second", "server_rss_slope_low_bytes_per_second",
				"throughput_last_to_first_fifth", "unsent", "wire_bytes_per_delivery",
			},
			latencies: []string{"", "connect_"},
			ceiling:   true,
		},
		"lanes": {
			names: []string{
				"bytes_per_second", "dummies", "dummy_bytes", "generator_cpu_seconds", "generator_late_p99_ms", "latency_mean_worst_ms", "lost",
				"messages_per_second", "offered", "received", "reordered", "seconds", "sent", "server_cpu_seconds", "server_peak_rss_bytes", "unsent",
			},
			latencies: []string{""},
		},
		"echo": {
			names: []string{
				"connections", "generator_cpu_seconds", "lost", "messages_per_second", "received", "seconds", "sent", "server_cpu_seconds", "server_peak_rss_bytes",
			},
			latencies: []string{""},
		},
		"cluster": {
			names: []string{
				"acknowledged", "delivered", "errors", "faults", "generator_cores", "messages_per_second", "postgres_cores", "presence_max_ms",
				"presence_p50_ms", "seconds", "sent", "server_cores", "told", "told_max_ms", "told_p50_ms",
			},
		},
		"failover": {
			names: []string{
				"acknowledged", "delivered", "errors", "lost", "outage_max_ms", "outage_p50_ms", "pause_max_ms", "pause_p50_ms", "promotions", "redelivered", "told", "unfenced",
			},
		},
		"idle": {
			names:     []string{"connections", "connections_per_second", "server_rss_bytes", "server_rss_bytes_per_connection"},
			latencies: []string{"connect_"},
		},
	}
	// ceilingMetrics are the additional metrics of rows of --find-ceiling.
	ceilingMetrics = []string{"kept", "knee", "knee_per_second", "offered_messages_per_second"}
	// quantiles are the names that Histogram.Metrics uses.
	quantiles = []string{"mean", "p50", "p90", "p95", "p99", "p999", "max"}
)

// withCeiling returns the names of the metrics, with those of --find-ceiling if the scenario has
// it.
func (m measures) withCeiling() []string {
	if m.ceiling {
		return slices.Concat(m.names, ceilingMetrics)
	}
	return m.names
}

// Metrics returns the metrics that rows of a scenario may have, by the name of its command.
func Metrics(scenario string) []string {
	m := measured[scenario]
	all := slices.Clone(m.withCeiling())
	for _, prefix := range m.latencies {
		for _, q := range quantiles {
			all = append(all, prefix+"latency_"+q+"_ms")
		}
	}
	return all
}

// In checks that rows of a scenario can have the threshold's metric. The error lists
// the metrics that they can have.
func (t Threshold) In(scenario string) error {
	if slices.Contains(Metrics(scenario), t.metric) {
		return nil
	}
	m := measured[scenario]
	others := strings.Join(m.withCeiling(), ", ")
	if len(m.latencies) == 0 {
		return fmt.Errorf("threshold %q: bench %s does not measure %s. It measures %s", t.text, scenario, t.written, others)
	}
	short := make([]string, len(m.latencies))
	for i, prefix := range m.latencies {
		short[i] = prefix + "p99"
	}
	return fmt.Errorf("threshold %q: bench %s does not measure %s. Its latencies are %s (or p50, p90, p95, p99.9, max, mean). It also measures %s",
		t.text, scenario, t.written, strings.Join(short, ", "), others)
}

// OfReading reports whether rows have the metric only if something reads.
func (t Threshold) OfReading() bool {
	return strings.HasPrefix(t.metric, "read_") || strings.HasPrefix(t.metric, "end_to_end_")
}

// OfLatency reports whether the metric is a latency.
func (t Threshold) OfLatency() bool { return strings.Contains(t.metric, "latency_") }
