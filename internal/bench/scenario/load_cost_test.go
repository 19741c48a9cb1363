package scenario

import (
	"errors"
	"math"
	"testing"
	"time"
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

func TestPrices(t *testing.T) {
	t.Parallel()
	m := map[string]float64{"messages_per_second": 1000, "table_bytes_per_message": 900, "index_bytes_per_message": 100}
	Prices{PerYear: 700, PerHour: 0.01, PerGBMonth: 0.1, IOPS: 1000, PerIOPSMonth: 0.005, Retention: 7 * 24 * time.Hour}.metrics(m)
	for name, want := range map[string]float64{
		"gigabytes_per_day":         86.4,
		"disk_gigabytes":            604.8,
		"cost_per_year":             700 + 87.6 + 12*(60.48+5),
		"cost_per_million_messages": (700 + 87.6 + 12*(60.48+5)) / 31_536,
	} {
		if math.Abs(m[name]-want) > 1e-6*want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	none := map[string]float64{"messages_per_second": 1000}
	if (Prices{}).metrics(none); none["cost_per_year"] != 0 || len(none) != 2 {
		t.Errorf("without prices: %v", none)
	}
}
