package budget

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// minGarbage is how many bytes of garbage a small heap gathers before Go collects them. A
	// collection marks all that is alive, so its cost does not depend on the garbage. With Go's
	// default a heap of 20 MiB is collected after 20 MiB of garbage, many times a second under load.
	minGarbage = 64 << 20
	// minPercent and maxPercent limit GOGC, the garbage in percent of what is alive. minPercent is Go's default.
	minPercent, maxPercent = 100, 400
)

// GatherGarbage makes Go collect garbage less often while the heap is small, from now on: it
// gathers 64 MiB, but not more than four times what is alive. Larger heaps have Go's default.
// The soft limit holds as before. If GOGC is set in the environment, it does nothing.
func GatherGarbage() {
	if os.Getenv("GOGC") == "" {
		afterCollection(&gathering{percent: minPercent})
	}
}

// gathering adapts GOGC to the heap after each collection.
type gathering struct{ percent int }

// afterCollection calls g.adapt soon after the next collection. Go has no such call, so it
// waits for the end of an object that nothing refers to.
func afterCollection(g *gathering) {
	// Objects without pointers may share memory with others that live on.
	runtime.AddCleanup(new(*gathering), (*gathering).adapt, g)
}

// adapt sets GOGC for the heap as it is now.
func (g *gathering) adapt() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	// SetGCPercent stops all goroutines for a moment: a small change is not worth it.
	if p := percentFor(live[0].Value.Uint64()); math.Abs(float64(p-g.percent)) > float64(g.percent)/10 {
		g.percent = p
		debug.SetGCPercent(p)
	}
	afterCollection(g)
}

// percentFor returns GOGC for a heap of which that many bytes are alive.
func percentFor(live uint64) int {
	return int(min(max(100*minGarbage/max(live, 1), minPercent), maxPercent))
}
