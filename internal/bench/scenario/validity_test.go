package scenario

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// withoutTime removes the checks that also fail on a machine without free CPU time.
func withoutTime(result *bench.Result) {
	result.Checks = slices.DeleteFunc(result.Checks, func(c bench.Check) bool {
		return strings.HasSuffix(c.Name, ": the load was sent") || strings.HasSuffix(c.Name, ": there was something to measure")
	})
}

// nothingMeasured checks that a result is invalid only because nothing was measured. On
// a machine without free CPU time, something may have been measured after all.
func nothingMeasured(t *testing.T, result *bench.Result, metric string) {
	t.Helper()
	row := result.Rows[0]
	result.Finish()
	if row.Metrics[metric] > 0 {
		t.Logf("measured: %v", row.Metrics[metric])
	} else if result.Valid {
		t.Errorf("valid, and nothing was measured: %+v", result.Checks)
	}
	withoutTime(result)
	if result.Finish(); !result.Valid {
		t.Errorf("another check failed: %+v", result.Checks)
	}
}

// TestNothingMeasured_Queue: the only message is written and read before the measured phase.
func TestNothingMeasured_Queue(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]QueueLoad{
		"queue":        {Mode: "queue", Strategy: "lease", Readers: 1, ReadBatch: 10},
		"publish only": {Mode: "pubsub", Strategy: "log"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Open(t)
			load.Writers, load.InFlight, load.Batch, load.Payload, load.Rate = 1, 1, 1, 64, 0.01
			result := bench.NewResult(load.Mode, nil)
			err := Queue(t.Context(), QueueConfig{
				QueueLoad: load, Strategies: []string{load.Strategy}, Repeat: 1, WarmUp: 300 * time.Millisecond, Duration: 100 * time.Millisecond,
				Report: time.Second, Pool: db.Pool, Database: db.URL, Part: testWorker, Progress: t.Logf,
			}, result)
			if err != nil {
				t.Fatal(err)
			}
			nothingMeasured(t, result, "messages_per_second")
		})
	}
}

// TestCheckSent: at most one message in a hundred may be unsent, of those sent and
// unsent, or of the number in the metrics.
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
