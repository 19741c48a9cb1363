package report

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
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
	Charts []*chart     `json:"charts"`
	Loads  []loadIsland `json:"loads"`
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
	data := pageData{view: v}
	if data.Island, err = newIsland(v); err != nil {
		return err
	}
	// The assets are trusted and inserted unchanged. Everything that comes from results is escaped.
	data.Style = template.CSS(asset("report.css"))        // embedded
	data.PlotStyle = template.CSS(asset("uPlot.min.css")) // embedded
	data.Script = template.JS(asset("report.js"))         // embedded
	data.PlotLibrary = template.JS(plotLibrary())         // embedded
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// plotLibrary is uPlot after its licence, which every copy must include.
func plotLibrary() string {
	return "/*!\n" + asset("uPlot.LICENSE") + "*/\n" + asset("uPlot.iife.min.js")
}

// Policy is the content security policy of every page that HTML writes: its own styles and scripts
// run, and nothing else. It is for servers that serve reports beside pages that have rights.
func Policy() string {
	hashes := func(all ...string) string {
		var b strings.Builder
		for _, text := range all {
			sum := sha256.Sum256([]byte(text))
			b.WriteString(" 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'")
		}
		return b.String()
	}
	return "default-src 'none'; script-src" + hashes(plotLibrary(), asset("report.js")) +
		"; style-src" + hashes(asset("uPlot.min.css"), asset("report.css")) +
		"; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
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

func newIsland(v *view) (island, error) {
	d := island{Charts: []*chart{}, Loads: []loadIsland{}}
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
		if g.Load == nil {
			continue
		}
		load, err := newLoadIsland(g.Load)
		if err != nil {
			return d, err
		}
		d.Loads = append(d.Loads, load)
	}
	return d, nil
}
