package bench

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// TestRecording_ReadsWhatItWrote, with names that an HDR log cannot contain.
func TestRecording_ReadsWhatItWrote(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "some", "r.json")
	result := NewResult("queue", map[string]any{"writers": 3.0})
	const row = "go-fiber, 500 clients"
	result.AddTrial(row, "", map[string]float64{"messages_per_second": 12})
	h := NewHistogram()
	for i := range 1000 {
		h.Record(time.Duration(i) * time.Millisecond)
	}
	result.Recording.Latencies(row, 0, "write_", h)
	result.Recording.Latencies(row, 0, "", NewHistogram()) // is not recorded
	var seen []Tick
	result.Recording.Observe(func(t Tick) { seen = append(seen, t) })
	tick := Tick{Row: row, Trial: 0, Phase: PhaseMeasured, At: 2, Seconds: 1, Metrics: map[string]float64{"messages_per_second": 11.5}}
	result.Recording.Tick(tick)
	if err := result.Write(path); err != nil {
		t.Fatal(err)
	}
	again, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	got := again.Recording.AllTicks()
	if !reflect.DeepEqual(got, []Tick{tick}) || !reflect.DeepEqual(seen, got) {
		t.Errorf("ticks %+v, observed %+v, want %+v", got, seen, tick)
	}
	all := again.Recording.AllLatencies()
	if len(all) != 1 || all[0].Row != row || all[0].Prefix != "write_" {
		t.Fatalf("latencies %+v", all)
	}
	for _, q := range []float64{0, 0.5, 0.99, 1} {
		if got, want := all[0].Quantile(q), h.Quantile(q); got != want {
			t.Errorf("quantile %g is %v, want %v", q, got, want)
		}
	}
	if all[0].Count() != 1000 {
		t.Errorf("%d latencies, want 1000", all[0].Count())
	}
}
