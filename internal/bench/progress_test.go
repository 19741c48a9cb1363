package bench

import (
	"testing"
	"time"
)

// TestPulse_CountsFromTheTrialsBegin: ticks of the second part come after those of
// the first, and the latencies of a second belong to that second only.
func TestPulse_CountsFromTheTrialsBegin(t *testing.T) {
	t.Parallel()
	var r Recording
	seen := make(chan Tick, 10)
	r.Observe(func(tick Tick) { seen <- tick })
	total := int64(0)
	count := func() Counters {
		total += 7
		h := NewHistogram()
		h.Record(time.Millisecond)
		return Counters{Phase: PhaseMeasured, Messages: total, Missing: 2, Latency: h, Late: h}
	}
	p := r.ResumePulse(t.Context(), time.Now().Add(-time.Hour), "row", 3, nil, count)
	tick := <-seen
	p.Stop()
	p.Stop()
	var none *Ticker
	none.Stop()
	m := tick.Metrics
	if tick.At < 3600 || tick.Row != "row" || tick.Trial != 3 || tick.Phase != PhaseMeasured || tick.Seconds > tick.At/2 {
		t.Errorf("%+v", tick)
	}
	if got := m["messages_per_second"] * tick.Seconds; got < 6.99 || got > 7.01 {
		t.Errorf("%g messages in the interval, want 7", got)
	}
	if m["missing"] != 2 || m["latency_p99_ms"] < 0.99 || m["generator_late_p99_ms"] < 0.99 {
		t.Errorf("%v", m)
	}
}
