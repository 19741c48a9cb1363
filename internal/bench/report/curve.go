package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// pointsPerDecade is the number of points of a percentile curve from 90 % to 99 %,
// and from there to 99.9 %, and so on.
const pointsPerDecade = 12

// mostDecades is the end of a curve: 99.9999 %.
const mostDecades = 6

// prefixes of latency metrics, with the meaning of the latencies.
var prefixes = []struct{ prefix, meaning string }{
	{"", "latency"},
	{"end_to_end_", "end-to-end latency"},
	{"write_", "write latency"},
	{"read_", "read latency"},
	{"connect_", "time to connect"},
}

// latencyPrefix returns the prefix of the row's main latencies.
func latencyPrefix(m map[string]float64) string {
	for _, p := range prefixes {
		if _, ok := m[p.prefix+"latency_p99_ms"]; ok {
			return p.prefix
		}
	}
	return ""
}

// prefixMeaning returns the meaning of a latency.
func prefixMeaning(prefix string) string {
	for _, p := range prefixes {
		if p.prefix == prefix {
			return p.meaning
		}
	}
	return strings.TrimSpace(strings.ReplaceAll(prefix, "_", " ")) + " latency"
}

// merged has all latencies of one kind of a row, over all repeats.
type merged struct {
	name string
	h    *bench.Histogram
}

// family identifies the lines of one chart: the rows of one operation, and one
// kind of latency.
type family struct{ operation, prefix string }

// curves draws the percentiles of the recorded latencies of all files: a line for
// each row, with as many lines in a chart as there are styles.
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

// operation returns the operation of a row. In the scenario events, row names
// begin with it; in other scenarios all rows have the same operation.
func operation(r *bench.Result, row string) string {
	if r.Scenario != "events" {
		return ""
	}
	op, _, _ := strings.Cut(row, "/")
	return op
}

// curve uses 1/(1-q) for X, so that each further nine takes the same width. A line
// ends where only one latency is larger.
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
