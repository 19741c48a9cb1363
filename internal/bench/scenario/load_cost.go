package scenario

import (
	"fmt"
	"time"
)

const (
	// rateTolerance is the precision of the search for a rate.
	rateTolerance = 1.05
	// maxTries limits that search.
	maxTries = 8
)

// highestRate searches for the highest rate at which PostgreSQL's share of the
// CPU is at most the target and the readers keep up. It starts with the rate of
// a run without a limit, and halves the interval. It returns the metrics of the
// run at that rate.
func highestRate(target float64, run func(rate float64) (map[string]float64, error), progress func(string, ...any)) (map[string]float64, error) {
	best, err := run(0)
	if err != nil {
		return nil, err
	}
	top := best["messages_per_second"]
	if within(best, target) {
		return best, nil // PostgreSQL does not reach the target
	}
	best = nil
	low, high := 0.0, top
	for try := 0; try < maxTries && (low == 0 || high/low > rateTolerance); try++ {
		rate := (low + high) / 2
		progress("try %.0f messages/s", rate)
		m, err := run(rate)
		if err != nil {
			return nil, err
		}
		progress("%.0f messages/s: PostgreSQL has %.0f %% of the machine, depth %.0f", rate, 100*m["postgres_cpu_share"], m["depth_at_end"])
		if within(m, target) {
			low, best = rate, m
		} else {
			high = rate
		}
	}
	if best == nil {
		return nil, fmt.Errorf("PostgreSQL takes more than %.0f %% of the machine at any rate tried, down to %.0f messages/s", 100*target, high)
	}
	return best, nil
}

// within reports whether a run met the target: PostgreSQL's CPU is low enough,
// readers read what is written, and at most a second's messages are unread.
func within(m map[string]float64, target float64) bool {
	rate := m["messages_per_second"]
	return m["postgres_cpu_share"] <= target && m["unsent"] <= rate/10 && m["depth_at_end"] <= rate
}

// Prices are the costs of a machine, given by the user. Zero means not given.
type Prices struct {
	PerYear      float64 `json:"per_year,omitempty"`
	PerHour      float64 `json:"per_hour,omitempty"`
	PerGBMonth   float64 `json:"per_gb_month,omitempty"` // of disk
	IOPS         float64 `json:"iops,omitempty"`
	PerIOPSMonth float64 `json:"per_iops_month,omitempty"`
	// Retention is how long messages are kept.
	Retention time.Duration `json:"retention,omitempty"`
}

const (
	day          = 24 * time.Hour
	hoursOfYear  = 365 * 24
	secondsOfDay = 24 * 60 * 60
	gigabyte     = 1e9
)

// metrics adds what the measured rate, kept up all day, needs and costs.
func (p Prices) metrics(m map[string]float64) {
	rate := m["messages_per_second"]
	stored := m["table_bytes_per_message"] + m["index_bytes_per_message"]
	m["gigabytes_per_day"] = rate * stored * secondsOfDay / gigabyte
	if p == (Prices{}) || rate == 0 {
		return
	}
	disk := m["gigabytes_per_day"] * p.Retention.Hours() / day.Hours()
	m["disk_gigabytes"] = disk
	m["cost_per_year"] = p.PerYear + p.PerHour*hoursOfYear + 12*(disk*p.PerGBMonth+p.IOPS*p.PerIOPSMonth)
	m["cost_per_million_messages"] = m["cost_per_year"] / (rate * secondsOfDay * 365) * 1e6
}
