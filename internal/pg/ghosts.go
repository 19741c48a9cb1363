package pg

import (
	"slices"
	"sync"
)

// maxGhosts is how many positions Ghosts keeps. A log that grows without a failover adds one every 2^18 positions; Take removes
// it.
const maxGhosts = 8

// Ghosts is a set of positions that a failover may have lost: the last known position of each history, until it is checked.
// The zero value is empty. Safe for concurrent use.
type Ghosts struct {
	mu   sync.Mutex
	each []int64 // in ascending order
}

// Add adds positions, except 0 and those already in the set. If there are more than maxGhosts it drops the lowest.
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

// Take returns all positions in ascending order, and empties the set.
func (g *Ghosts) Take() []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	each := g.each
	g.each = nil
	return each
}
