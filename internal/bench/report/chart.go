package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// num is a number of a chart; NaN is a gap.
type num float64

// MarshalJSON writes six digits, and null for a gap.
func (n num) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', 6, 64), nil
}

// styles is the number of colours, with their dashes, in the style sheet.
const styles = 8

// gap marks a missing value of a series.
var gap = num(math.NaN())

// tick is a labelled position on an axis.
type tick struct {
	At    num    `json:"at"`
	Label string `json:"label"`
}

// axis runs from Min to Max, linearly or logarithmically.
type axis struct {
	Label string `json:"label"`
	Log   bool   `json:"log"`
	Min   num    `json:"min"`
	Max   num    `json:"max"`
	Ticks []tick `json:"ticks"`
}

// series is a line over the chart's X. Style chooses colour and dashes, from 0.
type series struct {
	Name   string `json:"name"`
	Style  int    `json:"style"`
	Values []num  `json:"values"`
}

// mark is a vertical line: a knee has a label, a checkpoint has none.
type mark struct {
	At    num    `json:"at"`
	Label string `json:"label"`
}

// band is a shaded range of X: a warm-up or a drain.
type band struct {
	From  num    `json:"from"`
	To    num    `json:"to"`
	Label string `json:"label"`
}

// chart is what the page draws: a static picture, and with JavaScript an
// interactive one.
type chart struct {
	ID     string   `json:"id"`
	Title  string   `json:"title"`
	XAxis  axis     `json:"x"`
	YAxis  axis     `json:"y"`
	X      []num    `json:"xs"`
	Series []series `json:"series"`
	Marks  []mark   `json:"marks,omitempty"`
	Bands  []band   `json:"bands,omitempty"`
	// Points draws a dot at each value, for series with few values.
	Points bool `json:"points,omitempty"`
	// Sync is shared by charts whose cursors move together.
	Sync string `json:"sync,omitempty"`
}

// scale fits both axes to the values. A linear y axis starts at 0. It reports
// whether there is anything to draw.
func (c *chart) scale() bool {
	var ys []float64
	for _, s := range c.Series {
		for _, v := range s.Values {
			if !math.IsNaN(float64(v)) && (!c.YAxis.Log || v > 0) {
				ys = append(ys, float64(v))
			}
		}
	}
	if len(ys) == 0 || len(c.X) == 0 {
		return false
	}
	c.YAxis.fit(slices.Min(ys), slices.Max(ys), !c.YAxis.Log)
	if c.XAxis.Ticks == nil {
		c.XAxis.fit(float64(c.X[0]), float64(c.X[len(c.X)-1]), false)
	}
	return true
}

func (a *axis) fit(low, high float64, fromZero bool) {
	if a.Log {
		a.fitLog(low, high)
		return
	}
	if fromZero {
		low = min(low, 0)
	}
	if high <= low {
		high = low + 1
	}
	step := niceStep((high - low) / 5)
	a.Min, a.Max = num(low), num(high)
	if fromZero {
		a.Max = num(math.Ceil(high/step) * step)
	}
	for i := math.Ceil(low / step); i*step <= float64(a.Max)+step/1e6; i++ {
		a.Ticks = append(a.Ticks, tick{num(i * step), short(i * step)})
	}
}

// fitLog extends the axis to the next 1, 2 or 5, and labels those if there is room.
func (a *axis) fitLog(low, high float64) {
	inside := func(v float64) bool { return v >= float64(a.Min)*0.999 && v <= float64(a.Max)*1.001 }
	down, up := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	a.Min, a.Max = num(math.Pow(10, down)), num(math.Pow(10, max(up, down+1)))
	for exponent := down; exponent <= up; exponent++ {
		for _, digit := range []float64{1, 2, 5} {
			v := digit * math.Pow(10, exponent)
			if v <= low*1.001 {
				a.Min = num(v)
			}
			if v >= high*0.999 && v < float64(a.Max) && v > float64(a.Min)*1.001 {
				a.Max = num(v)
			}
		}
	}
	for exponent := down; exponent <= up; exponent++ {
		for _, digit := range []float64{1, 2, 5} {
			if v := digit * math.Pow(10, exponent); inside(v) && (digit == 1 || a.Max/a.Min < 300) {
				a.Ticks = append(a.Ticks, tick{num(v), short(v)})
			}
		}
	}
}

// niceStep rounds up to 1, 2 or 5 times a power of ten.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, digit := range []float64{1, 2, 5} {
		if digit*power >= v*0.999 {
			return digit * power
		}
	}
	return 10 * power
}

// short formats a number for an axis: 20k, 1.5M, 0.05.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if math.Abs(v) >= unit.size {
			if unit.name == "k" {
				unit.size = 1e3
			}
			return strconv.FormatFloat(v/unit.size, 'g', 4, 64) + unit.name
		}
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'g', 5, 64)
}

// The size of the static picture, in its own units.
const (
	svgWidth, svgHeight         = 720, 260
	svgLeft, svgTop             = 68, 12
	svgRight, svgBottom         = 14, 44
	svgPlotWidth, svgPlotHeight = svgWidth - svgLeft - svgRight, svgHeight - svgTop - svgBottom
	svgBase                     = svgTop + svgPlotHeight
)

// place returns the position of a value on an axis: 0 to 1, or outside if the value is.
func (a *axis) place(v num) float64 {
	low, high, at := float64(a.Min), float64(a.Max), float64(v)
	if a.Log {
		low, high, at = math.Log(low), math.Log(high), math.Log(at)
	}
	return (at - low) / (high - low)
}

func (c *chart) px(v num) float64 { return svgLeft + svgPlotWidth*c.XAxis.place(v) }
func (c *chart) py(v num) float64 { return svgBase - svgPlotHeight*c.YAxis.place(v) }

// point formats a point of a path, with as many digits as a screen can show.
func (c *chart) point(i int, s series) string {
	return fmt.Sprintf("%.1f %.1f", c.px(c.X[i]), c.py(s.Values[i]))
}

// path draws a series, with interruptions at its gaps.
func (c *chart) path(s series) string {
	var b strings.Builder
	pen := "M"
	for i, v := range s.Values {
		if math.IsNaN(float64(v)) || c.YAxis.Log && v <= 0 {
			pen = "M"
			continue
		}
		b.WriteString(pen + c.point(i, s))
		pen = "L"
	}
	return b.String()
}

// Class returns the style sheet's number for the colour and dashes of the series.
func (s series) Class() int { return s.Style % styles }
