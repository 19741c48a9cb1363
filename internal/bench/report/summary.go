package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// maxSummary is the largest number of rows that a summary describes; the table
// shows more.
const maxSummary = 12

// rates are the metrics in order of preference: a row is judged by the first that it has.
var rates = []struct{ metric, unit string }{
	{"deliveries_per_second", "deliveries/s"}, {"calls_per_second", "calls/s"}, {"messages_per_second", "msg/s"}, {"connections_per_second", "connections/s"},
}

// summary says for each row what it sustained, with the confidence interval,
// its latency, its limit and its cost, and which thresholds were kept.
func summary(r *bench.Result) string {
	var b strings.Builder
	if len(r.Rows) <= maxSummary {
		for _, row := range r.Rows {
			if line := rowSummary(row); line != "" {
				fmt.Fprintf(&b, "%s: %s\n", row.Name, line)
			}
		}
	}
	for _, c := range r.Thresholds {
		word := "missed"
		if c.OK {
			word = "kept"
		}
		fmt.Fprintf(&b, "threshold %s %s: %s\n", c.Name, word, c.Detail)
	}
	return b.String()
}

func rowSummary(row bench.Row) string {
	var parts []string
	for _, rate := range rates {
		if speaks(row, rate.metric) {
			parts = append(parts, sustained(summarise(trials(row, rate.metric)), rate.unit))
			break
		}
	}
	if len(parts) == 0 {
		return row.Note
	}
	prefix := latencyPrefix(row.Metrics)
	var latencies []string
	for _, q := range []struct{ name, short string }{{"p50", "p50"}, {"p99", "p99"}, {"p999", "p99.9"}} {
		if v, ok := row.Metrics[prefix+"latency_"+q.name+"_ms"]; ok {
			latencies = append(latencies, q.short+" "+figure(v))
		}
	}
	if len(latencies) > 0 {
		unit := " ms"
		if prefix == "connect_" {
			unit += " to connect"
		}
		parts = append(parts, strings.Join(latencies, ", ")+unit)
	}
	if row.Limiter != "" {
		parts = append(parts, "limited by "+row.Limiter)
	}
	if cost, ok := row.Metrics["server_cpu_seconds_per_million_deliveries"]; ok {
		parts = append(parts, figure(cost)+" CPU s per million deliveries")
	} else if cost, ok := cpuPerMillion(row.Metrics); ok {
		parts = append(parts, figure(cost)+" CPU s per million messages")
	}
	if row.Note != "" {
		parts = append(parts, row.Note)
	}
	return strings.Join(parts, "; ")
}

func sustained(s Summary, unit string) string {
	text := count(s.Median) + " " + unit
	if math.IsNaN(s.Low) {
		return text + " (one trial: indicative)"
	}
	return fmt.Sprintf("%s (95 %% interval %s to %s, %d trials)", text, count(s.Low), count(s.High), s.Trials)
}

// cpuPerMillion returns the CPU time that the server and PostgreSQL used for a million messages.
func cpuPerMillion(m map[string]float64) (float64, bool) {
	messages := m["messages_per_second"] * m["seconds"]
	used := m["server_cpu_seconds"] + m["postgres_cpu_seconds"]
	if messages == 0 || used == 0 {
		return 0, false
	}
	return used / messages * 1e6, true
}
