package report

import (
	"fmt"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// enough is the share of due deliveries that must have arrived before a row's
// latency and CPU time may be compared: a server that loses messages has less
// work.
const enough = 0.99

// judged lists the columns in which a row may be better than the reference.
// Less is better in all of them.
var judged = []struct {
	head, metric string
	format       func(float64) string
	arrived      bool // counts only if enough deliveries arrived
}{
	{"lost share", "drop_rate", share, false},
	{"errors", "errors", count, false},
	{"p50 ms", "latency_p50_ms", fixed(2), true},
	{"p95 ms", "latency_p95_ms", fixed(2), true},
	{"p99 ms", "latency_p99_ms", fixed(2), true},
	{"connect p95 ms", "connect_latency_p95_ms", fixed(2), false},
	{"CPU s/M", "server_cpu_seconds_per_million_deliveries", fixed(3), true},
	{"peak MiB", "server_peak_rss_bytes", mib, false},
	{"binary MiB", "binary_bytes", tenths, false},
}

// betterServers returns a sentence for each row that is better than the reference
// under the same load, with the columns in which it is better.
func betterServers(r *bench.Result) (all []string) {
	for _, own := range r.Rows {
		if own.Labels["profile"] != Reference {
			continue
		}
		for _, other := range r.Rows {
			if other.Labels["profile"] == Reference || loadOf(other) != loadOf(own) {
				continue
			}
			if better := advantages(other, own); len(better) > 0 {
				all = append(all, fmt.Sprintf("%s is better than %s in %s.", other.Name, own.Labels["target"], strings.Join(better, ", ")))
			}
		}
	}
	return all
}

// loadOf returns the part of a row's name after the target.
func loadOf(row bench.Row) string { return strings.TrimPrefix(row.Name, row.Labels["target"]) }

// otherLoad reports whether two rows are known to have different loads.
func otherLoad(a, b bench.Row) bool {
	for _, row := range []bench.Row{a, b} {
		if target := row.Labels["target"]; target == "" || !strings.HasPrefix(row.Name, target) {
			return false
		}
	}
	return loadOf(a) != loadOf(b)
}

// advantages returns the columns in which other has a lower value than own.
func advantages(other, own bench.Row) (better []string) {
	arrived := other.Metrics["drop_rate"] <= 1-enough
	for _, j := range judged {
		theirs, ok := other.Metrics[j.metric]
		ours, known := own.Metrics[j.metric]
		if !ok || !known || theirs >= ours || j.arrived && !arrived || j.format(theirs) == j.format(ours) {
			continue
		}
		better = append(better, fmt.Sprintf("%s (%s against %s)", j.head, j.format(theirs), j.format(ours)))
	}
	return better
}
