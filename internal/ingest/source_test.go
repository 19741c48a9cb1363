package ingest

import (
	"math/rand/v2"
	"testing"
)

// TestSource_WatermarkHasNoGaps commits ranges in random order and compares
// the watermark with a plain list of flags.
func TestSource_WatermarkHasNoGaps(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 5))
	for range 200 {
		const total = 60
		var told uint64
		src := &Source{onCommit: func(n uint64) { told = n }}
		var ranges [][2]uint64
		for at := uint64(0); at < total; {
			end := min(at+1+uint64(random.IntN(9)), total)
			ranges = append(ranges, [2]uint64{at, end})
			at = end
		}
		random.Shuffle(len(ranges), func(i, j int) { ranges[i], ranges[j] = ranges[j], ranges[i] })
		var done [total]bool
		for _, r := range ranges {
			src.committed(r[0], r[1])
			for i := r[0]; i < r[1]; i++ {
				done[i] = true
			}
			want := uint64(0)
			for want < total && done[want] {
				want++
			}
			if told != want {
				t.Fatalf("after %v of %v: told %d, want %d", r, ranges, told, want)
			}
		}
	}
}
