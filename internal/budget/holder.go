package budget

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Holder is the account of one connection or request in a Budget.
type Holder struct {
	b       *Budget
	onEvict func()
	total   atomic.Int64 // sum of held, to be read without mu

	// Lock order: Budget.mu before mu.
	mu      sync.Mutex
	group   *group // written under both locks
	own     group
	held    [Kinds]int64
	evicted bool
	closed  bool

	// Guarded by Budget.mu.
	index      int       // in Budget.holders
	releasedAt time.Time // when it last released something under pressure; zero before
}

// Take counts n bytes that exist already or cannot wait. It never waits. n below 1
// counts nothing.
func (h *Holder) Take(k Kind, n int64) {
	if h == nil || n <= 0 {
		return
	}
	total := h.add(k, n)
	if b := h.b; b.pressed.Load() || total-b.evicting.Load() > b.limit {
		b.changed(h, false)
	}
}

// Reserve waits until n bytes fit, and counts them. Call it before the bytes are
// allocated. The error is ErrEvicted, ErrTooLarge, ErrClosed or ctx's; then nothing was
// counted.
func (h *Holder) Reserve(ctx context.Context, k Kind, n int64) error {
	if h == nil || n <= 0 {
		return nil
	}
	b := h.b
	if n > b.mark {
		return ErrTooLarge
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !b.pressed.Load() {
		if ok, err := h.tryAdd(k, n, b.mark); ok || err != nil {
			return err
		}
	}
	return b.wait(ctx, h, k, n)
}

// TryReserve is a Reserve that does not wait: if the bytes do not fit now, it returns
// false and counts nothing.
func (h *Holder) TryReserve(k Kind, n int64) bool {
	if h == nil || n <= 0 {
		return true
	}
	if n > h.b.mark || h.b.pressed.Load() {
		return false
	}
	ok, _ := h.tryAdd(k, n, h.b.mark)
	return ok
}

// Release uncounts n bytes that Take or Reserve have counted. After Close, which
// releases everything, it does nothing.
func (h *Holder) Release(k Kind, n int64) {
	if h == nil || n <= 0 {
		return
	}
	h.add(k, -n)
	if h.b.pressed.Load() {
		h.b.changed(h, true)
	}
}

// Held returns how many bytes the holder holds.
func (h *Holder) Held() int64 {
	if h == nil {
		return 0
	}
	return h.total.Load()
}

// Close releases everything and ends the holder: its Reserves fail with ErrClosed, and
// Take counts nothing any more. Further calls of Close do nothing.
func (h *Holder) Close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	for k, n := range h.held {
		h.count(Kind(k), -n)
	}
	h.closed = true
	h.mu.Unlock()
	h.b.closed(h)
}

// add counts n bytes, which may be negative, and returns the bytes of all holders.
func (h *Holder) add(k Kind, n int64) (all int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return h.b.held.Load()
	}
	if n < -h.held[k] { // a bug of the caller: correct it, so that the sums stay right
		h.b.excess.Add(-n - h.held[k])
		n = -h.held[k]
	}
	return h.count(k, n)
}

// count adds n to all sums. h.mu is held.
func (h *Holder) count(k Kind, n int64) (all int64) {
	if n == 0 {
		return h.b.held.Load()
	}
	h.held[k] += n
	h.total.Add(n)
	if h.evicted {
		h.b.evicting.Add(n)
	}
	if h.group != &h.own {
		h.group.total.Add(n)
	}
	h.b.byKind[k].Add(n)
	return h.b.held.Add(n)
}

// tryAdd counts n bytes if all holders then hold at most bound.
func (h *Holder) tryAdd(k Kind, n, bound int64) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.end(); err != nil {
		return false, err
	}
	for {
		all := h.b.held.Load()
		if all > bound-n {
			return false, nil
		}
		if h.b.held.CompareAndSwap(all, all+n) {
			break
		}
	}
	h.held[k] += n
	h.total.Add(n)
	if h.group != &h.own {
		h.group.total.Add(n)
	}
	h.b.byKind[k].Add(n)
	return true, nil
}

// ended returns why the holder can reserve nothing more, or nil.
func (h *Holder) ended() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.end()
}

// end is ended. h.mu is held.
func (h *Holder) end() error {
	switch {
	case h.closed:
		return ErrClosed
	case h.evicted:
		return ErrEvicted
	}
	return nil
}
