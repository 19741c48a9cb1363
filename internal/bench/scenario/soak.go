package scenario

import (
	"fmt"
	"math"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// Limits for a soak's verdicts.
const (
	// decayShare is the minimum of what is done in the last fifth, as a share
	// of the first fifth.
	decayShare = 0.95
	// growthShare and growthBytes are the maximum growth of memory over the
	// whole run, with 95 % confidence. They allow for noise of the allocator.
	growthShare = 0.02
	growthBytes = 1 << 20
	// trendBlocks is the number of means that the memory's samples are reduced
	// to: neighbouring samples are correlated, and would make the interval too
	// narrow.
	trendBlocks = 20
)

// verdicts judges a long run, and adds the figures for that to the metrics.
func (r *chatRun) verdicts(m map[string]float64, stopped error) []bench.Check {
	first, last := r.fifths()
	ratio := last.work / first.work
	m["throughput_last_to_first_fifth"] = ratio
	m["errors_first_fifth"], m["errors_last_fifth"] = first.errors, last.errors
	verdicts := []bench.Check{
		{Name: "no crash", OK: stopped == nil, Detail: fmt.Sprint(stopped)},
		{Name: "no decay", OK: ratio >= decayShare, Detail: fmt.Sprintf("last fifth did %.3f of the first", ratio)},
		{Name: "errors not rising", OK: last.errors <= first.errors, Detail: fmt.Sprintf("%.0f in the first fifth, %.0f in the last", first.errors, last.errors)},
	}
	if stopped == nil {
		verdicts[0].Detail = "ended in good order when it was asked to"
	}
	if t, ok := memoryTrend(r.server); ok {
		m["server_rss_slope_bytes_per_second"] = t.slope
		m["server_rss_slope_low_bytes_per_second"], m["server_rss_slope_high_bytes_per_second"] = t.low, t.high
		grown := t.low * t.seconds
		verdicts = append(verdicts, bench.Check{
			Name: "no growth", OK: grown <= growthShare*t.mean+growthBytes,
			Detail: fmt.Sprintf("memory %+.1f KiB/s (95 %%: %+.1f to %+.1f) at %.1f MiB", t.slope/1024, t.low/1024, t.high/1024, t.mean/(1<<20)),
		})
	}
	return verdicts
}

type fifth struct{ work, errors float64 }

// fifths returns what was done in the first and the last fifth of the window:
// deliveries, or connections if no chats are sent.
func (r *chatRun) fifths() (first, last fifth) {
	from, to := r.window()
	length := (to.At - from.At) / 5
	a, b := r.markNear(from.At+length), r.markNear(to.At-length)
	return work(from, a), work(b, to)
}

func work(from, to bench.ChatMark) fifth {
	done := to.Deliveries - from.Deliveries
	if done == 0 {
		done = to.Connections - from.Connections
	}
	return fifth{float64(done) / (to.At - from.At).Seconds(), float64(to.Errors - from.Errors)}
}

func (r *chatRun) markNear(at time.Duration) (nearest bench.ChatMark) {
	distance := time.Duration(math.MaxInt64)
	for _, m := range r.seen.Marks {
		if d := (m.At - at).Abs(); d < distance {
			nearest, distance = m, d
		}
	}
	return nearest
}

// trend is a straight line through resident memory over time.
type trend struct {
	slope, low, high float64 // bytes/s, with its 95 % confidence interval
	mean             float64 // bytes
	seconds          float64 // of the samples it was fitted to
}

// memoryTrend fits a line by least squares. It leaves out the first fifth, in
// which a server still allocates what it needs.
func memoryTrend(samples bench.Samples) (trend, bool) {
	samples = samples[len(samples)/5:]
	if len(samples) < 2*trendBlocks {
		return trend{}, false
	}
	var x, y [trendBlocks]float64
	for i := range trendBlocks {
		block := samples[i*len(samples)/trendBlocks : (i+1)*len(samples)/trendBlocks]
		for _, s := range block {
			x[i] += s.At.Sub(samples[0].At).Seconds() / float64(len(block))
			y[i] += float64(s.RSSBytes) / float64(len(block))
		}
	}
	return fit(x[:], y[:]), true
}

// student is the 97.5 % quantile of Student's t with trendBlocks-2 degrees of
// freedom.
const student = 2.101

func fit(x, y []float64) trend {
	n := float64(len(x))
	var mx, my float64
	for i := range x {
		mx += x[i] / n
		my += y[i] / n
	}
	var sxx, sxy, rest float64
	for i := range x {
		sxx += (x[i] - mx) * (x[i] - mx)
		sxy += (x[i] - mx) * (y[i] - my)
	}
	slope := sxy / sxx
	for i := range x {
		d := y[i] - my - slope*(x[i]-mx)
		rest += d * d
	}
	margin := student * math.Sqrt(rest/(n-2)/sxx)
	return trend{slope, slope - margin, slope + margin, my, x[len(x)-1] - x[0]}
}
