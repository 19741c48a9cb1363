package overview_test

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidewire/tidewire/internal/overview"
)

func TestRecorder_RatesAndGauges(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	stored, open := int64(500), int64(7)
	r := overview.NewRecorder(began, new(overview.Latency),
		overview.Figure{Name: "stored", Total: true, Read: func() int64 { return stored }},
		overview.Figure{Name: "connections", Read: func() int64 { return open }})
	stored, open = 510, 8
	r.Take(began.Add(time.Second))
	r.Take(began.Add(1200 * time.Millisecond)) // too early: left out
	stored = 550
	r.Take(began.Add(3 * time.Second)) // two seconds later
	want := map[string][]int64{"time": {1001, 1003}, "stored": {10, 20}, "connections": {8, 8}, "publish_p50_us": {0, 0}, "publish_p99_us": {0, 0}}
	if got := r.After(0); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := r.After(1001)["stored"]; !reflect.DeepEqual(got, []int64{20}) {
		t.Errorf("after the first point: %v", got)
	}
	if got := r.After(1003)["time"]; len(got) != 0 {
		t.Errorf("after the last point: %v", got)
	}
}

func TestRecorder_KeepsFifteenMinutes(t *testing.T) {
	t.Parallel()
	began := time.Unix(0, 0)
	r := overview.NewRecorder(began, new(overview.Latency))
	for i := range 2000 {
		r.Take(began.Add(time.Duration(i+1) * time.Second))
	}
	times := r.After(0)["time"]
	if len(times) != overview.Length || times[0] != 1101 || times[len(times)-1] != 2000 {
		t.Errorf("%d points from %d to %d", len(times), times[0], times[len(times)-1])
	}
	if got := r.After(1998)["time"]; !reflect.DeepEqual(got, []int64{1999, 2000}) {
		t.Errorf("after 1998: %v", got)
	}
}

func TestRecorder_Run(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var reads atomic.Int64
		r := overview.NewRecorder(time.Now(), new(overview.Latency), overview.Figure{Name: "reads", Read: func() int64 { return reads.Add(1) }})
		go r.Run(ctx)
		time.Sleep(3500 * time.Millisecond)
		cancel()
		synctest.Wait()
		if n := len(r.After(0)["time"]); n != 3 {
			t.Errorf("%d points in 3.5 s", n)
		}
	})
}

// TestLatency_Quantiles: they are right within the width of a bucket, from microseconds to seconds.
func TestLatency_Quantiles(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{3 * time.Microsecond, 150 * time.Microsecond, 7 * time.Millisecond, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			latency := new(overview.Latency)
			began := time.Now()
			r := overview.NewRecorder(began, latency)
			starts := make([]time.Time, 100)
			for i := range starts {
				starts[i] = latency.Begin()
			}
			time.Sleep(took)
			for _, start := range starts[:98] {
				latency.End(start)
			}
			time.Sleep(9 * took)
			latency.End(starts[98])
			latency.End(starts[99])
			r.Take(began.Add(time.Second))
			series := r.After(0)
			near(t, "p50", series[overview.P50][0], took.Microseconds())
			near(t, "p99", series[overview.P99][0], 10*took.Microseconds())
		})
	}
}

func near(t *testing.T, name string, got, want int64) {
	t.Helper()
	if d := float64(got-want) / float64(want); d > 0.07 || d < -0.07 {
		t.Errorf("%s is %d µs, want %d", name, got, want)
	}
}

// TestLatency_MeasuresSome: under load, about a thousand requests a second are measured.
func TestLatency_MeasuresSome(t *testing.T) {
	t.Parallel()
	latency := new(overview.Latency)
	began := time.Now()
	r := overview.NewRecorder(began, latency)
	for range 100_000 {
		latency.Begin()
	}
	r.Take(began.Add(time.Second))
	measured := 0
	for range 100_000 {
		if !latency.Begin().IsZero() {
			measured++
		}
	}
	if measured < 900 || measured > 1100 {
		t.Errorf("%d of 100,000 measured", measured)
	}
}
