package budget

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/tidewire/tidewire/internal/testkit"
)

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
		testkit.Eventually(t, name, func() bool {
			runtime.GC()
			return right(percent())
		})
	}
	becomes("a small heap", func(p int) bool { return p > 300 })
	large := make([]byte, 2*minGarbage)
	becomes("a large heap", func(p int) bool { return p == minPercent })
	runtime.KeepAlive(large)
	large = nil
	becomes("small again", func(p int) bool { return p > 300 })
}
