package report

import (
	"fmt"
	"slices"

	"github.com/tidewire/tidewire/internal/bench"
)

// measure is a metric that rows are judged by.
type measure struct {
	metric, unit string
	less         bool // less is better
}

// of returns the value of the measure for a row. For deliveries it does not count
// those that were due before the measurement or arrived after it.
func (m measure) of(row bench.Row) float64 {
	v := row.Metrics[m.metric]
	if due, ok := row.Metrics[dueDelivered]; ok && m.metric == "deliveries_per_second" {
		v = min(v, due)
	}
	return v
}

// measures in order of preference: a row is judged by the first that it has.
var measures = []measure{
	{"deliveries_per_second", "deliveries/s", false},
	{"saturation_deliveries_per_second", "deliveries/s", false},
	{"messages_per_second", "messages/s", false},
	{"calls_per_second", "calls/s", false},
	{"events_per_second", "events/s", false},
	{"connections_per_second", "connections/s", false},
	{"server_rss_bytes_per_connection", "bytes a connection", true},
	{"latency_mean_ms", "ms on average", true},
}

// headline returns the measure of a row, or the last measure if it has none.
func headline(row bench.Row) measure {
	for _, m := range measures {
		if speaks(row, m.metric) {
			return m
		}
	}
	return measures[len(measures)-1]
}

// speaks reports whether a row has a metric. A zero does not count if the row
// only opens and closes connections.
func speaks(row bench.Row, metric string) bool {
	v, ok := row.Metrics[metric]
	return ok && (v > 0 || row.Metrics["connections_per_second"] == 0)
}

// groupHeadline returns the measure of most rows. The rows of lanes are judged
// by their latency.
func groupHeadline(scenario string, rows []bench.Row) measure {
	if scenario == "lanes" {
		return measures[len(measures)-1]
	}
	votes := make(map[measure]int)
	best := measures[len(measures)-1]
	for _, row := range rows {
		m := headline(row)
		if votes[m]++; votes[m] > votes[best] {
			best = m
		}
	}
	return best
}

// contender is a row of some file.
type contender struct {
	name string
	bench.Row
	valid bool
}

// comparisonTables compares the rows of all files of a scenario, in one table for each
// operation.
func comparisonTables(files []File) (all []tableView) {
	titles, byTitle := []string{}, make(map[string][]contender)
	for _, f := range files {
		for _, rows := range tables(&bench.Result{Scenario: f.Scenario, Rows: heldRows(f.Result)}) {
			for _, row := range rows {
				title := operation(f.Result, row.Name)
				if byTitle[title] == nil {
					titles = append(titles, title)
				}
				byTitle[title] = append(byTitle[title], contender{labelOf(files, f, row.Name), row, f.Valid})
			}
		}
	}
	for _, title := range titles {
		all = append(all, comparisonTable(files[0].Scenario, title, byTitle[title]))
	}
	return all
}

func comparisonTable(scenario, title string, rows []contender) tableView {
	m := groupHeadline(scenario, plainRows(rows))
	unit := m.unit
	if m.less {
		unit += ", less is better"
	}
	t := tableView{Title: title, Head: []cell{
		{Text: "row"}, {Text: unit, Right: true}, {Text: "95 % interval", Right: true}, {Text: "p50 ms", Right: true},
		{Text: "p99 ms", Right: true}, {Text: "p99.9 ms", Right: true}, {Text: "limited by"},
	}}
	for _, r := range rows {
		t.Rows = append(t.Rows, glanceRow(r, m))
	}
	return withoutEmpty(t)
}

func glanceRow(r contender, m measure) []cell {
	name := r.name
	if !r.valid {
		name += " (INVALID)"
	}
	value, interval := cell{Text: "-", Right: true}, "-"
	if v, ok := r.Metrics[m.metric]; ok {
		value.Text = figure(v)
		s := summarise(trials(r.Row, m.metric))
		interval = "one repeat: indicative"
		if s.Trials > 1 {
			interval = fmt.Sprintf("%s (%d repeats)", s.interval(), s.Trials)
		}
	}
	prefix := latencyPrefix(r.Metrics)
	row := []cell{{Text: name}, value, {Text: interval, Right: true}}
	for _, q := range []string{"p50", "p99", "p999"} {
		row = append(row, cell{Text: optional(r.Metrics[prefix+"latency_"+q+"_ms"], figure), Right: true})
	}
	limiter := r.Limiter
	if limiter == "" {
		limiter = r.Note
	}
	return append(row, cell{Text: limiter})
}

// withoutEmpty removes columns without values.
func withoutEmpty(t tableView) tableView {
	out := tableView{Title: t.Title, Rows: make([][]cell, len(t.Rows))}
	for i, head := range t.Head {
		if !slices.ContainsFunc(t.Rows, func(row []cell) bool { return row[i].Text != "" && row[i].Text != "-" }) {
			continue
		}
		out.Head = append(out.Head, head)
		for j, row := range t.Rows {
			out.Rows[j] = append(out.Rows[j], row[i])
		}
	}
	return out
}
