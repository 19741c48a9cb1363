package room

import (
	"sync"
	"sync/atomic"

	"github.com/tidewire/tidewire/websocket"
)

// Hub holds the rooms of a server. A room exists while it has members or listeners, and some milliseconds longer.
type Hub struct {
	cfg        Config
	deliveries atomic.Uint64
	missed     atomic.Uint64
	flushers   sync.WaitGroup

	mu    sync.Mutex // taken before a room's
	rooms map[string]*Room
}

// NewHub returns a Hub without rooms.
func NewHub(cfg Config) *Hub {
	return &Hub{cfg: cfg.withDefaults(), rooms: make(map[string]*Room)}
}

// JoinOptions configure a member.
type JoinOptions struct {
	// User is the name that watchers of the room see; several members may share
	// it. The caller limits its length. A member without a name is only counted.
	// Defaults to none.
	User string
	// DisconnectOnLag closes the connection of a member that lags, instead of
	// skipping messages. Defaults to false.
	DisconnectOnLag bool
	// Hold holds all messages back until Release, for a member that first gets the
	// history. Held messages count as lag. Defaults to false.
	Hold bool
	// Batch lets the server send several text messages as one, a JSON array of them. All messages of the room have to be JSON. It has an
	// effect only if the connection takes compressed messages. Defaults to false.
	Batch bool
	// Observer is told when the membership begins and ends. Defaults to none.
	Observer Observer
	// Kicked is called after Hub.Kick has ended the membership. It must not block. Defaults to nil.
	Kicked func()
}

// Observer is told of memberships. Its methods are called under the locks of the room: they must be brief, and not call the Hub.
type Observer interface {
	// Joined is called when a member with that JoinOptions.User is in the room, and Left when it is not any more.
	Joined(room, user string)
	Left(room, user string)
}

// enter returns the room of that name, which begins if there is none. The caller holds mu.
func (h *Hub) enter(name string) *Room {
	r := h.rooms[name]
	if r == nil {
		r = h.open(name)
		h.flushers.Go(r.run)
	}
	return r
}

// Join makes conn a member of the room of that name, which gets all messages
// published from now on. End the membership with Leave, also when the
// connection has ended.
func (h *Hub) Join(conn *websocket.Conn, name string, opts JoinOptions) *Member {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.enter(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &Member{room: r, conn: conn, form: h.cfg.formOf(conn, opts), user: opts.User, observer: opts.Observer, kicked: opts.Kicked, disconnect: opts.DisconnectOnLag, held: opts.Hold, index: len(r.members), pos: r.log.head}
	r.members = append(r.members, m)
	r.have[m.form]++
	if r.presence != nil {
		r.presence.joined(m.user)
	}
	if r.census != nil {
		r.census.joined(m.user)
		r.census.nudge()
	}
	if m.observer != nil {
		m.observer.Joined(name, m.user)
	}
	return m
}

// open makes a room. h.mu is held.
func (h *Hub) open(name string) *Room {
	r := &Room{hub: h, name: name, wake: make(chan struct{}, 1), done: make(chan struct{})}
	r.outlet.next = 1
	if h.cfg.Connect != nil {
		r.outlet.to = h.cfg.Connect(name, &Inlet{r})
	}
	h.rooms[name] = r
	return r
}

// Has reports whether the room of that name has members or listeners.
func (h *Hub) Has(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rooms[name] != nil
}

// Publish sends a message to the members of the room of that name, if there is
// one, except from, which may be nil or have left. The payload is copied.
// Publish does not wait for any member.
func (h *Hub) Publish(name string, from *Member, op websocket.Opcode, payload []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.rooms[name]; r != nil {
		r.publish(from, op, payload)
	}
}

// Broadcast is Publish without a sender to the members on all nodes: also if there is no member on this node. Then the room exists here until
// its Outlet has the message.
func (h *Hub) Broadcast(name string, op websocket.Opcode, payload []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rooms[name]
	begins := r == nil && h.cfg.Connect != nil
	if begins {
		r = h.open(name)
	}
	if r != nil {
		r.publish(nil, op, payload)
	}
	if begins {
		h.flushers.Go(r.run) // after the message: a room without members and messages ends at once
	}
}

// PublishHere is Publish without a sender to the members on this node alone: those on other nodes get the message another way.
func (h *Hub) PublishHere(name string, op websocket.Opcode, payload []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch r := h.rooms[name]; {
	case r == nil:
	case r.outlet.to == nil:
		r.publish(nil, op, payload)
	default:
		frame := websocket.AppendFrame(nil, op, payload)
		r.bring(func(l *log) { l.append(frame) })
	}
}

// Members returns how many connections are in the room of that name on this node, and the distinct names of their users: any maxNames of them, and
// whether there are more. It visits all members.
func (h *Hub) Members(name string) (names []string, truncated bool, count int) {
	h.mu.Lock()
	r := h.rooms[name]
	h.mu.Unlock()
	if r == nil {
		return nil, false, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make(map[string]bool)
	for _, m := range r.members {
		switch {
		case m.user == "" || seen[m.user]:
		case len(seen) == maxNames:
			truncated = true
		default:
			seen[m.user] = true
			names = append(names, m.user)
		}
	}
	return names, truncated, len(r.members)
}

// PublishEach sends the members of each room the message that the function returns
// for the room's name, if it is not nil.
func (h *Hub) PublishEach(op websocket.Opcode, message func(room string) []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, r := range h.rooms {
		if payload := message(name); payload != nil {
			r.publish(nil, op, payload)
		}
	}
}

// MaxLagBytes is how far a member may lag, in bytes.
func (h *Hub) MaxLagBytes() int64 { return h.cfg.MaxLagBytes }

// Stats returns the counts since the start.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	rooms := len(h.rooms)
	h.mu.Unlock()
	return Stats{Deliveries: h.deliveries.Load(), Missed: h.missed.Load(), Rooms: rooms}
}

// Wait returns when every room's last member has left and its flusher ended.
func (h *Hub) Wait() { h.flushers.Wait() }
