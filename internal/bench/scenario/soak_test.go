package scenario

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// samples cover ten minutes, with noise of 1 MiB and a slope in bytes/s.
func samples(slope float64) bench.Samples {
	rng := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	var out bench.Samples
	for i := range 6000 {
		at := float64(i) / 10
		out = append(out, bench.Sample{
			At:       start.Add(time.Duration(i) * 100 * time.Millisecond),
			RSSBytes: uint64(50<<20 + slope*at + rng.Float64()*(1<<20)),
		})
	}
	return out
}

func TestMemoryTrend_FindsTheSlope(t *testing.T) {
	t.Parallel()
	for _, slope := range []float64{0, 10_000, -5000} {
		got, ok := memoryTrend(samples(slope))
		if !ok || got.low > slope || got.high < slope || math.Abs(got.slope-slope) > 500 {
			t.Errorf("slope %g: %+v", slope, got)
		}
	}
	if _, ok := memoryTrend(samples(0)[:10]); ok {
		t.Error("ten samples are a trend")
	}
}

func soakRun(slope float64, late bench.ChatMark) *chatRun {
	r := &chatRun{server: samples(slope)}
	for s := range 100 {
		m := bench.ChatMark{At: time.Duration(s) * time.Second, Deliveries: s * 1000}
		if s > 80 {
			m.Deliveries -= (s - 80) * late.Deliveries
			m.Errors = late.Errors
		}
		r.seen.Marks = append(r.seen.Marks, m)
	}
	r.seen.HoldStart, r.seen.HoldEnd = r.seen.Marks[0], r.seen.Marks[99]
	return r
}

func TestVerdicts_SayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run  *chatRun
		fail string
	}{
		"sound":  {soakRun(0, bench.ChatMark{}), ""},
		"leaks":  {soakRun(10_000, bench.ChatMark{}), "no growth"},
		"slower": {soakRun(0, bench.ChatMark{Deliveries: 200}), "no decay"},
		"errors": {soakRun(0, bench.ChatMark{Errors: 3}), "errors not rising"},
	} {
		failed := ""
		for _, v := range c.run.verdicts(map[string]float64{}, nil) {
			if !v.OK {
				failed += v.Name
			}
		}
		if failed != c.fail {
			t.Errorf("%s: failed %q, want %q", name, failed, c.fail)
		}
	}
}
