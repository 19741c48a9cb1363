package scenario

import (
	"errors"
	"testing"
)

// box is a machine whose CPU use is proportional to the rate, with readers that keep up to a limit.
func box(top, perMessage, readersUpTo float64) func(rate float64) (map[string]float64, error) {
	return func(rate float64) (map[string]float64, error) {
		if rate == 0 || rate > top {
			rate = top
		}
		m := map[string]float64{"messages_per_second": rate, "postgres_cpu_share": rate * perMessage}
		if rate > readersUpTo {
			m["depth_at_end"] = 10 * (rate - readersUpTo)
		}
		return m, nil
	}
}

func TestHighestRate(t *testing.T) {
	t.Parallel()
	quiet := func(string, ...any) {}
	for _, c := range []struct {
		name string
		run  func(float64) (map[string]float64, error)
		want float64
	}{
		{"CPU is the limit", box(10_000, 0.9/10_000, 1e9), 6_667},
		{"readers are", box(10_000, 0.9/10_000, 3_000), 3_333}, // where the depth is a second's worth
		{"nothing is", box(10_000, 0.5/10_000, 1e9), 10_000},
	} {
		m, err := highestRate(0.6, c.run, quiet)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := m["messages_per_second"]; got > c.want || got < c.want/rateTolerance {
			t.Errorf("%s: %.0f, want up to %.0f", c.name, got, c.want)
		}
	}
	if m, err := highestRate(0.6, box(10_000, 1, 1e9), quiet); err == nil {
		t.Errorf("found %v where there is none", m)
	}
	away := errors.New("away")
	if _, err := highestRate(0.6, func(float64) (map[string]float64, error) { return nil, away }, quiet); !errors.Is(err, away) {
		t.Errorf("got %v", err)
	}
}
