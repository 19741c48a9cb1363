package report

import (
	"fmt"
	"go/parser"
	"math"
	"strings"
)

// loadView is the load that the reader can edit on the page, and the results for
// each candidate.
type loadView struct {
	ID       string
	Kind     *loadKind
	Inputs   []input
	Formulas []formula
	Columns  []loadColumn
	Needed   string // the rates that the load needs
	Rows     []loadRow
}

// loadColumn is a column of the results. Is is its name in loadRow.Texts.
type loadColumn struct{ Head, Is string }

// loadRow has the results for one candidate, as text.
type loadRow struct {
	candidate
	Texts map[string]string
}

// newLoadView returns nil if the scenario has no load, or no result has a candidate. The files are
// those of one scenario.
func newLoadView(id string, files []File) (*loadView, error) {
	kind, all := kindOf(files[0].Scenario), candidates(files)
	if kind == nil || len(all) == 0 {
		return nil, nil
	}
	v := &loadView{ID: id, Kind: kind, Inputs: inputsFor(kind, files), Formulas: kind.formulas()}
	v.Columns = []loadColumn{{"answer", "verdict"}, {"headroom", "headroom"}}
	if kind.Stored {
		v.Columns = append(v.Columns, loadColumn{"GB a day", "gb_per_day"}, loadColumn{"disk GB", "disk_needed_gb"}, loadColumn{"disk full", "days_until_full"})
	}
	v.Columns = append(v.Columns, loadColumn{"cost a year", "cost_per_year"}, loadColumn{"cost/million", "cost_per_million"})
	for _, c := range all {
		a, err := answer(v.Formulas, v.Inputs, c)
		if err != nil {
			return nil, err
		}
		v.Needed = kind.needed(a)
		v.Rows = append(v.Rows, loadRow{c, loadTexts(c, a)})
	}
	return v, nil
}

// needed says which rates a load needs.
func (k *loadKind) needed(a answers) string {
	text := fmt.Sprintf("%s %ss a day; at the peak %s %ss/s", figure3(a["messages_per_day"]), k.Message, figure3(a["peak_messages_per_second"]), k.Message)
	if k.receivers != "" {
		text += fmt.Sprintf(" and %s deliveries/s", figure3(a["peak_deliveries_per_second"]))
	}
	return text + "."
}

func loadTexts(c candidate, a answers) map[string]string {
	texts := map[string]string{
		"verdict": "too slow", "headroom": atLeast(c.AtLeast, figure3(a["headroom"])+" ×"),
		"gb_per_day": atLeast(!c.BytesKnown, figure3(a["gb_per_day"])), "disk_needed_gb": atLeast(!c.BytesKnown, figure3(a["disk_needed_gb"])),
		"days_until_full": "never: retention bounds it", "cost_per_year": money(a["cost_per_year"]), "cost_per_million": money(a["cost_per_million"]),
	}
	if a["headroom"] >= 1 {
		texts["verdict"] = "carries it"
	}
	if a["disk_needed_gb"] > a["disk_gb"] {
		texts["days_until_full"] = "in " + figure3(a["days_until_full"]) + " days"
	}
	return texts
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
	t := tableView{Head: []cell{{Text: "on"}}}
	for _, c := range v.Columns {
		t.Head = append(t.Head, cell{Text: c.Head, Right: c.Is != "verdict"})
	}
	for _, r := range v.Rows {
		row := []cell{{Text: r.Name}}
		for _, c := range v.Columns {
			row = append(row, cell{Text: r.Texts[c.Is], Right: c.Is != "verdict"})
		}
		t.Rows = append(t.Rows, row)
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

// loadIsland is what the page's script needs of a load.
type loadIsland struct {
	ID       string      `json:"id"`
	Message  string      `json:"message"`
	Receives bool        `json:"receives"` // by several: deliveries count
	Inputs   []string    `json:"inputs"`
	Formulas [][2]any    `json:"formulas"` // names and trees
	Rows     []candidate `json:"rows"`
}

func newLoadIsland(v *loadView) (loadIsland, error) {
	d := loadIsland{ID: v.ID, Message: v.Kind.Message, Receives: v.Kind.receivers != ""}
	for _, in := range v.Inputs {
		d.Inputs = append(d.Inputs, in.Name)
	}
	for _, f := range v.Formulas {
		expression, err := parser.ParseExpr(f.Expression)
		if err != nil {
			return d, fmt.Errorf("formula %s: %w", f.Name, err)
		}
		d.Formulas = append(d.Formulas, [2]any{f.Name, tree(expression)})
	}
	for _, r := range v.Rows {
		d.Rows = append(d.Rows, r.candidate)
	}
	return d, nil
}
