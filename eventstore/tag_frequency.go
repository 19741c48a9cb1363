package eventstore

import "sync/atomic"

// tagFrequency says roughly how many events a tag has got from this Store: of
// several tags, PostgreSQL is told to look up the one with the fewest. A wrong
// guess costs it a few microseconds, for it looks itself.
type tagFrequency struct {
	counts [1 << 14]atomic.Uint32 // by hash
}

func (p *tagFrequency) of(hash int64) *atomic.Uint32 {
	return &p.counts[uint64(hash)%uint64(len(p.counts))]
}

// rarest is the index of the hash with the lowest count.
func (p *tagFrequency) rarest(hashes []int64) int {
	best := 0
	for i := 1; i < len(hashes); i++ {
		if p.of(hashes[i]).Load() < p.of(hashes[best]).Load() {
			best = i
		}
	}
	return best
}
