package bench

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histogram records durations from 1 us to 5 minutes with three significant
// digits. Not safe for concurrent use: give each goroutine its own Histogram
// and merge them.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram returns an empty Histogram.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(1, (5 * time.Minute).Microseconds(), 3)}
}

// Record adds one duration. A duration outside the range counts as the nearest bound.
func (h *Histogram) Record(d time.Duration) {
	h.h.RecordValue(min(max(d.Microseconds(), 1), h.h.HighestTrackableValue()))
}

// Merge adds all durations of other.
func (h *Histogram) Merge(other *Histogram) { h.h.Merge(other.h) }

// Reset removes all durations.
func (h *Histogram) Reset() { h.h.Reset() }

// Count is the number of durations recorded.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Quantile returns the duration that the share q (0 to 1) of all durations do not exceed.
func (h *Histogram) Quantile(q float64) time.Duration {
	return time.Duration(h.h.ValueAtQuantile(q*100)) * time.Microsecond
}

// Metrics adds the latency metrics to m, with prefix ("", "write_", "connect_",
// …) before each name. It adds nothing if nothing was recorded.
func (h *Histogram) Metrics(m map[string]float64, prefix string) {
	if h.Count() == 0 {
		return
	}
	ms := func(us float64) float64 { return us / 1000 }
	m[prefix+"latency_mean_ms"] = ms(h.h.Mean())
	for name, q := range map[string]float64{"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9} {
		m[prefix+"latency_"+name+"_ms"] = ms(float64(h.h.ValueAtQuantile(q)))
	}
	m[prefix+"latency_max_ms"] = ms(float64(h.h.Max()))
}

// MarshalText encodes the histogram, for another process to Merge.
func (h *Histogram) MarshalText() ([]byte, error) {
	return h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
}

// UnmarshalText is the inverse of MarshalText.
func (h *Histogram) UnmarshalText(text []byte) error {
	decoded, err := hdrhistogram.Decode(text)
	if err != nil {
		return fmt.Errorf("decode histogram: %w", err)
	}
	*h = *NewHistogram()
	h.h.Merge(decoded)
	return nil
}
