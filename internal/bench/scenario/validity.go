package scenario

import (
	"maps"

	"github.com/tidewire/tidewire/internal/bench"
)

// mostUnsent is the maximum unsent share of an offered load: beyond it, a
// result no longer describes that load.
const mostUnsent = 0.01

// limiterOf returns what limited a row whose latencies have this prefix.
func limiterOf(m map[string]float64, prefix string, offered float64) string {
	m = maps.Clone(m)
	m["latency_p99_ms"] = m[prefix+"latency_p99_ms"]
	return bench.Limiter(m, cores(), offered)
}

// addTrial adds a repeat to a row and determines what limits the row. offered is
// the requested rate, or 0.
func addTrial(result *bench.Result, name, description string, m map[string]float64, offered float64) {
	result.AddTrial(name, description, m)
	row := result.Row(name)
	row.Limiter = limiterOf(row.Metrics, "", offered)
}

// lateMetric adds the lateness of the generator, if it had a schedule.
func lateMetric(m map[string]float64, late *bench.Histogram) {
	if late.Count() > 0 {
		m["generator_late_p99_ms"] = late.Quantile(0.99).Seconds() * 1000
	}
}

// checkSent makes a result invalid if more than 1 % of the offered messages were
// not sent in time. Offered means sent plus unsent, unless the metrics have
// another number.
func checkSent(result *bench.Result, row string, m map[string]float64) {
	unsent, offered := m["unsent"], m["offered"]
	if unsent == 0 {
		return
	}
	if offered == 0 {
		offered = m["sent"] + unsent
	}
	result.Check(row+": the load was sent", unsent <= mostUnsent*offered, "%.0f of %.0f messages were due and not sent in time", unsent, offered)
}

// checkMeasured makes a result invalid if a row measured nothing. n is the number of
// measured things.
func checkMeasured(result *bench.Result, row string, n float64, what string) {
	result.Check(row+": there was something to measure", n > 0, "%g %s", n, what)
}
