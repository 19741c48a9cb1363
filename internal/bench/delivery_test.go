package bench

import (
	"testing"
	"time"
)

func TestStamped(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 123456789)
	for _, size := range []int{MinStamped, MinStamped + 1, 1024} {
		p := AppendStamped(nil, 7, 1<<20, at, size)
		pattern := AppendStamped(nil, 0, 0, time.Time{}, size)
		writer, seq, when, ok := ParseStamped(p, pattern)
		if len(p) != size || writer != 7 || seq != 1<<20 || !when.Equal(at) || !ok {
			t.Errorf("size %d: %d bytes, writer %d, number %d, %v, %v", size, len(p), writer, seq, when, ok)
		}
		if _, _, _, ok := ParseStamped(p[:size-1], pattern); ok {
			t.Errorf("size %d: a part is taken for the whole", size)
		}
		if size > MinStamped {
			p[size-1]++
			if _, _, _, ok := ParseStamped(p, pattern); ok {
				t.Errorf("size %d: damage is not seen", size)
			}
		}
	}
}

func TestLedger(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		read [][2]int
		want Account
	}{
		{"all", [][2]int{{0, 0}, {0, 1}, {0, 2}, {1, 0}}, Account{Read: 4}},
		{"one lost", [][2]int{{0, 0}, {0, 2}, {1, 0}}, Account{Read: 3, Lost: 1}},
		{"the last lost", [][2]int{{0, 0}, {0, 1}, {0, 2}}, Account{Read: 3, Lost: 1}},
		{"one twice", [][2]int{{0, 0}, {0, 0}, {0, 1}, {0, 2}, {1, 0}}, Account{Read: 4, Duplicated: 1}},
		{"out of order", [][2]int{{0, 1}, {0, 0}, {1, 0}, {0, 2}}, Account{Read: 4, Reordered: 1}},
		{"never sent", [][2]int{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}}, Account{Read: 4, Foreign: 1}},
		{"nobody's", [][2]int{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {2, 0}, {0, -1}, {0, 1 << 40}}, Account{Read: 4, Foreign: 3}},
	} {
		l := NewDeliveryChecker(2)
		for _, m := range c.read {
			l.Read(m[0], m[1])
		}
		got := l.Balance([]int{3, 1})
		if got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if ok := c.want.Lost+c.want.Duplicated+c.want.Foreign == 0; got.OK() != ok {
			t.Errorf("%s: OK is %v", c.name, got.OK())
		}
	}
}
