package bench

import (
	"sync"
	"sync/atomic"
	"time"
)

// gaugePatience is how long a Progress waits for the answer of a busy load.
const gaugePatience = 500 * time.Millisecond

// Progress lets other goroutines ask a load that runs in one goroutine how far it
// is. The load's goroutine checks one flag in each turn of its loop and copies its
// counters on request: it needs no lock, and all counters are of the same moment.
// The zero value is ready; a nil Progress never asks. It can be used for one load
// after the other.
type Progress struct {
	asked atomic.Bool

	mu   sync.Mutex    // guards the fields below
	told chan struct{} // closed by the next tell or end; nil: no load is running
	last Counters
}

// Counters asks the load for its counters and returns them, or the last ones if
// no load is running. The caller owns the histograms.
func (g *Progress) Counters() Counters {
	g.mu.Lock()
	told := g.told
	g.mu.Unlock()
	if told != nil {
		g.asked.Store(true)
		late := time.NewTimer(gaugePatience)
		defer late.Stop()
		select {
		case <-told:
		case <-late.C:
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.last
	g.last.Latency, g.last.Late = nil, nil
	return now
}

// begin marks the load as running, until end.
func (g *Progress) begin() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told, g.last = make(chan struct{}), Counters{}
}

// wanted reports whether the load should call tell.
func (g *Progress) wanted() bool { return g != nil && g.asked.Load() }

// tell stores the counters and takes over their histograms.
func (g *Progress) tell(now Counters) { g.put(now, make(chan struct{})) }

// end is the last call of tell for a load.
func (g *Progress) end(now Counters) {
	if g != nil {
		g.put(now, nil)
	}
}

func (g *Progress) put(now Counters, next chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked.Store(false)
	now.Latency, now.Late = joined(g.last.Latency, now.Latency), joined(g.last.Late, now.Late)
	g.last = now
	close(g.told)
	g.told = next
}

// joined merges two histograms; either may be nil.
func joined(a, b *Histogram) *Histogram {
	if a == nil {
		return b
	}
	if b != nil {
		a.Merge(b)
	}
	return a
}

// recorder records durations for the final result, and separately those since the
// last report. Each duration is recorded once; take merges the recent ones into
// the others.
type recorder struct{ all, recent *Histogram }

func newRecorder() recorder { return recorder{NewHistogram(), NewHistogram()} }

func (r *recorder) record(d time.Duration) { r.recent.Record(d) }

// take returns the recent durations and starts a new histogram; nil if there
// are none.
func (r *recorder) take() *Histogram {
	if r.recent.Count() == 0 {
		return nil
	}
	taken := r.recent
	r.all.Merge(taken)
	r.recent = NewHistogram()
	return taken
}
