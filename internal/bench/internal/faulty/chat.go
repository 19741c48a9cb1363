package faulty

import (
	"bytes"
	"sync"

	"github.com/tidewire/tidewire/websocket"
)

// room has the members of a chat.
type room struct {
	vice Vice

	mu      sync.Mutex                                      // guards the field below
	members map[*websocket.Conn]map[*websocket.Conn]*Outlet // by sender
}

// Chat returns a server with one room: each chat goes to all other members. The
// vice affects what every other member receives of each sender.
func Chat(vice Vice) *Server {
	r := &room{vice: vice, members: make(map[*websocket.Conn]map[*websocket.Conn]*Outlet)}
	return start(vice, func(c *websocket.Conn) session {
		return session{
			message: func(p []byte) { r.handle(c, p) },
			ended:   func() { r.leave(c) },
		}
	})
}

func (r *room) handle(c *websocket.Conn, p []byte) {
	switch {
	case bytes.Contains(p, []byte(`"join"`)):
		r.mu.Lock()
		r.members[c] = make(map[*websocket.Conn]*Outlet)
		r.mu.Unlock()
	case bytes.Contains(p, []byte(`"ping"`)):
		c.Queue(websocket.OpText, []byte(`{"type":"pong"}`))
		c.Flush()
	case bytes.Contains(p, []byte(`"leave"`)):
		r.leave(c)
	case bytes.Contains(p, []byte(`"chat"`)):
		r.say(c, p)
	}
}

func (r *room) leave(c *websocket.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.members, c)
}

func (r *room) say(from *websocket.Conn, p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for to, heard := range r.members {
		if to == from {
			continue
		}
		if heard[from] == nil {
			heard[from] = &Outlet{Vice: r.vice}
		}
		heard[from].Pass(p, func(p []byte) { to.Queue(websocket.OpText, p) })
		to.Flush()
	}
}
