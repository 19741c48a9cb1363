package report

import (
	"fmt"

	"github.com/tidewire/tidewire/internal/bench"
)

// trend describes how one figure of a row changed during a run.
type trend struct {
	Row, What        string
	Slope, Low, High string // an hour
	Change           string // over the run, as a share of the mean
	Judgement        string
}

// trended lists the figures that a soak is judged by.
var trended = []struct {
	what, unit, metric string
	divisor            float64
}{
	{"memory of the server", "MiB", "server_rss_bytes", 1 << 20},
	{"messages/s", "messages/s", "messages_per_second", 1},
	{"deliveries/s", "deliveries/s", "deliveries_per_second", 1},
	{"p99", "ms", "latency_p99_ms", 1},
}

// slightChange is the change over the whole run, as a share of the mean, up to
// which a certain trend is not mentioned.
const slightChange = 0.02

// trends fits lines through the measured seconds of each row. For memory it
// prefers the slope that the run itself computed from more samples.
func trends(r *bench.Result) (all []trend) {
	for _, row := range r.Rows {
		var own []bench.Tick
		for _, t := range r.Recording.AllTicks() {
			if t.Row == row.Name {
				own = append(own, t)
			}
		}
		own, _ = typical(&row, own)
		for _, f := range trended {
			l, ok := measuredLine(own, f.metric)
			if found, has := soakLine(row.Metrics, l); has && f.metric == "server_rss_bytes" {
				l, ok = found, true
			}
			if ok {
				all = append(all, newTrend(row.Name, f.what, f.unit, f.divisor, l))
			}
		}
	}
	return all
}

// measuredLine leaves out the first fifth, in which a server still allocates what it needs.
func measuredLine(ticks []bench.Tick, metric string) (line, bool) {
	var times, values []float64
	for _, t := range ticks {
		if v, ok := t.Metrics[metric]; ok && t.Phase == bench.PhaseMeasured {
			times, values = append(times, t.At), append(values, v)
		}
	}
	first := len(times) / 5
	return fit(times[first:], values[first:])
}

// soakLine returns the line of memory that the run computed, with the other fields from the ticks.
func soakLine(m map[string]float64, ticks line) (line, bool) {
	slope, ok := m["server_rss_slope_bytes_per_second"]
	l := line{
		slope: slope, low: m["server_rss_slope_low_bytes_per_second"], high: m["server_rss_slope_high_bytes_per_second"],
		mean: ticks.mean, seconds: ticks.seconds,
	}
	if l.mean == 0 {
		l.mean, l.seconds = m["server_peak_rss_bytes"], m["seconds"]
	}
	return l, ok
}

const secondsOfHour = 3600

func newTrend(row, what, unit string, divisor float64, l line) trend {
	hourly := func(v float64) string { return signed(v * secondsOfHour / divisor) }
	t := trend{
		Row: row, What: what, Slope: hourly(l.slope) + " " + unit, Low: hourly(l.low), High: hourly(l.high),
		Judgement: "no trend: the interval includes 0",
	}
	change := 0.0
	if l.mean != 0 {
		change = l.slope * l.seconds / l.mean
		t.Change = fmt.Sprintf("%+.1f %%", 100*change)
	}
	slight := ""
	if change < slightChange && change > -slightChange {
		slight = ", slightly"
	}
	switch {
	case l.low > 0:
		t.Judgement = "rises" + slight
	case l.high < 0:
		t.Judgement = "falls" + slight
	}
	return t
}

func signed(v float64) string {
	if v < 0 {
		return "−" + figure3(-v)
	}
	return "+" + figure3(v)
}
