package report

import (
	"fmt"
	"math"
	"strings"
)

// loadView is the load that the reader can edit on the page, and the results for
// each candidate.
type loadView struct {
	Inputs   []input
	Formulas []formula
	Needed   string // the rates that the load needs
	Rows     []loadRow
}

// loadRow has the results for one candidate, as text. Days is the time until the
// disk is full.
type loadRow struct {
	candidate
	Verdict                                                              string
	Headroom, DiskNeeded, GBPerDay, DaysUntilFull, CostYear, CostMillion string
}

// newLoadView returns nil if there is no candidate.
func newLoadView(files []File) (*loadView, error) {
	all := candidates(files)
	if len(all) == 0 {
		return nil, nil
	}
	v := &loadView{Inputs: defaultInputs(files), Formulas: formulas}
	for _, c := range all {
		a, err := answer(v.Inputs, c)
		if err != nil {
			return nil, err
		}
		v.Needed = fmt.Sprintf("%s messages a day; at the peak %s messages/s and %s deliveries/s.",
			figure3(a["messages_per_day"]), figure3(a["peak_messages_per_second"]), figure3(a["peak_deliveries_per_second"]))
		v.Rows = append(v.Rows, newLoadRow(c, a))
	}
	return v, nil
}

func newLoadRow(c candidate, a answers) loadRow {
	row := loadRow{candidate: c, Headroom: atLeast(c.AtLeast, figure3(a["headroom"])+" ×"), Verdict: "too slow"}
	if a["headroom"] >= 1 {
		row.Verdict = "carries it"
	}
	row.CostYear, row.CostMillion = money(a["cost_per_year"]), money(a["cost_per_million"])
	if c.Measured["is_stored"] == 0 {
		row.DiskNeeded, row.GBPerDay, row.DaysUntilFull = "-", "-", "stores nothing"
		return row
	}
	row.GBPerDay = atLeast(!c.BytesKnown, figure3(a["gb_per_day"]))
	row.DiskNeeded = atLeast(!c.BytesKnown, figure3(a["disk_needed_gb"]))
	row.DaysUntilFull = "never: retention bounds it"
	if a["disk_needed_gb"] > a["disk_gb"] {
		row.DaysUntilFull = "in " + figure3(a["days_until_full"]) + " days"
	}
	return row
}

func atLeast(yes bool, text string) string {
	if yes {
		return "≥ " + text
	}
	return text
}

// money formats an amount, or "-" if no price was given.
func money(v float64) string {
	if v == 0 || math.IsNaN(v) {
		return "-"
	}
	return figure3(v)
}

// Table returns the table of the page and of the Markdown.
func (v *loadView) Table() tableView {
	t := tableView{Head: []cell{
		{Text: "on"}, {Text: ""}, {Text: "headroom", Right: true}, {Text: "GB a day", Right: true}, {Text: "disk GB", Right: true},
		{Text: "disk full", Right: true}, {Text: "cost a year", Right: true}, {Text: "cost/million", Right: true},
	}}
	for _, r := range v.Rows {
		t.Rows = append(t.Rows, []cell{
			{Text: r.Name}, {Text: r.Verdict}, {Text: r.Headroom, Right: true}, {Text: r.GBPerDay, Right: true},
			{Text: r.DiskNeeded, Right: true}, {Text: r.DaysUntilFull, Right: true}, {Text: r.CostYear, Right: true}, {Text: r.CostMillion, Right: true},
		})
	}
	return t
}

// Assumptions returns the inputs in one line.
func (v *loadView) Assumptions() string {
	parts := make([]string, len(v.Inputs))
	for i, in := range v.Inputs {
		parts[i] = in.Label + " " + figure3(in.Value)
		if in.Unit != "" {
			parts[i] += " (" + in.Unit + ")"
		}
	}
	return strings.Join(parts, "; ") + "."
}
