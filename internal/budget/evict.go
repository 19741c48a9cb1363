package budget

import (
	"cmp"
	"slices"
	"time"
)

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

// candidate is a holder that may be evicted.
type candidate struct {
	*Holder
	idle  time.Duration
	greed float64
}

// candidates are the holders of one group that may be evicted, the greediest first.
type candidates struct {
	members []candidate
	held    int64
	greed   float64
}

// rank orders groups before greed does: those above their fair share come first, since they are enough to make room, and those that hold next to
// nothing last, since they make none.
func (c *candidates) rank(share int64) int {
	switch {
	case c.held > share:
		return 0
	case c.held > smallest:
		return 1
	}
	return 2
}

// candidates returns the groups of which a holder may be evicted, by rank, and the greediest of each rank first. b.mu is held.
func (b *Budget) candidates(share int64) []*candidates {
	now := time.Now()
	of := make(map[*group]*candidates)
	var order []*candidates
	for _, h := range b.holders {
		held := h.total.Load()
		if held <= 0 || h.ended() != nil {
			continue
		}
		c := of[h.group]
		if c == nil {
			c = new(candidates)
			of[h.group] = c
			order = append(order, c)
		}
		idle := b.idle(h, now)
		m := candidate{h, idle, float64(held) * (1 + idle.Seconds())}
		c.members, c.held, c.greed = append(c.members, m), c.held+held, c.greed+m.greed
	}
	slices.SortFunc(order, func(x, y *candidates) int {
		return cmp.Or(cmp.Compare(x.rank(share), y.rank(share)), cmp.Compare(y.greed, x.greed))
	})
	for _, c := range order {
		slices.SortFunc(c.members, func(x, y candidate) int { return cmp.Compare(y.greed, x.greed) })
	}
	return order
}

// choose selects holders to evict so that need more bytes fit below bound, and
// marks them. Bytes that evicted holders still hold count as free: they will be
// released soon. w is the waiter to be served, or nil. The first victim is the
// greediest of the greediest group, unless w and the next waiter fit once those bytes are released. All others are evicted only of groups above
// their fair share, and only if they have released nothing for Patience, or if bound is the limit.
// Below the limit nobody is evicted of a group that holds next to nothing. b.mu is held.
func (b *Budget) choose(need, bound int64, w *waiter) victims {
	left := b.held.Load() - b.evicting.Load()
	if left <= bound-need {
		return nil
	}
	share := max(b.fairShare(), smallest)
	enough := w != nil && left <= bound-max(w.n, b.queue[0].n)
	var found victims
	for _, c := range b.candidates(share) {
		for _, m := range c.members {
			if left <= bound-need {
				return found
			}
			if enough && c.held <= share || bound < b.limit && c.held <= smallest {
				break
			}
			if enough && bound < b.limit && m.idle < Patience {
				continue
			}
			n := m.total.Load()
			left, c.held, enough = left-n, c.held-n, true
			found = append(found, b.markEvicted(m.Holder)...)
			if w != nil && m.Holder == w.h {
				return found
			}
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
