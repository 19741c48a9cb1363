package report

import (
	"math"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
)

func TestNewTimeline_LongRun(t *testing.T) {
	t.Parallel()
	var ticks []bench.Tick
	for i := range 3 * mostPoints {
		m := map[string]float64{"messages_per_second": 100, "latency_p99_ms": 5}
		if i == 1000 {
			m["messages_per_second"], m["latency_p99_ms"], m[checkpointsMetric] = 40, 500, 1
		}
		phase := bench.PhaseMeasured
		if i < 10 {
			phase = bench.PhaseWarmUp
		}
		ticks = append(ticks, bench.Tick{Phase: phase, At: float64(i + 1), Seconds: 1, Metrics: m})
	}
	line := newTimeline("id", "row", ticks)
	if len(line.Charts) != 2 {
		t.Fatalf("%d charts, want messages and latency", len(line.Charts))
	}
	rate, latency := line.Charts[0], line.Charts[1]
	if len(rate.X) != mostPoints || rate.X[0] != 3 || rate.Series[0].Values[333] != 80 || latency.Series[0].Values[333] != 500 {
		t.Errorf("%d points from %v; around the checkpoint %v messages/s and %v ms", len(rate.X), rate.X[0],
			rate.Series[0].Values[333], latency.Series[0].Values[333])
	}
	if len(rate.Marks) != 1 || rate.Marks[0].At != 1001 || len(rate.Bands) != 1 || rate.Bands[0].To != 10 {
		t.Errorf("marks %v, bands %v", rate.Marks, rate.Bands)
	}
}

func TestFit_KnownLine(t *testing.T) {
	t.Parallel()
	var x, y []float64
	for i := range 200 {
		x, y = append(x, float64(i)), append(y, 10+0.5*float64(i)+math.Sin(float64(i)))
	}
	l, ok := fit(x, y)
	if !ok || math.Abs(l.slope-0.5) > 0.01 || l.low > 0.5 || l.high < 0.5 || l.high-l.low > 0.02 {
		t.Errorf("%+v", l)
	}
	if _, ok := fit(x[:2*trendBlocks-1], y); ok {
		t.Error("a line through too little")
	}
}
