package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// view has the whole content of a report, in words and numbers. The page, the
// Markdown and the CSV present it in different formats.
type view struct {
	Title    string
	Heading  string       // the title below the name of the project
	Invalid  []resultView // their figures do not count
	Contents []entry      // if there are several
	Groups   []group
}

// group has the results of one scenario.
type group struct {
	ID, Scenario string
	Pictures     []picture
	Load         *loadView   // nil if the scenario has none, or no row has a rate
	Glance       []tableView // contenders or strategies side by side
	Ceilings     []ceilingView
	KneeMeaning  string
	Curves       []*chart
	Results      []resultView
}

// resultView is the content for one file.
type resultView struct {
	ID, File, Scenario, Started string
	Valid                       bool
	Tiles                       []tile
	Verdict                     []string
	Failed                      []bench.Check
	Thresholds                  []bench.Check
	Tables                      []tableView
	Rivals                      []string // sentences about servers that are better
	Timelines                   []timeline
	Trends                      []trend
	Verdicts                    []verdictRow // of a soak
	Evidence                    provenance
	Figures                     []figureRow
}

// verdictRow is one verdict of a soak.
type verdictRow struct {
	Row string
	bench.Check
}

// cell is a cell of a table.
type cell struct {
	Text  string
	Right bool
}

// tableView is a table. A heading says how its column is aligned.
type tableView struct {
	Title string
	Head  []cell
	Rows  [][]cell
}

// figureRow is one metric of one row.
type figureRow struct {
	Row, Metric string
	Summary
	Limiter, Note string
}

// newView computes everything.
func newView(files []File) (*view, error) {
	v := &view{}
	files = distinct(files)
	for i, f := range files {
		id := fmt.Sprintf("r%d", i)
		r := newResultView(id, f)
		if !r.Valid {
			v.Invalid = append(v.Invalid, r)
		}
		g := slices.IndexFunc(v.Groups, func(g group) bool { return g.Scenario == f.Scenario })
		if g < 0 {
			g = len(v.Groups)
			one, err := newGroup(f.Scenario, files)
			if err != nil {
				return nil, err
			}
			v.Groups = append(v.Groups, one)
		}
		v.Groups[g].Results = append(v.Groups[g].Results, r)
	}
	var names []string
	for _, g := range v.Groups {
		names = append(names, g.Scenario)
	}
	v.Heading = "Benchmark: " + strings.Join(names, ", ")
	v.Title = "Tidewire: " + strings.Join(names, ", ")
	v.Contents = contents(v.Groups)
	return v, nil
}

// newGroup computes what the results of a scenario show together.
func newGroup(scenario string, all []File) (group, error) {
	id := "g-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r == '-' {
			return r
		}
		return -1
	}, scenario)
	g := group{ID: id, Scenario: scenario}
	var files []File
	for _, f := range all {
		if f.Scenario == scenario {
			files = append(files, f)
		}
	}
	g.Glance, g.Pictures = comparisonTables(files), pictures(files)
	var err error
	if g.Load, err = newLoadView(id+"-load", files); err != nil {
		return g, err
	}
	for _, f := range files {
		for _, c := range ceilings(f.Result) {
			g.Ceilings = append(g.Ceilings, newCeilingView(fmt.Sprintf("%s-knee%d", id, len(g.Ceilings)), labelOf(all, f, c.name), c))
		}
	}
	if len(g.Ceilings) > 0 {
		g.KneeMeaning = kneeMeaning
	}
	g.Curves = curves(id, files)
	return g, nil
}

func newResultView(id string, f File) resultView {
	v := resultView{
		ID: id, File: f.alias, Scenario: f.Scenario, Started: f.Started.UTC().Format("2006-01-02 15:04:05 UTC"), Valid: f.Valid,
		Thresholds: f.Thresholds, Timelines: timelines(id, f.Result), Trends: trends(f.Result), Evidence: newProvenance(f),
	}
	for _, c := range f.Checks {
		if !c.OK {
			v.Failed = append(v.Failed, c)
		}
	}
	for _, rows := range tables(f.Result) {
		if t := allColumns(f.Result, rows); len(t.Rows) > 0 {
			v.Tables = append(v.Tables, t)
		}
	}
	for _, row := range f.Rows {
		for _, c := range row.Verdicts {
			v.Verdicts = append(v.Verdicts, verdictRow{row.Name, c})
		}
		v.Figures = append(v.Figures, figures(row)...)
	}
	v.Tiles, v.Verdict, v.Rivals = tilesOf(f.Result), sentences(f.Result), betterServers(f.Result)
	return v
}

// allColumns returns the same table as on the terminal.
func allColumns(r *bench.Result, rows []bench.Row) tableView {
	t := tableView{Rows: make([][]cell, len(rows))}
	for _, c := range columns(r.Scenario, r.Row("naive")) {
		used := slices.ContainsFunc(rows, func(row bench.Row) bool { return c.cell(row) != "-" && c.cell(row) != "" })
		if !used {
			continue
		}
		t.Head = append(t.Head, cell{Text: c.head, Right: c.right})
		for i, row := range rows {
			t.Rows[i] = append(t.Rows[i], cell{Text: c.cell(row), Right: c.right})
		}
	}
	return t
}

func figures(row bench.Row) (all []figureRow) {
	for _, name := range sortedKeys(row.Metrics) {
		all = append(all, figureRow{row.Name, name, summarise(trials(row, name)), row.Limiter, row.Note})
	}
	if len(all) == 0 { // a row that could not be measured has a note
		all = append(all, figureRow{Row: row.Name, Summary: Summary{Median: math.NaN()}, Limiter: row.Limiter, Note: row.Note})
	}
	return all
}

// optional formats a number, or "-" if it is missing.
func optional(v float64, format func(float64) string) string {
	if v == 0 || math.IsNaN(v) {
		return "-"
	}
	return format(v)
}
