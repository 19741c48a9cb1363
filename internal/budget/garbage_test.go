package budget

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 16 << 20: 400, 32 << 20: 200, 64 << 20: 100, 1 << 30: 100, 1 << 60: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("%d bytes alive: %d, want %d", live, got, want)
		}
	}
}

// TestGatherGarbage: GOGC follows the heap up and down. It changes the process, so it is not parallel.
func TestGatherGarbage(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(minPercent)
	defer debug.SetGCPercent(before)
	GatherGarbage()
	percent := func() int {
		set := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(set)
		return int(set[0].Value.Uint64())
	}
	becomes := func(name string, right func(int) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !right(percent()); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: GOGC is %d", name, percent())
			}
			runtime.GC()
		}
	}
	becomes("a small heap", func(p int) bool { return p > 300 })
	large := make([]byte, 2*minGarbage)
	becomes("a large heap", func(p int) bool { return p == minPercent })
	runtime.KeepAlive(large)
	large = nil
	becomes("small again", func(p int) bool { return p > 300 })
}
