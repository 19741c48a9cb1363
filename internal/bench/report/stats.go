package report

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/tidewire/tidewire/internal/bench"
)

// confidence is the confidence level of every interval.
const confidence = 0.95

// Interval returns the median of repeats and its 95 % confidence interval. With
// six repeats or more the interval comes from their order alone, and holds for any
// distribution. Fewer repeats cannot bound a median that way: then it is Student's
// interval, which assumes a normal distribution. One repeat has no interval: low
// and high are NaN. If all repeats are 0 or more, low is not below 0.
func Interval(values []float64) (center, low, high float64) {
	if len(values) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	center = bench.Median(values)
	if len(values) == 1 {
		return center, math.NaN(), math.NaN()
	}
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	summary := benchmath.AssumeNothing.Summary(sample, confidence)
	if math.IsInf(summary.Lo, 0) || math.IsInf(summary.Hi, 0) {
		summary = benchmath.AssumeNormal.Summary(sample, confidence)
	}
	low, high = summary.Lo, summary.Hi
	if slices.Min(values) >= 0 {
		low = max(low, 0)
	}
	return center, low, high
}

const (
	// trendBlocks is the number of means that a series is reduced to before a line
	// is fitted: neighbouring seconds are correlated, and would make the interval
	// too narrow.
	trendBlocks = 20
	// student is the 97.5 % quantile of Student's t with trendBlocks-2 degrees of
	// freedom.
	student = 2.101
)

// line is a straight line through a series, by least squares.
type line struct {
	slope, low, high float64 // a second, with its 95 % confidence interval
	mean, seconds    float64 // of the series
}

// fit returns the line through values at times, in seconds; false if there are
// fewer than two values for each block.
func fit(times, values []float64) (line, bool) {
	if len(times) < 2*trendBlocks {
		return line{}, false
	}
	var x, y [trendBlocks]float64
	var mx, my float64
	for i := range trendBlocks {
		from, to := i*len(times)/trendBlocks, (i+1)*len(times)/trendBlocks
		x[i], y[i] = mean(times[from:to]), mean(values[from:to])
		mx += x[i] / trendBlocks
		my += y[i] / trendBlocks
	}
	var sxx, sxy, rest float64
	for i := range x {
		sxx += (x[i] - mx) * (x[i] - mx)
		sxy += (x[i] - mx) * (y[i] - my)
	}
	if sxx == 0 {
		return line{}, false
	}
	l := line{slope: sxy / sxx, mean: my, seconds: times[len(times)-1] - times[0]}
	for i := range x {
		d := y[i] - my - l.slope*(x[i]-mx)
		rest += d * d
	}
	half := student * math.Sqrt(rest/(trendBlocks-2)/sxx)
	l.low, l.high = l.slope-half, l.slope+half
	return l, true
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
