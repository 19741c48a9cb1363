package budget

import (
	"slices"
	"sync/atomic"
)

// group is the holders of one client, for example of one user. A holder has one of its own at first.
type group struct {
	name    string       // "" of a holder's own
	total   atomic.Int64 // bytes of the members; not kept up to date for a holder's own
	members int          // guarded by Budget.mu
	waiting []*waiter    // of the members; guarded by Budget.mu
	// memberShare is the fair share of a member, if the group wants more than its own, and 0 if not. Guarded by Budget.mu.
	memberShare int64
}

// Join makes the holder a member of the group of that name, in place of its present one. The fair share is that of a group: its members together get what one
// holder alone would. "" is a group of the holder's own.
func (h *Holder) Join(name string) {
	if h == nil {
		return
	}
	b := h.b
	b.mu.Lock()
	h.mu.Lock()
	from := h.group
	if h.closed || name == from.name {
		h.mu.Unlock()
		b.mu.Unlock()
		return
	}
	to := b.groupOf(h, name)
	n := h.total.Load()
	from.total.Add(-n)
	to.total.Add(n)
	to.members++
	h.group = to
	h.mu.Unlock()
	b.moveWaiters(h, from, to)
	b.leave(from)
	b.reorder(from)
	b.reorder(to)
	victims := b.settle()
	b.mu.Unlock()
	victims.evict()
}

// groupOf returns the group of that name, which h is to join. b.mu is held.
func (b *Budget) groupOf(h *Holder, name string) *group {
	if name == "" {
		return &h.own
	}
	g := b.groups[name]
	if g == nil {
		g = &group{name: name}
		b.groups[name] = g
	}
	return g
}

// leave forgets a group without members. b.mu is held.
func (b *Budget) leave(g *group) {
	if g.members--; g.members == 0 && g.name != "" {
		delete(b.groups, g.name)
	}
}

func (b *Budget) moveWaiters(h *Holder, from, to *group) {
	from.waiting = slices.DeleteFunc(from.waiting, func(w *waiter) bool {
		if w.h == h {
			to.waiting = append(to.waiting, w)
		}
		return w.h == h
	})
}

// size returns the bytes of the holder's group. Budget.mu is held.
func (h *Holder) size() int64 {
	if h.group == &h.own {
		return h.total.Load()
	}
	return h.group.total.Load()
}
