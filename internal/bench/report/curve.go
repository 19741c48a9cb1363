package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// pointsPerDecade is how many points a percentile curve has from 90 % to 99 %, and
// from there to 99.9 %.
const pointsPerDecade = 12

// mostDecades is up to where a curve goes: 99.9999 %.
const mostDecades = 6

// prefixes of latencies, with what they are of.
var prefixes = []struct{ prefix, meaning string }{
	{"", "latency"},
	{"end_to_end_", "end-to-end latency"},
	{"write_", "write latency"},
	{"read_", "read latency"},
	{"connect_", "time to connect"},
}

// latencyPrefix is that of the latencies which speak for a row.
func latencyPrefix(m map[string]float64) string {
	for _, p := range prefixes {
		if _, ok := m[p.prefix+"latency_p99_ms"]; ok {
			return p.prefix
		}
	}
	return ""
}

// prefixMeaning says what a latency is of.
func prefixMeaning(prefix string) string {
	for _, p := range prefixes {
		if p.prefix == prefix {
			return p.meaning
		}
	}
	return strings.TrimSpace(strings.ReplaceAll(prefix, "_", " ")) + " latency"
}

// merged are all latencies of a kind of a row, its repeats together.
type merged struct {
	name string
	h    *bench.Histogram
}

// family is what shares a chart: the rows of one operation, and one kind of
// latency.
type family struct{ operation, prefix string }

// curves draws the percentiles of the recorded latencies of all files, a line for
// each row, as many to a chart as can be told apart.
func curves(id string, files []File) (charts []*chart) {
	var order []family
	rows := make(map[family][]merged)
	for _, f := range files {
		for _, l := range f.Recording.AllLatencies() {
			kind := family{operation(f.Result, l.Row), l.Prefix}
			if rows[kind] == nil {
				order = append(order, kind)
			}
			rows[kind] = merge(rows[kind], labelOf(files, f, l.Row), l.Histogram)
		}
	}
	for _, kind := range order {
		title := "Percentiles of " + prefixMeaning(kind.prefix)
		if kind.operation != "" {
			title = kind.operation + ": percentiles of " + prefixMeaning(kind.prefix)
		}
		for some := range slices.Chunk(rows[kind], styles) {
			if c := curve(fmt.Sprintf("%s-curve%d", id, len(charts)), title, some); c != nil {
				charts = append(charts, c)
			}
		}
	}
	return charts
}

func merge(rows []merged, name string, h *bench.Histogram) []merged {
	i := slices.IndexFunc(rows, func(m merged) bool { return m.name == name })
	if i < 0 {
		i = len(rows)
		rows = append(rows, merged{name, bench.NewHistogram()})
	}
	rows[i].h.Merge(h)
	return rows
}

// operation is what rows of events do, which comes first in their names; of other
// scenarios all rows do the same.
func operation(r *bench.Result, row string) string {
	if r.Scenario != "events" {
		return ""
	}
	op, _, _ := strings.Cut(row, "/")
	return op
}

// curve has 1/(1-q) for X, so that each further nine takes as much room as the one
// before. A line ends where there is one latency left beyond it.
func curve(id, title string, rows []merged) *chart {
	decades := 1.0
	for _, r := range rows {
		decades = max(decades, math.Log10(float64(r.h.Count())))
	}
	decades = min(decades, mostDecades)
	c := &chart{
		ID: id, Title: title,
		XAxis: axis{Label: "share of all that is within", Log: true, Min: 1, Max: num(math.Pow(10, decades))},
		YAxis: axis{Label: "ms", Log: true},
	}
	for i := 0; float64(i) <= decades*pointsPerDecade; i++ {
		c.X = append(c.X, num(math.Pow(10, float64(i)/pointsPerDecade)))
	}
	c.XAxis.Ticks = []tick{{2, "50 %"}}
	for i, t := range []string{"90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"} {
		if float64(i+1) <= decades {
			c.XAxis.Ticks = append(c.XAxis.Ticks, tick{num(math.Pow(10, float64(i+1))), t})
		}
	}
	for i, r := range rows {
		s := series{Name: r.name, Style: i}
		for _, x := range c.X {
			v := gap
			if float64(x) <= float64(r.h.Count()) {
				v = num(r.h.Quantile(1-1/float64(x)).Seconds() * 1000)
			}
			s.Values = append(s.Values, v)
		}
		c.Series = append(c.Series, s)
	}
	if !c.scale() {
		return nil
	}
	return c
}
