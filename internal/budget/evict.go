package budget

import (
	"cmp"
	"slices"
	"time"
)

// shareAge is how long a computed fair share is reused, because computing it walks all
// holders.
const shareAge = 20 * time.Millisecond

// victims are evicted holders whose evict function is still to be called, without
// Budget.mu. Each call gets a new goroutine, because the caller of a Take may hold locks
// of the connection.
type victims []*Holder

func (v victims) evict() {
	for _, h := range v {
		if h.onEvict != nil {
			go h.onEvict()
		}
	}
}

// choose selects holders to evict so that need more bytes fit below bound, and
// marks them. Bytes that evicted holders still hold count as free: they will be
// released soon. w is the waiter to be served, or nil. The first victim is the
// greediest. Further holders are evicted only if they have released nothing for
// Patience, or if bound is the limit. b.mu is held.
func (b *Budget) choose(need, bound int64, w *waiter) victims {
	left := b.held.Load() - b.evicting.Load()
	if left <= bound-need {
		return nil
	}
	now := time.Now()
	type candidate struct {
		*Holder
		idle  time.Duration
		greed float64
		above bool // its fair share
	}
	share := max(b.fairShare(), smallest)
	order := make([]candidate, 0, len(b.holders))
	for _, h := range b.holders {
		if held := h.total.Load(); held > 0 && h.ended() == nil {
			idle := b.idle(h, now)
			order = append(order, candidate{h, idle, float64(held) * (1 + idle.Seconds()), held > share})
		}
	}
	slices.SortFunc(order, func(x, y candidate) int {
		if x.above != y.above { // the holders above the fair share are enough to make room
			if x.above {
				return -1
			}
			return 1
		}
		return cmp.Compare(y.greed, x.greed)
	})
	var found victims
	for _, c := range order {
		if left <= bound-need || len(found) > 0 && !c.above {
			break
		}
		if len(found) > 0 && bound < b.limit && c.idle < Patience {
			continue
		}
		left -= c.total.Load()
		found = append(found, b.markEvicted(c.Holder)...)
		if w != nil && c.Holder == w.h {
			break
		}
	}
	return found
}

// idle returns for how long a holder has released nothing under pressure. b.mu is held.
func (b *Budget) idle(h *Holder, now time.Time) time.Duration {
	if !b.pressed.Load() {
		return 0
	}
	since := b.pressedSince
	if h.releasedAt.After(since) {
		since = h.releasedAt
	}
	return now.Sub(since)
}

// markEvicted marks one holder as evicted. b.mu is held.
func (b *Budget) markEvicted(h *Holder) victims {
	h.mu.Lock()
	if h.evicted || h.closed {
		h.mu.Unlock()
		return nil
	}
	h.evicted = true
	b.evicting.Add(h.total.Load())
	h.mu.Unlock()
	b.evictions++
	b.fail(h, ErrEvicted)
	return victims{h}
}

// fairShare returns the max-min fair share: the bytes that each holder may have, if
// holders that want less leave the rest to the others. b.mu is held.
func (b *Budget) fairShare() int64 {
	now := time.Now()
	if b.shareAt.IsZero() || now.Sub(b.shareAt) > shareAge {
		b.share, b.shareAt = b.level(), now
	}
	return b.share
}

// level computes the fair share by progressive filling, also known as water filling, of
// the mark with the demands of all holders (Bertsekas and Gallager, Data Networks,
// 6.5.2).
func (b *Budget) level() int64 {
	demands := make([]int64, 0, len(b.holders))
	for _, h := range b.holders {
		d := h.total.Load()
		for _, w := range h.waiting {
			d += w.n
		}
		if d > 0 {
			demands = append(demands, d)
		}
	}
	slices.Sort(demands)
	rest := b.mark
	for i, d := range demands {
		if share := rest / int64(len(demands)-i); d > share {
			return share
		}
		rest -= d
	}
	return b.mark
}
