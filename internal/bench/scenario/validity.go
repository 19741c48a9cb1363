package scenario

import (
	"maps"

	"github.com/tidewire/tidewire/internal/bench"
)

// mostUnsent is the share of an offered load that may be left unsent until a
// result is about something else.
const mostUnsent = 0.01

// limiterOf is what limited a row whose latencies have that prefix.
func limiterOf(m map[string]float64, prefix string, offered float64) string {
	m = maps.Clone(m)
	m["latency_p99_ms"] = m[prefix+"latency_p99_ms"]
	return bench.Limiter(m, cores(), offered)
}

// addTrial adds a repeat to a row and says what limits the row; offered is the rate
// that was asked for, or 0.
func addTrial(result *bench.Result, name, description string, m map[string]float64, offered float64) {
	result.AddTrial(name, description, m)
	row := result.Row(name)
	row.Limiter = limiterOf(row.Metrics, "", offered)
}

// lateMetric adds how late the generator was, if it had times to keep.
func lateMetric(m map[string]float64, late *bench.Histogram) {
	if late.Count() > 0 {
		m["generator_late_p99_ms"] = late.Quantile(0.99).Seconds() * 1000
	}
}

// checkSent makes a result invalid of which more than 1 % of what was offered was
// not sent in time. What was offered is what was sent and what was not, unless the
// metrics say otherwise.
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

// checkMeasured makes a result invalid where a row's figures are about nothing: n of what
// was there to measure.
func checkMeasured(result *bench.Result, row string, n float64, what string) {
	result.Check(row+": there was something to measure", n > 0, "%g %s", n, what)
}
