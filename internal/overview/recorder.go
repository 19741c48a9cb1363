package overview

import (
	"context"
	"math"
	"sync"
	"time"
)

// Length is how many points are kept: fifteen minutes.
const Length = 900

// Names of the series that a Recorder has besides those of its figures.
const (
	Time = "time"           // of a point, in seconds since 1970
	P50  = "publish_p50_us" // of the Latency, in microseconds; 0 if nothing was measured
	P99  = "publish_p99_us"
)

// Figure is a number that the server counts or knows.
type Figure struct {
	Name string
	// Total says that the number only rises: a point has its rise for each second.
	Total bool
	Read  func() int64
}

// Recorder keeps the last points. Safe for concurrent use.
type Recorder struct {
	figures []Figure
	latency *Latency
	began   time.Time

	mu     sync.Mutex
	points [][]int64 // a ring: time, p50, p99 and the figures
	taken  int       // how many points there were in all
	last   []int64   // what the figures were then
	at     time.Time
}

// NewRecorder returns a Recorder that begins now.
func NewRecorder(now time.Time, latency *Latency, figures ...Figure) *Recorder {
	r := &Recorder{figures: figures, latency: latency, began: now, at: now, points: make([][]int64, 0, Length), last: make([]int64, len(figures))}
	for i, f := range figures {
		r.last[i] = f.Read()
	}
	return r
}

// Began returns when the Recorder began.
func (r *Recorder) Began() time.Time { return r.began }

// Run takes a point each second until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			r.Take(now)
		case <-ctx.Done():
			return
		}
	}
}

// Take takes a point. Its time is counted from the beginning by a clock that nobody sets, so that times only rise. A point that is not a
// second later than the one before is left out.
func (r *Recorder) Take(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.began.Unix() + int64(math.Round(now.Sub(r.began).Seconds()))
	elapsed := now.Sub(r.at).Seconds()
	if r.taken > 0 && at <= r.points[(r.taken-1)%Length][0] || elapsed <= 0 {
		return
	}
	point := make([]int64, 0, 3+len(r.figures))
	p50, p99 := r.latency.read(elapsed, 0.5, 0.99)
	point = append(point, at, p50, p99)
	for i, f := range r.figures {
		value := f.Read()
		if f.Total {
			value, r.last[i] = int64(math.Round(float64(value-r.last[i])/elapsed)), value
		}
		point = append(point, value)
	}
	r.at = now
	if len(r.points) < Length {
		r.points = append(r.points, point)
	} else {
		r.points[r.taken%Length] = point
	}
	r.taken++
}

// After returns the points after a time, as one list for each series, the oldest first.
func (r *Recorder) After(time int64) map[string][]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.taken
	for first > r.taken-len(r.points) && r.points[(first-1)%Length][0] > time {
		first--
	}
	series := make(map[string][]int64, 3+len(r.figures))
	list := func(name string, of int) {
		values := make([]int64, 0, r.taken-first)
		for i := first; i < r.taken; i++ {
			values = append(values, r.points[i%Length][of])
		}
		series[name] = values
	}
	list(Time, 0)
	list(P50, 1)
	list(P99, 2)
	for i, f := range r.figures {
		list(f.Name, 3+i)
	}
	return series
}
