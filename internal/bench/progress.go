package bench

import (
	"sync"
	"sync/atomic"
	"time"
)

// gaugePatience is how long a Progress waits for a load that is busy.
const gaugePatience = 500 * time.Millisecond

// Progress shows how far a load is that one goroutine makes. That goroutine looks at
// one flag each turn of its loop and tells its counters when they are asked for:
// it needs no lock, and what it tells is of one moment. The zero value is ready;
// a nil Progress asks nothing. It may follow one load after the other.
type Progress struct {
	asked atomic.Bool

	mu   sync.Mutex    // guards the fields below
	told chan struct{} // closed by the next tell or end; nil: no load runs
	last Counters
}

// Counters asks the load and returns what it says: if it does not run, what it
// said last. The histograms are the caller's.
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

// begin says that a load runs, until end.
func (g *Progress) begin() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told, g.last = make(chan struct{}), Counters{}
}

// wanted reports whether the load is to tell.
func (g *Progress) wanted() bool { return g != nil && g.asked.Load() }

// tell takes the counters and keeps their histograms.
func (g *Progress) tell(now Counters) { g.put(now, make(chan struct{})) }

// end is the last tell of a load.
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

// joined is both of them in one; either may be nil.
func joined(a, b *Histogram) *Histogram {
	if a == nil {
		return b
	}
	if b != nil {
		a.Merge(b)
	}
	return a
}

// recorder records durations for the end and, apart from them, those since a
// Progress was told: each is recorded once, and joined with the rest now and then.
type recorder struct{ all, recent *Histogram }

func newRecorder() recorder { return recorder{NewHistogram(), NewHistogram()} }

func (r *recorder) record(d time.Duration) { r.recent.Record(d) }

// take returns the recent ones and begins anew; nil if there are none.
func (r *recorder) take() *Histogram {
	if r.recent.Count() == 0 {
		return nil
	}
	taken := r.recent
	r.all.Merge(taken)
	r.recent = NewHistogram()
	return taken
}
