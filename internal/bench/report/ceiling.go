package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/tidewire/tidewire/internal/bench"
)

const (
	// keptShare is the share of an offered rate that counts as all of it.
	keptShare = 0.99
	// kneeFactor is the factor over the lowest step's 99th percentile from which latency is too
	// high.
	kneeFactor = 5
)

// kneeMeaning is the explanation on the page.
var kneeMeaning = fmt.Sprintf("The knee is the last offered rate that was kept within %.0f %% and whose p99 stayed below %d times that of the lowest rate.",
	100*(1-keptShare), kneeFactor)

// step is one offered rate of a ceiling.
type step struct {
	bench.Row
	offered float64
	prefix  string // of the metrics of its latencies
}

// ceiling has the results of a row at increasing offered rates.
type ceiling struct {
	name  string
	steps []step // in ascending order of the offered rate
	knee  int    // index in steps, or -1
}

// rateSuffix matches the end of a step's name, as in "lease 5000/s".
var rateSuffix = regexp.MustCompile(`[ ,:@]+[\d.,_]+ ?[kM]?(/s| msg/s| messages/s)$`)

// ceilings finds rows, or trials of a row, that were offered different rates.
func ceilings(r *bench.Result) (all []ceiling) {
	byName := make(map[string]int)
	for _, row := range r.Rows {
		name := rateSuffix.ReplaceAllString(row.Name, "")
		for _, s := range steps(row) {
			i, known := byName[name]
			if !known {
				i = len(all)
				byName[name], all = i, append(all, ceiling{name: name})
			}
			all[i].steps = append(all[i].steps, s)
		}
	}
	all = slices.DeleteFunc(all, func(c ceiling) bool { return !c.rises() })
	for i := range all {
		slices.SortStableFunc(all[i].steps, func(a, b step) int { return cmp.Compare(a.offered, b.offered) })
		all[i].knee = knee(all[i].steps)
	}
	return all
}

// steps returns the results of a row at each rate that it was offered: its trials
// if their rates differ, otherwise the row itself. It returns none if no rate was
// offered.
func steps(row bench.Row) (all []step) {
	const name = "offered_messages_per_second"
	differ := slices.ContainsFunc(row.Trials, func(t map[string]float64) bool { return t[name] != row.Trials[0][name] })
	if !differ && row.Metrics[name] > 0 {
		return []step{{row, row.Metrics[name], latencyPrefix(row.Metrics)}}
	}
	for _, t := range row.Trials {
		if differ && t[name] > 0 {
			one := row
			one.Metrics, one.Trials = t, nil
			all = append(all, step{one, t[name], latencyPrefix(t)})
		}
	}
	return all
}

func (c ceiling) rises() bool {
	return slices.ContainsFunc(c.steps, func(s step) bool { return s.offered != c.steps[0].offered })
}

// knee returns the index of the step that is marked as the knee, or else of the
// last step that kept its rate and its latency; -1 if there is none.
func knee(steps []step) int {
	last, bound := -1, kneeFactor*steps[0].p("p99")
	for i, s := range steps {
		if s.Metrics["knee"] == 1 {
			return i
		}
		if s.Metrics["messages_per_second"] >= keptShare*s.offered && s.p("p99") < bound {
			last = i
		}
	}
	return last
}

// p returns a latency of the step in milliseconds; 0 if it is not measured.
func (s step) p(quantile string) float64 { return s.Metrics[s.prefix+"latency_"+quantile+"_ms"] }

// heldRows returns the rows of a result, with the steps of each ceiling replaced by one row: that
// of the knee.
func heldRows(r *bench.Result) (rows []bench.Row) {
	done := make(map[string]bool) // names of steps
	for _, c := range ceilings(r) {
		for _, s := range c.steps {
			done[s.Name] = true
		}
		if c.knee >= 0 {
			row := c.steps[c.knee].Row
			row.Name = c.name + " at the knee"
			rows = append(rows, row)
		}
	}
	for _, row := range r.Rows {
		if !done[row.Name] {
			rows = append(rows, row)
		}
	}
	return rows
}

// ceilingView is the chart of a ceiling, its steps as a table, and a sentence about it.
type ceilingView struct {
	Name, Verdict string
	Chart         *chart
	Steps         tableView
}

func newCeilingView(id, name string, c ceiling) ceilingView {
	v := ceilingView{Name: name, Steps: tableView{Head: []cell{
		{Text: "offered msg/s", Right: true}, {Text: "done msg/s", Right: true}, {Text: "p50 ms", Right: true},
		{Text: "p99 ms", Right: true}, {Text: "p99.9 ms", Right: true}, {Text: ""},
	}}}
	ch := &chart{
		ID: id, Title: name + ": latency against offered rate", Points: true,
		XAxis: axis{Label: "offered messages/s"}, YAxis: axis{Label: "ms", Log: true},
		Series: []series{{Name: "p50", Style: 0}, {Name: "p99", Style: 1}, {Name: "p99.9", Style: 2}},
	}
	for i, s := range c.steps {
		ch.X = append(ch.X, num(s.offered))
		row := []cell{{Text: count(s.offered), Right: true}, {Text: count(s.Metrics["messages_per_second"]), Right: true}}
		for j, q := range []string{"p50", "p99", "p999"} {
			value := gap
			if p := s.p(q); p > 0 {
				value = num(p)
			}
			ch.Series[j].Values = append(ch.Series[j].Values, value)
			row = append(row, cell{Text: optional(s.p(q), figure), Right: true})
		}
		word := ""
		if i == c.knee {
			word = "knee"
			ch.Marks = []mark{{num(s.offered), "knee: " + count(s.offered) + "/s"}}
		}
		v.Steps.Rows = append(v.Steps.Rows, append(row, cell{Text: word}))
	}
	if ch.scale() {
		v.Chart = ch
	}
	v.Verdict = c.verdict(name)
	return v
}

func (c ceiling) verdict(name string) string {
	if c.knee < 0 {
		return fmt.Sprintf("%s has no knee: not even %s messages/s were kept.", name, count(c.steps[0].offered))
	}
	s := c.steps[c.knee]
	text := fmt.Sprintf("%s keeps up with %s messages/s, at a p99 of %s ms", name, count(s.offered), figure(s.p("p99")))
	if c.knee == len(c.steps)-1 {
		return text + ": no higher rate was offered."
	}
	return text + "."
}
