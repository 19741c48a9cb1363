package scenario

import (
	"testing"

	"github.com/tidewire/tidewire/bench"
)

// TestCheckSent: one in a hundred may be missing, of what was sent and what was not
// or of what the metrics say.
func TestCheckSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		metrics map[string]float64
		valid   bool
	}{
		"nothing unsent":         {map[string]float64{"sent": 100}, true},
		"one of a hundred":       {map[string]float64{"sent": 99, "unsent": 1}, true},
		"two of a hundred":       {map[string]float64{"sent": 98, "unsent": 2}, false},
		"sent late, one of 100":  {map[string]float64{"offered": 100, "sent": 100, "unsent": 1}, true},
		"sent late, more of 100": {map[string]float64{"offered": 100, "sent": 100, "unsent": 1.1}, false},
		"nothing at all":         {map[string]float64{"unsent": 5}, false},
	} {
		result := bench.NewResult("ingest", nil)
		result.Check("another", true, "")
		checkSent(result, "row", c.metrics)
		if result.Finish(); result.Valid != c.valid {
			t.Errorf("%s: valid %v, want %v: %+v", name, result.Valid, c.valid, result.Checks)
		}
	}
}

func TestAddTrial_SaysWhatLimits(t *testing.T) {
	t.Parallel()
	result := bench.NewResult("lanes", nil)
	m := map[string]float64{"seconds": 1, "messages_per_second": 100, "latency_p99_ms": 10, "generator_late_p99_ms": 1}
	addTrial(result, "row", "", m, 100)
	if got := result.Row("row").Limiter; got != bench.LimitRate {
		t.Errorf("%q, want %q", got, bench.LimitRate)
	}
	m["generator_late_p99_ms"] = 5
	addTrial(result, "late", "", m, 100)
	if got := result.Row("late").Limiter; got != bench.LimitGenerator {
		t.Errorf("%q, want %q", got, bench.LimitGenerator)
	}
}
