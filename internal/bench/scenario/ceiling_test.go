package scenario

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
)

// model is a server that handles at most `most` messages a second, and whose
// latencies grow as in a queue with one server.
func model(most float64) Load {
	return func(_ context.Context, _ string, rate float64) (map[string]float64, error) {
		m := map[string]float64{"seconds": 5, "messages_per_second": min(rate, most), "sent": 5 * min(rate, most)}
		if rate > most {
			m["unsent"] = 5 * (rate - most)
			m["latency_p99_ms"] = 1000
			return m, nil
		}
		m["latency_p99_ms"] = 2 / (1 - min(rate/most, 0.999))
		return m, nil
	}
}

func TestFindCeiling_Model(t *testing.T) {
	t.Parallel()
	for _, most := range []float64{3, 54_321, 2_000_000} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			r := bench.NewResult("queue", nil)
			c := Ceiling{Progress: func(string, ...any) {}}
			if err := FindCeiling(t.Context(), c, "lease", "", "", model(most), r); err != nil {
				t.Fatal(err)
			}
			last := r.Rows[len(r.Rows)-1]
			knee := last.Metrics["knee_per_second"]
			// The latency is too high from some share of the most on: the first step
			// says how much is five times its own.
			if last.Name != "lease at 70 %" || knee > most || knee < most*0.3 {
				t.Errorf("%s: the knee is %g of %g", last.Name, knee, most)
			}
			if got := last.Metrics["offered_messages_per_second"]; math.Abs(got/knee-0.7) > 1e-9 || last.Metrics["kept"] != 1 {
				t.Errorf("run at %g after a knee of %g", got, knee)
			}
			knees := 0
			for _, row := range r.Rows[:len(r.Rows)-1] {
				knees += int(row.Metrics["knee"])
				offered := row.Metrics["offered_messages_per_second"]
				if kept := row.Metrics["kept"] == 1; kept != (offered <= knee) {
					t.Errorf("%s: kept %t, and the knee is %g", row.Name, kept, knee)
				}
				if offered > growth*max(knee, c.Start)*1.01 && offered > 1000 {
					t.Errorf("%s is more than twice what can be kept", row.Name)
				}
				if row.Limiter == "" {
					t.Errorf("%s has no limiter", row.Name)
				}
			}
			if knees != 1 {
				t.Errorf("%d knees", knees)
			}
		})
	}
}
