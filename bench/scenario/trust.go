package scenario

import (
	"maps"

	"github.com/tidewire/tidewire/bench"
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

// checkSent makes a result invalid of which more than 1 % of what was offered was
// not sent in time.
func checkSent(result *bench.Result, row string, m map[string]float64) {
	sent, unsent := m["sent"], m["unsent"]
	if unsent == 0 {
		return
	}
	result.Check(row+": the load was sent", unsent <= mostUnsent*(sent+unsent), "%.0f of %.0f messages were due and not sent", unsent, sent+unsent)
}
