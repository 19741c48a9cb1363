package budget

import (
	"cmp"
	"slices"
	"time"
)

// shareAge is for how long a computed fair share is used: it walks all holders.
const shareAge = 20 * time.Millisecond

// victims are holders to be told that they are evicted, without Budget.mu. Each is
// told in a goroutine of its own: a Take may come from where the connection's locks
// are held.
type victims []*Holder

func (v victims) evict() {
	for _, h := range v {
		if h.onEvict != nil {
			go h.onEvict()
		}
	}
}

// choose chooses who is evicted so that need more bytes fit below bound, and
// marks them. Bytes that evicted holders still hold count as free: they are about
// to be released. w is the waiter that is to be served, or nil: the first victim is the
// greediest; others go with it only if they are stuck, or if the limit leaves no
// choice. b.mu is held.
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
		if x.above != y.above { // what is above the fair share is enough to make room
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

// idle is for how long a holder has released nothing while there was pressure.
// b.mu is held.
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

// fairShare returns the max-min fair share: what each holder may have, if those
// that want less leave the rest to the others. b.mu is held.
func (b *Budget) fairShare() int64 {
	now := time.Now()
	if b.shareAt.IsZero() || now.Sub(b.shareAt) > shareAge {
		b.share, b.shareAt = b.level(), now
	}
	return b.share
}

// level fills the mark with the demands of all holders, as water fills vessels
// (progressive filling: Bertsekas and Gallager, Data Networks, 6.5.2).
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
