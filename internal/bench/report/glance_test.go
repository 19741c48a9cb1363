package report

import (
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
)

func fileOf(r *bench.Result) File {
	r.Finish()
	return File{Name: r.Scenario + ".json", Result: r, alias: r.Scenario + ".json"}
}

// TestPictures_CompareNoDifferentLoads: more clients are not better, and other operations are not slower.
func TestPictures_CompareNoDifferentLoads(t *testing.T) {
	t.Parallel()
	chat := &bench.Result{Scenario: "chat-saturation"}
	for name, rate := range map[string]float64{"tidewire 10 clients": 10, "tidewire 20 clients": 20} {
		chat.AddTrial(name, "", map[string]float64{"deliveries_per_second": rate})
		chat.Row(name).Labels = map[string]string{"target": "tidewire"}
	}
	events := &bench.Result{Scenario: "events"}
	for _, row := range []struct {
		name string
		rate float64
	}{{"append/c1", 10}, {"append/c9", 90}, {"query/c1", 1000}} { // the rows of an operation follow each other
		events.AddTrial(row.name, "", map[string]float64{"calls_per_second": row.rate})
	}
	for _, r := range []*bench.Result{chat, events} {
		p := pictures([]File{fileOf(r)})[0]
		if len(p.Rows) != 2 {
			t.Errorf("%s: %+v", r.Scenario, p.Rows)
		}
		for _, b := range p.Rows {
			if b.Note != "" {
				t.Errorf("%s: %+v", r.Scenario, b)
			}
		}
	}
}
