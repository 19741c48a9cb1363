package bench

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Threshold is a bound that the user sets for a metric of every row, such as
// p99<25ms or lost==0.
type Threshold struct {
	text    string
	written string // the metric as the user wrote it
	metric  string
	op      string
	bound   float64 // in the metric's unit
}

var (
	thresholdForm = regexp.MustCompile(`^\s*([a-z][a-z0-9_.]*)\s*(<=|>=|==|!=|<|>)\s*([0-9][0-9.eE+]*)\s*(us|µs|ms|s|m|%|k|M)?\s*$`)
	quantileForm  = regexp.MustCompile(`^(.*_)?(p50|p90|p95|p99|p999|p99\.9|max|mean)$`)
)

// UnmarshalText reads a threshold: a metric of docs/reference/results.md, or short p50, p90,
// p95, p99, p99.9, max and mean for latencies, with write_, read_, end_to_end_ or
// connect_ before it; then <, <=, ==, !=, >= or >; then a number, with us, ms, s, m,
// %, k or M.
func (t *Threshold) UnmarshalText(text []byte) error {
	parts := thresholdForm.FindStringSubmatch(string(text))
	if parts == nil {
		return fmt.Errorf("threshold %q: want a metric, <, <=, ==, !=, >= or >, and a number, such as p99<25ms or lost==0", text)
	}
	metric := parts[1]
	if q := quantileForm.FindStringSubmatch(metric); q != nil {
		metric = q[1] + "latency_" + strings.ReplaceAll(q[2], ".", "") + "_ms"
	}
	value, err := strconv.ParseFloat(parts[3], 64)
	if err != nil {
		return fmt.Errorf("threshold %q: %w", text, err)
	}
	bound, err := inUnitOf(metric, value, parts[4])
	if err != nil {
		return fmt.Errorf("threshold %q: %w", text, err)
	}
	*t = Threshold{strings.TrimSpace(string(text)), parts[1], metric, parts[2], bound}
	return nil
}

// MarshalText is the threshold as it was written.
func (t Threshold) MarshalText() ([]byte, error) { return []byte(t.text), nil }

// String is the threshold as it was written.
func (t Threshold) String() string { return t.text }

// inUnitOf converts a value to the unit that is the suffix of the metric's name.
func inUnitOf(metric string, value float64, unit string) (float64, error) {
	durations := map[string]time.Duration{"us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "m": time.Minute}
	d, isDuration := durations[unit]
	switch {
	case unit == "":
		return value, nil
	case unit == "%":
		return value / 100, nil
	case unit == "k":
		return value * 1e3, nil
	case unit == "M":
		return value * 1e6, nil
	case isDuration && strings.HasSuffix(metric, "_ms"):
		return value * float64(d) / float64(time.Millisecond), nil
	case isDuration && strings.HasSuffix(metric, "seconds"):
		return value * d.Seconds(), nil
	}
	return 0, fmt.Errorf("%s is not a time: give the number without %s, or a metric that is one (docs/reference/results.md lists them)", metric, unit)
}

// Check holds if at least one row has the metric, and every such row keeps the bound.
func (t Threshold) Check(rows []Row) Check {
	var missed, kept []string
	for _, row := range rows {
		v, ok := row.Metrics[t.metric]
		if !ok {
			continue
		}
		said := fmt.Sprintf("%s %s", row.Name, strconv.FormatFloat(v, 'g', 6, 64))
		if t.holds(v) {
			kept = append(kept, said)
		} else {
			missed = append(missed, said)
		}
	}
	switch {
	case len(missed) > 0:
		return Check{t.text, false, strings.Join(missed, ", ")}
	case len(kept) == 0:
		return Check{t.text, false, "no row has " + t.metric + ": docs/reference/results.md lists the metrics"}
	}
	return Check{t.text, true, strings.Join(kept, ", ")}
}

func (t Threshold) holds(v float64) bool {
	switch t.op {
	case "<":
		return v < t.bound
	case "<=":
		return v <= t.bound
	case "==":
		return v == t.bound
	case "!=":
		return v != t.bound
	case ">=":
		return v >= t.bound
	}
	return v > t.bound
}
