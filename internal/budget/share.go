package budget

import (
	"container/heap"
	"slices"
	"time"
)

// shareAge is how long computed fair shares are reused, because computing them walks all
// holders.
const shareAge = 20 * time.Millisecond

// fairShare returns the max-min fair share: the bytes that each group may have, if
// groups that want less leave the rest to the others. b.mu is held.
func (b *Budget) fairShare() int64 {
	now := time.Now()
	if b.shareAt.IsZero() || now.Sub(b.shareAt) > shareAge {
		b.share, b.shareAt = b.level(), now
		for _, w := range b.queue {
			b.measure(w)
		}
		heap.Init(&b.queue)
	}
	return b.share
}

// measure updates the size of a waiter, and whether it is within its fair share: that of its group, or that of a member of a
// group which wants more than its share. b.mu is held.
func (b *Budget) measure(w *waiter) {
	w.size = w.h.size() + w.n
	w.within = w.size <= max(b.share, smallest) || w.h.total.Load()+w.n <= w.h.group.memberShare
}

// level computes the fair share of the groups, and sets that of the members of each group. b.mu is held.
func (b *Budget) level() int64 {
	waiting := make(map[*Holder]int64, len(b.queue))
	for _, w := range b.queue {
		waiting[w.h] += w.n
	}
	var all []int64
	members := make(map[*group][]int64)
	for _, h := range b.holders {
		switch d := h.total.Load() + waiting[h]; {
		case d <= 0:
		case h.group == &h.own:
			all = append(all, d)
		default:
			members[h.group] = append(members[h.group], d)
		}
	}
	wanted := make(map[*group]int64, len(members))
	for g, demands := range members {
		for _, d := range demands {
			wanted[g] += d
		}
		all = append(all, wanted[g])
	}
	share := fill(b.mark, all)
	for _, g := range b.groups {
		if g.memberShare = 0; wanted[g] > share {
			g.memberShare = fill(share, members[g])
		}
	}
	return share
}

// fill divides bytes among demands by progressive filling, also known as water filling, and returns the most that each may have
// (Bertsekas and Gallager, Data Networks, 6.5.2). It sorts the demands.
func fill(bytes int64, demands []int64) int64 {
	slices.Sort(demands)
	rest := bytes
	for i, d := range demands {
		if share := rest / int64(len(demands)-i); d > share {
			return share
		}
		rest -= d
	}
	return bytes
}
