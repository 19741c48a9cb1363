package live

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// absent stands for a figure that was not measured.
const absent = "–"

// count formats a number with thousands separators: 1,234,567.
func count(n float64) string {
	digits := strconv.FormatFloat(n, 'f', 0, 64)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// duration formats milliseconds with about three digits and a suitable unit.
func duration(ms float64) string {
	switch {
	case ms < 1:
		return fmt.Sprintf("%.0f µs", ms*1000)
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.2f s", ms/1000)
	}
}

// decade formats a power of ten of milliseconds.
func decade(ms float64) string {
	switch {
	case ms < 1:
		return fmt.Sprintf("%g µs", ms*1000)
	case ms < 1000:
		return fmt.Sprintf("%g ms", ms)
	default:
		return fmt.Sprintf("%g s", ms/1000)
	}
}

// size formats bytes in a suitable unit.
func size(bytes float64) string {
	switch {
	case bytes < 1e9:
		return fmt.Sprintf("%.0f MB", bytes/1e6)
	default:
		return fmt.Sprintf("%.1f GB", bytes/1e9)
	}
}

// clock formats a duration as minutes and seconds, or hours, minutes and
// seconds.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}
