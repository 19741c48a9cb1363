package live

import (
	"math"
	"slices"
	"strings"
)

// eighths are cells filled by the given number of eighths: from below, or for
// bars from the left.
const (
	eighths = " ▁▂▃▄▅▆▇█"
	lefts   = " ▏▎▍▌▋▊▉█"
)

// bar draws a share, 0 to 1, with the given number of cells. A share above 0 is
// always visible.
func bar(share float64, cells int) string {
	n := int(math.Round(min(max(share, 0), 1) * float64(cells) * 8))
	if share > 0 {
		n = max(n, 1)
	}
	full := strings.Repeat("█", n/8)
	if n%8 > 0 {
		full += string([]rune(lefts)[n%8])
	}
	return full
}

// plot draws values as columns on a logarithmic scale between powers of ten, top
// row first. A value of 0 or less leaves a gap.
func plot(values []float64, rows int) (drawn []string, low, high float64) {
	low, high = decades(values)
	drawn = make([]string, rows)
	for r := range rows {
		below := (rows - 1 - r) * 8
		line := make([]rune, len(values))
		for i, v := range values {
			line[i] = []rune(eighths)[min(max(level(v, low, high, rows*8)-below, 0), 8)]
		}
		drawn[r] = string(line)
	}
	return drawn, low, high
}

// level returns the number of eighths, out of all, that a value fills: at least
// one.
func level(v, low, high float64, all int) int {
	if v <= 0 {
		return 0
	}
	share := math.Log10(v/low) / math.Log10(high/low)
	return min(max(int(math.Round(share*float64(all))), 1), all)
}

// decades returns the powers of ten that enclose all values.
func decades(values []float64) (low, high float64) {
	some := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= 0 })
	if len(some) == 0 {
		return 1, 10
	}
	low = math.Pow10(int(math.Floor(math.Log10(slices.Min(some)))))
	high = math.Pow10(int(math.Ceil(math.Log10(slices.Max(some)))))
	return low, max(high, 10*low)
}
