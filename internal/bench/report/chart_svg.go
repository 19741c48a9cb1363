package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// SVG returns the chart as a static picture, for a page without JavaScript and for
// print. Colours and dashes come from the style sheet.
func (c *chart) SVG() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, svgWidth, svgHeight, escape(c.Title))
	c.drawBands(&b)
	c.drawAxes(&b)
	c.drawMarks(&b)
	for _, s := range c.Series {
		fmt.Fprintf(&b, `<path class="line s%d" d="%s"/>`, s.Class(), c.path(s))
		if c.Points {
			c.drawPoints(&b, s)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // all text in it went through escape
}

func escape(text string) string { return template.HTMLEscapeString(text) }

func (c *chart) drawBands(b *strings.Builder) {
	for _, band := range c.Bands {
		x := c.px(band.From)
		fmt.Fprintf(b, `<rect class="band" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s</title></rect>`,
			x, svgTop, c.px(band.To)-x, svgPlotHeight, escape(band.Label))
	}
}

func (c *chart) drawAxes(b *strings.Builder) {
	for _, t := range c.YAxis.Ticks {
		y := c.py(t.At)
		fmt.Fprintf(b, `<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			svgLeft, y, svgWidth-svgRight, svgLeft-6, y+4, escape(t.Label))
	}
	for _, t := range c.XAxis.Ticks {
		x := c.px(t.At)
		fmt.Fprintf(b, `<path class="grid" d="M%.1f %dV%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			x, svgTop, svgBase, x, svgBase+16, escape(t.Label))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`, svgLeft+svgPlotWidth/2, svgHeight-6, escape(c.XAxis.Label))
	fmt.Fprintf(b, `<text transform="translate(12 %d) rotate(-90)" text-anchor="middle">%s</text>`, svgTop+svgPlotHeight/2, escape(c.YAxis.Label))
}

func (c *chart) drawMarks(b *strings.Builder) {
	for _, m := range c.Marks {
		x := c.px(m.At)
		if m.Label == "" {
			fmt.Fprintf(b, `<path class="mark" d="M%.1f %dV%d"/>`, x, svgTop, svgBase)
			continue
		}
		// Latencies are high right of a knee and low left of it.
		anchor, beside, y := "start", x+4, svgBase-6
		if x > svgLeft+svgPlotWidth*2/3 { // there is no room right of it
			anchor, beside, y = "end", x-4, svgTop+11
		}
		fmt.Fprintf(b, `<path class="mark named" d="M%.1f %dV%d"/><text class="marked" text-anchor="%s" x="%.1f" y="%d">%s</text>`,
			x, svgTop, svgBase, anchor, beside, y, escape(m.Label))
	}
}

func (c *chart) drawPoints(b *strings.Builder, s series) {
	for i, v := range s.Values {
		if !math.IsNaN(float64(v)) {
			fmt.Fprintf(b, `<circle class="s%d" cx="%.1f" cy="%.1f" r="3"/>`, s.Class(), c.px(c.X[i]), c.py(v))
		}
	}
}
