package scenario

import (
	"context"
	"fmt"
	"math"

	"github.com/tidewire/tidewire/internal/bench"
)

// Ceiling configures FindCeiling.
type Ceiling struct {
	// Start is the first rate, in messages, calls or chats a second. Defaults to
	// 1,000.
	Start float64
	// Progress is called with lines about the progress.
	Progress func(format string, args ...any)
}

// Load runs at one rate and returns the metrics. step is its name in results.
type Load func(ctx context.Context, step string, rate float64) (map[string]float64, error)

const (
	// growth is the factor from one rate to the next while rates are kept. So a
	// step that fails is offered at most twice what can be kept, and a load with a
	// limit on messages in flight holds the rest back. The backlog is therefore
	// never longer than the step.
	growth = 2.0
	// kneeTolerance is the precision of the search for the knee.
	kneeTolerance = 1.05
	// keptShare is the share of a rate that must be done, and the share of the
	// load that must be sent, for the rate to be kept.
	keptShare = 0.99
	// kneeFactor limits the 99th percentile of a kept rate to a multiple of that
	// of the lowest rate. Below kneeFloor, in milliseconds, it is never too
	// high.
	kneeFactor, kneeFloor = 5, 5
	// sustainedShare is the share of the knee at which a system should run.
	sustainedShare = 0.7
	// maxSteps limits the search.
	maxSteps = 24
)

// FindCeiling searches for the knee, the highest rate that is kept: it raises the rate until
// one is not kept, and then halves the interval. After that it runs once more at 70 % of the
// knee. Each step is a row of the result, with the name and its rate. The knee's row has the
// metric knee; the last row, "name at 70 %", has knee_per_second beside its own figures. A
// rate is kept if 99 % of it is done, nothing is lost or piles up, and the 99th percentile of
// the latencies with this prefix stays below five times that of the first step.
func FindCeiling(ctx context.Context, c Ceiling, name, describe, prefix string, load Load, result *bench.Result) error {
	if c.Start <= 0 {
		c.Start = 1000
	}
	s := ceilingSearch{Ceiling: c, name: name, describe: describe, prefix: prefix, load: load, result: result}
	knee, err := s.knee(ctx)
	if err != nil {
		return err
	}
	if knee == 0 {
		return fmt.Errorf("%s does not keep up with %.0f a second, the lowest rate tried: begin lower, with --ceiling-start", name, s.lowest)
	}
	result.Row(s.step(knee)).Metrics["knee"] = 1
	m, _, err := s.try(ctx, sustainedShare*knee, name+" at 70 %")
	if err != nil {
		return err
	}
	row := result.Row(name + " at 70 %")
	checkMeasured(result, row.Name, m["messages_per_second"], "a second done")
	row.Metrics["knee_per_second"] = knee
	c.Progress("%s: the knee is %.0f a second; at 70 %% of it p99 is %.1f ms", name, knee, m[prefix+"latency_p99_ms"])
	return nil
}

type ceilingSearch struct {
	Ceiling
	name, describe, prefix string
	load                   Load
	result                 *bench.Result
	lowest                 float64 // rate tried
	p99                    float64 // of the first rate that was kept
}

func (s *ceilingSearch) step(rate float64) string { return fmt.Sprintf("%s %.0f/s", s.name, rate) }

// knee returns the highest rate that was kept, or 0.
func (s *ceilingSearch) knee(ctx context.Context) (float64, error) {
	low, high := 0.0, math.Inf(1)
	rate := s.Start
	s.lowest = rate
	for steps := 0; steps < maxSteps && (low == 0 || high/low > kneeTolerance); steps++ {
		rate = math.Round(rate)
		s.lowest = min(s.lowest, rate)
		_, kept, err := s.try(ctx, rate, s.step(rate))
		if err != nil {
			return 0, err
		}
		if kept {
			low = rate
		} else {
			high = rate
		}
		switch {
		case math.IsInf(high, 1):
			rate = low * growth
		case low == 0:
			rate = high / growth
		default:
			rate = (low + high) / 2
		}
		if rate < 1 {
			return 0, nil
		}
	}
	return low, nil
}

// try runs at one rate, and reports whether it was kept.
func (s *ceilingSearch) try(ctx context.Context, rate float64, row string) (map[string]float64, bool, error) {
	s.Progress("%s: %.0f a second", s.name, rate)
	m, err := s.load(ctx, row, rate)
	if err != nil {
		return nil, false, fmt.Errorf("at %.0f a second: %w", rate, err)
	}
	m["offered_messages_per_second"] = rate
	p99 := m[s.prefix+"latency_p99_ms"]
	if s.p99 == 0 {
		s.p99 = p99
	}
	kept := m["messages_per_second"] >= keptShare*rate && m["lost"] == 0 && m["unsent"] <= (1-keptShare)*(m["sent"]+m["unsent"]) &&
		m["depth_at_end"] <= rate && p99 <= max(kneeFactor*s.p99, kneeFloor)
	m["kept"] = 0
	if kept {
		m["kept"] = 1
	}
	s.result.AddTrial(row, s.describe, m)
	s.result.Row(row).Limiter = limiterOf(m, s.prefix, rate)
	word := "kept"
	if !kept {
		word = "not kept"
	}
	s.Progress("%s: %s: %.0f a second done, p99 %.1f ms", row, word, m["messages_per_second"], p99)
	return m, kept, nil
}
