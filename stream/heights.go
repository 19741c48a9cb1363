package stream

import "slices"

// heights are the positions that callers want for one offset, from the highest
// down, 0 where there is none. The highest is written. The others are used if it is
// after the end of the stream, so that one caller's wrong position does not lose
// the progress of the others.
type heights [8]int64

// add adds a position. If there is no space left, the highest two stay, and of the
// others the lower one of the closest pair is removed, because that loses least:
// many wrong positions, which are close to each other, cannot displace the right
// ones.
func (h *heights) add(position int64) {
	at := 0
	for at < len(h) && h[at] > position {
		at++
	}
	if at < len(h) && h[at] == position {
		return
	}
	var all [len(h) + 1]int64
	copy(all[:], h[:at])
	all[at] = position
	copy(all[at+1:], h[at:])
	last := len(all) - 1
	drop := last
	if all[last] != 0 {
		for i := last - 1; i >= 2; i-- {
			if all[i-1]-all[i] < all[drop-1]-all[drop] {
				drop = i
			}
		}
	}
	copy(h[:], all[:drop])
	copy(h[drop:], all[drop+1:])
}

// lower returns the positions after the highest.
func (h *heights) lower() []int64 {
	end := slices.Index(h[1:], 0)
	if end < 0 {
		end = len(h) - 1
	}
	return h[1 : 1+end]
}
