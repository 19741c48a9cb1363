package pg

import (
	"slices"
	"sync"
)

// maxGhosts is how many positions Ghosts keep. A log that grows without a failover leaves one every 2^18 positions, which goes
// when somebody looks.
const maxGhosts = 8

// Ghosts are positions of which it is to be found out whether a failover has lost them: the last that was known in each history.
// The zero value has none. Safe for concurrent use.
type Ghosts struct {
	mu   sync.Mutex
	each []int64 // in ascending order
}

// Add adds positions; those that are 0, or there already, are left out. Of too many the lowest go.
func (g *Ghosts) Add(positions ...int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range positions {
		if at, found := slices.BinarySearch(g.each, p); p > 0 && !found {
			g.each = slices.Insert(g.each, at, p)
		}
	}
	if more := len(g.each) - maxGhosts; more > 0 {
		g.each = slices.Delete(g.each, 0, more)
	}
}

// Take returns all, in ascending order, and keeps none.
func (g *Ghosts) Take() []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	each := g.each
	g.each = nil
	return each
}
