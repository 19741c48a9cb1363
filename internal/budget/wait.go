package budget

import (
	"container/heap"
	"context"
	"slices"
	"time"
)

// waiter is a Reserve that waits. Guarded by Budget.mu.
type waiter struct {
	h     *Holder
	k     Kind
	n     int64
	since time.Time
	index int        // in Budget.queue; -1 once it is answered
	done  chan error // one slot: the answer

	// As of the last update:
	size   int64 // bytes of its group if this is granted
	within bool  // its fair share
}

// manyWaiters is how many waiters of a group are measured after each change. With more of them, all are measured once in shareAge.
const manyWaiters = 64

// waitQueue is a heap of waiters: those within their fair share first, of these the smallest group, and among equals the
// one that has waited longest.
type waitQueue []*waiter

func (q waitQueue) Len() int { return len(q) }
func (q waitQueue) Less(i, j int) bool {
	if q[i].within != q[j].within {
		return q[i].within
	}
	if q[i].size != q[j].size {
		return q[i].size < q[j].size
	}
	return q[i].since.Before(q[j].since)
}
func (q waitQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *waitQueue) Push(x any) {
	w := x.(*waiter)
	w.index = len(*q)
	*q = append(*q, w)
}
func (q *waitQueue) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return w
}

// wait is the slow path of Reserve.
func (b *Budget) wait(ctx context.Context, h *Holder, k Kind, n int64) error {
	w := &waiter{h: h, k: k, n: n, since: time.Now(), done: make(chan error, 1)}
	b.mu.Lock()
	if err := h.ended(); err != nil {
		b.mu.Unlock()
		return err
	}
	// First set pressed, then read the bytes held: a Release that does not see
	// pressed came before that read, so no wake-up is lost.
	b.press()
	b.measure(w)
	heap.Push(&b.queue, w)
	h.group.waiting = append(h.group.waiting, w)
	victims := b.settle()
	if w.index >= 0 {
		b.waits++
	}
	b.mu.Unlock()
	victims.evict()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	b.mu.Lock()
	if w.index < 0 { // answered meanwhile
		b.mu.Unlock()
		return <-w.done
	}
	b.answer(w, ctx.Err())
	victims = b.settle()
	b.mu.Unlock()
	victims.evict()
	return ctx.Err()
}

// press begins a time of pressure: from now on every change calls settle. b.mu is
// held.
func (b *Budget) press() {
	if b.pressed.Load() {
		return
	}
	b.pressed.Store(true)
	b.pressedSince = time.Now()
	if b.timer == nil {
		b.timer = time.AfterFunc(tick, b.overdue)
	} else {
		b.timer.Reset(tick)
	}
}

// settle grants the waiters that fit, in order, and returns the holders to evict now.
// It stops at the first waiter that does not fit, so that the others, whose groups
// are larger or above their share, cannot starve it. b.mu is held.
func (b *Budget) settle() victims {
	for len(b.queue) > 0 {
		b.fairShare() // it may change the order
		w, bound := b.queue[0], b.mark
		if w.within {
			bound = b.limit
		}
		ok, err := w.h.tryAdd(w.k, w.n, bound)
		if !ok && err == nil {
			if bound == b.limit && b.shareAt.After(w.since) {
				return b.choose(w.n, b.limit, w)
			}
			break
		}
		b.answer(w, err)
		b.reorder(w.h.group)
	}
	if len(b.queue) == 0 && b.pressed.Load() {
		b.pressed.Store(false)
		b.timer.Stop()
	}
	return b.choose(0, b.limit, nil)
}

// answer ends a wait. b.mu is held.
func (b *Budget) answer(w *waiter, err error) {
	heap.Remove(&b.queue, w.index)
	w.index = -1
	g := w.h.group
	i := slices.Index(g.waiting, w)
	g.waiting = slices.Delete(g.waiting, i, i+1)
	w.done <- err
}

// reorder moves the waiters of a group whose size has changed to their new places in
// the queue. b.mu is held.
func (b *Budget) reorder(g *group) {
	if len(g.waiting) > manyWaiters { // fairShare will measure them all
		return
	}
	for _, w := range g.waiting {
		size, within := w.size, w.within
		if b.measure(w); w.size != size || w.within != within {
			heap.Fix(&b.queue, w.index)
		}
	}
}

// changed settles the queue after h took or released bytes.
func (b *Budget) changed(h *Holder, released bool) {
	b.mu.Lock()
	if released {
		h.releasedAt = time.Now()
	}
	b.reorder(h.group)
	victims := b.settle()
	b.mu.Unlock()
	victims.evict()
}

// closed removes a holder that has been closed.
func (b *Budget) closed(h *Holder) {
	b.mu.Lock()
	b.fail(h, ErrClosed)
	b.remove(h)
	b.reorder(h.group)
	victims := b.settle()
	b.mu.Unlock()
	victims.evict()
}

// fail ends all waits of a holder. b.mu is held.
func (b *Budget) fail(h *Holder, err error) {
	for _, w := range slices.Clone(h.group.waiting) {
		if w.h == h {
			b.answer(w, err)
		}
	}
}

// giveUp evicts the holder of an overdue waiter that wants more than its share and does not fit, although nobody else is to be evicted: the
// others hold next to nothing. b.mu is held.
func (b *Budget) giveUp(now time.Time, waiters ...*waiter) victims {
	left := b.held.Load() - b.evicting.Load()
	for _, w := range waiters {
		if !w.within && now.Sub(w.since) >= Patience && left > b.mark-w.n {
			return b.markEvicted(w.h)
		}
	}
	return nil
}

// overdue runs every tick while there are waiters. It evicts holders to make room for
// the waiters that have waited for Patience.
func (b *Budget) overdue() {
	b.mu.Lock()
	now := time.Now()
	var first *waiter
	var need int64
	for _, w := range b.queue {
		if now.Sub(w.since) < Patience {
			continue
		}
		if need += w.n; first == nil || w.since.Before(first.since) {
			first = w
		}
	}
	var found victims
	switch {
	case first == nil:
	case first.h.total.Load()+first.n > b.mark: // its own bytes are too many: no other eviction helps
		found = b.markEvicted(first.h)
	default:
		if found = b.choose(min(need, b.mark), b.mark, first); len(found) == 0 {
			found = b.giveUp(now, first, b.queue[0])
		}
	}
	found = append(found, b.settle()...)
	if len(b.queue) > 0 {
		b.timer.Reset(tick)
	}
	b.mu.Unlock()
	found.evict()
}
