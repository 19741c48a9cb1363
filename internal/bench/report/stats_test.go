package report_test

import (
	"math"
	"testing"

	"github.com/tidewire/tidewire/internal/bench/report"
)

// TestInterval_KnownData: for few repeats the values come from tables of
// Student's t, for many from the order statistics of a binomial distribution.
func TestInterval_KnownData(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values            []float64
		center, low, high float64
	}{
		{[]float64{10, 12, 14}, 12, 12 - 4.30265*2/math.Sqrt(3), 12 + 4.30265*2/math.Sqrt(3)},
		{[]float64{1, 9}, 5, 0, 5 + 12.7062*math.Sqrt(32)/math.Sqrt(2)}, // no rate is below 0
		{[]float64{6, 1, 5, 2, 4, 3}, 3.5, 1, 6},                        // 1 - 2/2^6 = 96.9 %
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 5.5, 2, 9},           // 1 - 22/2^10 = 97.9 %
		{[]float64{-3, -2, -1}, -2, -2 - 4.30265/math.Sqrt(3), -2 + 4.30265/math.Sqrt(3)},
		{[]float64{5, 5, 5}, 5, 5, 5},
	} {
		center, low, high := report.Interval(c.values)
		if math.Abs(center-c.center) > 1e-9 || math.Abs(low-c.low) > 1e-3 || math.Abs(high-c.high) > 1e-3 {
			t.Errorf("%v: %g from %g to %g, want %g from %g to %g", c.values, center, low, high, c.center, c.low, c.high)
		}
	}
	if center, low, high := report.Interval([]float64{7}); center != 7 || !math.IsNaN(low) || !math.IsNaN(high) {
		t.Errorf("one value: %g from %g to %g", center, low, high)
	}
	if center, _, _ := report.Interval(nil); !math.IsNaN(center) {
		t.Errorf("of none: %g", center)
	}
}
