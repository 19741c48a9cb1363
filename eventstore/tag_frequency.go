package eventstore

import "sync/atomic"

// tagFrequency is a sketch: it estimates how many events with a tag this Store has
// appended. PostgreSQL looks up a query with several tags by the tag with the fewest
// events. A wrong estimate costs a few microseconds, because PostgreSQL then finds
// out that another tag is rarer.
type tagFrequency struct {
	counts [1 << 14]atomic.Uint32 // by hash
}

func (p *tagFrequency) of(hash int64) *atomic.Uint32 {
	return &p.counts[uint64(hash)%uint64(len(p.counts))]
}

// rarest returns the index of the hash with the lowest count.
func (p *tagFrequency) rarest(hashes []int64) int {
	best := 0
	for i := 1; i < len(hashes); i++ {
		if p.of(hashes[i]).Load() < p.of(hashes[best]).Load() {
			best = i
		}
	}
	return best
}
