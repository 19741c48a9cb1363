package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
)

// assets are the page's template, style and script, and uPlot, which draws.
//
//go:embed assets
var assets embed.FS

// pageData is the input of the template.
type pageData struct {
	*view
	Island              island
	Style, PlotStyle    template.CSS
	Script, PlotLibrary template.JS
}

// island is the input of the page's script, as JSON inside the page.
type island struct {
	Charts   []*chart    `json:"charts"`
	Inputs   []string    `json:"inputs"`
	Formulas [][2]string `json:"formulas"`
	Rows     []candidate `json:"rows"`
}

// HTML writes the results as one self-contained page: it needs no network and no
// other file. It shows the same numbers as Markdown and CSV.
func HTML(w io.Writer, files []File) error {
	v, err := newView(files)
	if err != nil {
		return err
	}
	page, err := template.New("page.gohtml").ParseFS(assets, "assets/page.gohtml")
	if err != nil {
		return fmt.Errorf("parse the page: %w", err)
	}
	data := pageData{view: v, Island: newIsland(v)}
	// The assets are trusted and inserted unchanged. Everything that comes from results is escaped.
	data.Style = template.CSS(asset("report.css"))        // embedded
	data.PlotStyle = template.CSS(asset("uPlot.min.css")) // embedded
	data.Script = template.JS(asset("report.js"))         // embedded
	// The licence requires that every copy includes it.
	data.PlotLibrary = template.JS("/*!\n" + asset("uPlot.LICENSE") + "*/\n" + asset("uPlot.iife.min.js")) // embedded
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// asset returns an embedded file. A missing file is a build error, which the
// tests find.
func asset(name string) string {
	data, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func newIsland(v *view) island {
	d := island{Charts: []*chart{}, Inputs: []string{}, Formulas: [][2]string{}, Rows: []candidate{}}
	for _, g := range v.Groups {
		for _, c := range g.Ceilings {
			if c.Chart != nil {
				d.Charts = append(d.Charts, c.Chart)
			}
		}
		d.Charts = append(d.Charts, g.Curves...)
		for _, r := range g.Results {
			for _, t := range r.Timelines {
				d.Charts = append(d.Charts, t.Charts...)
			}
		}
	}
	if v.Load == nil {
		return d
	}
	for _, in := range v.Load.Inputs {
		d.Inputs = append(d.Inputs, in.Name)
	}
	for _, f := range v.Load.Formulas {
		d.Formulas = append(d.Formulas, [2]string{f.Name, f.Expression})
	}
	for _, r := range v.Load.Rows {
		d.Rows = append(d.Rows, r.candidate)
	}
	return d
}
