package report

import (
	"math"
	"testing"
	"time"

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

func TestTypical_NearestToTheMedian(t *testing.T) {
	t.Parallel()
	var r bench.Result
	var ticks []bench.Tick
	for trial, rate := range []float64{10, 30, 21} {
		r.AddTrial("row", "", map[string]float64{"messages_per_second": rate})
		ticks = append(ticks, bench.Tick{Row: "row", Trial: trial})
	}
	if got, _ := typical(r.Row("row"), ticks); len(got) != 1 || got[0].Trial != 2 {
		t.Errorf("ticks %v, want those of trial 2", got)
	}
}

// TestCurves_EndAtTheirSlowest: 100 latencies have no 99.9th percentile, and more
// lines than styles need a second chart.
func TestCurves_EndAtTheirSlowest(t *testing.T) {
	t.Parallel()
	r := &bench.Result{Scenario: "queue"}
	for row := range styles + 1 {
		h := bench.NewHistogram()
		for i := range 100 {
			h.Record(time.Duration(i+1) * time.Millisecond)
		}
		r.Recording.Latencies(string(rune('a'+row)), 0, "", h)
	}
	charts := curves("id", []File{{Result: r}})
	if len(charts) != 2 || len(charts[0].Series) != styles || len(charts[1].Series) != 1 {
		t.Fatalf("%d charts", len(charts))
	}
	c := charts[0]
	values := c.Series[0].Values
	if last := values[len(values)-1]; math.Abs(float64(c.X[len(c.X)-1])-100) > 1e-6 || math.Abs(float64(last)-99) > 1.1 {
		t.Errorf("ends at %v with %v ms, want 100 with 99 to 100", c.X[len(c.X)-1], last)
	}
	if last := c.XAxis.Ticks[len(c.XAxis.Ticks)-1].Label; last != "99 %" {
		t.Errorf("last label %q", last)
	}
}

func TestAxis_Fit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		log       bool
		low, high float64
		min, max  num
	}{
		{true, 3, 180, 2, 200},
		{true, 0.03, 0.03, 0.02, 0.05},
		{true, 5, 5, 5, 10},
		{false, 0, 43, 0, 50},
		{false, 0, 0, 0, 1},
	} {
		a := axis{Log: c.log}
		a.fit(c.low, c.high, true)
		if math.Abs(float64(a.Min-c.min)) > 1e-9 || math.Abs(float64(a.Max-c.max)) > 1e-9 || len(a.Ticks) < 2 {
			t.Errorf("%v: %v to %v with %v", c, a.Min, a.Max, a.Ticks)
		}
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
