package multinode

import "math/bits"

// numbers is a set of small numbers. A nil set is empty.
type numbers struct{ words []uint64 }

func (n *numbers) add(x int) {
	for len(n.words) <= x/64 {
		n.words = append(n.words, 0)
	}
	n.words[x/64] |= 1 << (x % 64)
}

func (n *numbers) has(x int) bool {
	return n != nil && x/64 < len(n.words) && n.words[x/64]&(1<<(x%64)) != 0
}

// within returns how many numbers from first to last are in the set.
func (n *numbers) within(first, last int) (count int) {
	if n == nil || last < first {
		return 0
	}
	for w := first / 64; w <= last/64 && w < len(n.words); w++ {
		word := n.words[w]
		if w == first/64 {
			word &= ^uint64(0) << (first % 64)
		}
		if w == last/64 {
			word &= ^uint64(0) >> (63 - last%64)
		}
		count += bits.OnesCount64(word)
	}
	return count
}
