package room

import (
	"slices"
	"sync"
)

// Listener gets what is published in a room without being a member: nobody sees it in the room's presence. The room exists while it has a listener.
type Listener struct {
	room *Room
	hear func(start int64, frames []byte)
	once sync.Once // Close

	pos int64 // used only by the flusher
}

// Listen has a function called with all frames that members of the room of that name get from now on, in their order, those of other nodes and
// notices of lost messages among them. start is the offset of the first byte in the room's log. Goroutines of the room call the function, one at a time; it must
// not block, and keep no reference to the frames. End that with Close.
func (h *Hub) Listen(name string, hear func(start int64, frames []byte)) *Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.enter(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &Listener{room: r, hear: hear, pos: r.log.head}
	r.listeners = append(slices.Clip(r.listeners), l) // the flusher has the old list
	return l
}

// Head returns the offset after the last frame that is published.
func (l *Listener) Head() int64 {
	l.room.mu.Lock()
	defer l.room.mu.Unlock()
	return l.room.log.head
}

// Close ends the listening. The function may be running still, and is not called again. A second call does nothing.
func (l *Listener) Close() {
	l.once.Do(func() {
		r := l.room
		r.mu.Lock()
		left := slices.Clone(r.listeners)
		r.listeners = slices.DeleteFunc(left, func(other *Listener) bool { return other == l })
		r.mu.Unlock()
		r.nudge() // the room may end
	})
}

// tell tells the listeners what they have not heard.
func (r *Room) tell() {
	r.mu.Lock()
	listeners := r.listeners
	if len(listeners) == 0 {
		r.mu.Unlock()
		return
	}
	s := share{room: r}
	s.lookAt(&r.log)
	r.mu.Unlock()
	for _, l := range listeners {
		for l.pos < s.head {
			start, frames := l.pos, s.from(l.pos)
			l.pos += int64(len(frames))
			l.hear(start, frames)
		}
	}
}
