package stream

import (
	"slices"
	"testing"
)

func TestHeights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		added []int64
		want  heights
	}{
		"none":                       {[]int64{0}, heights{}},
		"any order, some twice":      {[]int64{2, 5, 2, 1, 5, 9}, heights{9, 5, 2, 1}},
		"rising: the highest":        {[]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, heights{10, 9, 8, 7, 6, 5, 4, 3}},
		"the last, and one after it": {[]int64{10, 20, 30, 40, 50, 60, 70, 80, 81}, heights{81, 80, 70, 60, 50, 40, 30, 20}},
		"close ones go":              {[]int64{1000, 1001, 1002, 1003, 1004, 1005, 1006, 7, 1007, 5000}, heights{5000, 1007, 1006, 1005, 1004, 1003, 1002, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			var h heights
			for _, position := range c.added {
				h.add(position)
			}
			if h != c.want {
				t.Errorf("%v, want %v", h, c.want)
			}
			if lower := h.lower(); !slices.IsSortedFunc(lower, func(a, b int64) int { return int(b - a) }) || slices.Contains(lower, 0) {
				t.Errorf("lower: %v", lower)
			}
		})
	}
}
