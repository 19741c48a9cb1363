package room

import (
	"sync"
	"time"
)

// Watch has the member told who is in the room: a list, and then changes, a few
// times a second at most. Messages queued on its connection before the call
// come before the list. A second call does nothing, nor does one after Leave.
func (m *Member) Watch() {
	r := m.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.index < 0 || m.watcher != nil {
		return
	}
	if r.presence == nil {
		r.presence = newPresence(r)
		r.hub.flushers.Go(r.presence.run)
	}
	p := r.presence
	m.watcher = &watcher{member: m, index: len(p.watchers)}
	p.watchers = append(p.watchers, m.watcher)
	p.nudge()
}

// watcher is a member that is told who is in the room.
type watcher struct {
	member *Member
	index  int // in presence.watchers; guarded by room.mu

	mu   sync.Mutex // held during a write: none follows end
	gone bool

	// Of presence.run.
	follows bool      // it has a list, and needs the batches from pos on
	pos     int64     // in presence.log
	blocked time.Time // since when the socket takes nothing; zero: it does
}

// remove takes w out of the list. room.mu is held.
func (p *presence) remove(w *watcher) {
	last := len(p.watchers) - 1
	p.watchers[w.index] = p.watchers[last]
	p.watchers[w.index].index = w.index
	p.watchers[last] = nil
	p.watchers = p.watchers[:last]
}

// end returns when nothing is written to w any more. A list of a later
// membership on the same connection must not be followed by a batch of this one.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
}

// offer writes what w has not got, until its socket takes no more, and reports
// whether that was all, or w is gone.
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
		return false // the kernel would take it, and its peer does not read
	}
	if !w.follows {
		n, err := conn.WriteShared(p.list)
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
		w.pos += int64(n)
		moved = moved || n > 0
		if n < len(batches) {
			return moved
		}
	}
	return moved
}

// checkLag has a watcher that lags too far get a list in place of the
// batches, when its socket takes something again, or closes it.
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
