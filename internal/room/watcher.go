package room

import (
	"sync"
	"time"
)

// Watch makes the member a watcher: it gets a list of who is in the room, and
// then changes, at most four times a second. Messages queued on its connection
// before the call precede the list. A second call, or one after Leave, does
// nothing.
func (m *Member) Watch() {
	r := m.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.index < 0 || m.watcher != nil {
		return
	}
	if r.presence == nil {
		r.presence = newPresence(r)
		r.outlet.watch(true)
		r.hub.flushers.Go(r.presence.run)
	}
	p := r.presence
	m.watcher = &watcher{member: m, index: len(p.watchers)}
	p.watchers = append(p.watchers, m.watcher)
	p.nudge()
}

// Unwatch undoes Watch: after it, the member is told nothing more of who is in the room. A Watch after it begins with a list again. Without a Watch
// before it, it does nothing.
func (m *Member) Unwatch() {
	if w := m.unwatch(); w != nil {
		w.end() // not under the locks: it waits for a write
	}
}

// unwatch removes m's watcher from the presence, and returns it, or nil.
func (m *Member) unwatch() *watcher {
	r := m.room
	r.mu.Lock()
	defer r.mu.Unlock()
	w := m.watcher
	if m.index < 0 || w == nil {
		return nil
	}
	m.watcher = nil
	r.presence.remove(w)
	r.presence.nudge()
	return w
}

// watcher is the watcher state of a member.
type watcher struct {
	member *Member
	index  int // in presence.watchers; guarded by room.mu

	mu   sync.Mutex // held during a write: none follows end
	gone bool

	// Used only by presence.run.
	follows bool      // it has a list, and needs the batches from pos on
	pos     int64     // in presence.log
	blocked time.Time // since when the socket takes nothing; zero if it is not blocked
}

// remove removes w from the watchers. room.mu is held.
func (p *presence) remove(w *watcher) {
	last := len(p.watchers) - 1
	p.watchers[w.index] = p.watchers[last]
	p.watchers[w.index].index = w.index
	p.watchers[last] = nil
	p.watchers = p.watchers[:last]
}

// end returns when nothing more is written to w. A batch of this membership must
// not follow a list of a later membership on the same connection.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
}

// offer writes everything that w has not received, until its socket takes no
// more. It reports whether w has received everything, or is gone.
func (w *watcher) offer(p *presence, now time.Time) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := false
	if !w.gone {
		moved = w.write(p)
	}
	switch {
	case w.gone:
		w.follows = false
		return true
	case w.follows && w.pos == p.log.head:
		w.blocked = time.Time{}
		return true
	case moved || w.blocked.IsZero():
		w.blocked = now
	}
	w.checkLag(p, now)
	return w.gone
}

// write reports whether the socket took something.
func (w *watcher) write(p *presence) (moved bool) {
	conn := w.member.conn
	if int64(conn.Backlog()) > p.room.hub.cfg.MaxLagBytes {
		return false // the peer does not read, though the kernel would take more
	}
	if !w.follows {
		n, err := conn.WriteShared(p.list)
		conn.CountShared(frames(p.list[:n]))
		w.gone = err != nil
		w.follows, w.pos = n > 0, p.log.head
		return n > 0
	}
	for w.pos < p.log.head {
		batches := p.log.at(w.pos)
		n, err := conn.WriteShared(batches)
		if err != nil {
			w.gone = true
			return moved
		}
		conn.CountShared(frames(batches[:n]))
		w.pos += int64(n)
		moved = moved || n > 0
		if n < len(batches) {
			return moved
		}
	}
	return moved
}

// checkLag handles a watcher that lags too far: it gets a new list in place of
// the batches when its socket takes bytes again, or is closed.
func (w *watcher) checkLag(p *presence, now time.Time) {
	m, cfg := w.member, p.room.hub.cfg
	lag := int64(m.conn.Unsent())
	if w.follows {
		lag += p.log.head - w.pos
	}
	if lag <= cfg.MaxLagBytes && now.Sub(w.blocked) <= cfg.MaxLagAge {
		return
	}
	w.follows, w.blocked = false, time.Time{}
	if m.disconnect {
		w.gone = true
		m.expel()
		return
	}
	p.nudge()
}
