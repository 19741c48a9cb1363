package fairness_test

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// targetWaits are the waits of one target.
type targetWaits struct {
	name            string
	appends         int
	median, slowest time.Duration
}

// summary summarises the waits of the targets. A flooded target is not counted among
// the others.
type summary struct {
	targets []targetWaits // with a wait, those with the longest median first
	flooded *targetWaits  // nil: none is
	// medianOfMedians is the median of the targets' medians, and median that of all waits.
	medianOfMedians, median time.Duration
	slowest                 time.Duration // wait of all
	late                    time.Duration // 99th percentile of how late writers woke
}

// summarise leaves out the targets without a wait. One of them may be flooded, or nil.
func summarise(targets []*target, flooded *target) (s summary) {
	var all, late, medians []time.Duration
	for _, t := range targets {
		late = append(late, t.late...)
		if len(t.waits) == 0 {
			continue
		}
		w := targetWaits{t.name, len(t.waits), quantile(t.waits, 0.5), slices.Max(t.waits)}
		if t == flooded {
			s.flooded = &w
			continue
		}
		s.targets = append(s.targets, w)
		medians = append(medians, w.median)
		all = append(all, t.waits...)
		s.slowest = max(s.slowest, w.slowest)
	}
	slices.SortStableFunc(s.targets, func(a, b targetWaits) int { return int(b.median - a.median) })
	s.medianOfMedians, s.median, s.late = quantile(medians, 0.5), quantile(all, 0.5), quantile(late, 0.99)
	return s
}

// quantile returns the smallest of the times that is not less than the share q of them; 0
// if there are none.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// slowestMedian is that of the target with the longest median.
func (s summary) slowestMedian() time.Duration {
	if len(s.targets) == 0 {
		return 0
	}
	return s.targets[0].median
}

// metrics are the figures of a benchmark's line.
func (w targetWaits) metrics() map[string]float64 {
	return map[string]float64{"median-ms": milliseconds(w.median), "slowest-ms": milliseconds(w.slowest)}
}

// metrics are the figures of a benchmark's line: of all targets except the flooded one.
func (s summary) metrics() map[string]float64 {
	return map[string]float64{
		"median-ms":             milliseconds(s.medianOfMedians),
		"slowest-median-ms":     milliseconds(s.slowestMedian()),
		"slowest-ms":            milliseconds(s.slowest),
		"slowest-median/median": ratio(s.slowestMedian(), s.medianOfMedians),
		"slowest/median":        ratio(s.slowest, s.median),
		"late-p99-ms":           milliseconds(s.late),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ratio is 0 where there is nothing to compare with.
func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

const tableHead = "variant\ttarget\tflooded\tappends\tmedian_ms\tslowest_ms\n"

// write writes a line for each target, the flooded one first.
func (s summary) write(w io.Writer, variant string) error {
	all := s.targets
	if s.flooded != nil {
		all = append([]targetWaits{*s.flooded}, all...)
	}
	for i, t := range all {
		flooded := i == 0 && s.flooded != nil
		if _, err := fmt.Fprintf(w, "%s\t%s\t%t\t%d\t%.3f\t%.3f\n",
			variant, t.name, flooded, t.appends, milliseconds(t.median), milliseconds(t.slowest)); err != nil {
			return err
		}
	}
	return nil
}
