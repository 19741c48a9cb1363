package report

import (
	"encoding/csv"
	"io"
	"math"
	"strconv"
	"strings"
)

// CSV writes one line for each metric of each row of each result: its median, its
// 95 % interval, and the number of repeats. Numbers are as exact as in the
// results.
func CSV(w io.Writer, files []File) error {
	v, err := newView(files)
	if err != nil {
		return err
	}
	out := csv.NewWriter(w)
	lines := [][]string{{"file", "scenario", "valid", "row", "metric", "median", "low_95", "high_95", "repeats", "limiter", "note"}}
	for _, g := range v.Groups {
		for _, r := range g.Results {
			for _, f := range r.Figures {
				lines = append(lines, []string{
					safe(r.File), safe(r.Scenario), strconv.FormatBool(r.Valid), safe(f.Row), safe(f.Metric), exact(f.Median), exact(f.Low), exact(f.High),
					strconv.Itoa(f.Trials), safe(f.Limiter), safe(f.Note),
				})
			}
		}
	}
	return out.WriteAll(lines)
}

// exact formats a number with all its digits, and NaN as an empty text.
func exact(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// safe prevents that a spreadsheet takes a text for a formula.
func safe(text string) string {
	if text != "" && strings.ContainsAny(text[:1], "=+-@\t\r") {
		return "'" + text
	}
	return text
}
