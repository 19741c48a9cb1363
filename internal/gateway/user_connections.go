package gateway

import (
	"sync"

	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// userConnections are the connections on /ws and /ws/chat by their users, so that a message to a user visits no others. The zero value is ready to use.
type userConnections struct {
	connected func(user string) ConnectionObserver // Config.Connected

	mu  sync.Mutex
	all map[string]map[*connection]bool // no user without connections
}

// ConnectionObserver is told what the client of one connection does. Its methods must be brief.
type ConnectionObserver interface {
	room.Observer
	// Named is called when a connection without a user has one.
	Named(user string)
	// Disconnected is called last.
	Disconnected()
}

// reach says whether messages to a user may go to a connection, and to which user. userConnections.mu guards it.
type reach struct {
	ready bool
	user  string // "" without one
	known string // the user that the observer knows
}

// add has a connection get messages to its user, also if it gets a user later. Call it when nothing has to be sent before.
func (u *userConnections) add(c *connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c.reach.ready = true
	u.index(c)
	u.observe(c)
}

// named takes note that a connection may have a user now. It never gets another one.
func (u *userConnections) named(c *connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.index(c)
	u.observe(c)
}

// observe tells the observer that a connection is there, or that it has a user now. u.mu is held.
func (u *userConnections) observe(c *connection) {
	caller := c.identity.caller.Load()
	switch {
	case u.connected == nil || !c.reach.ready || caller == nil && c.identity.policy != nil:
		return
	case c.presence == nil:
		c.presence = u.connected(c.reach.user)
	case c.reach.known != c.reach.user:
		c.presence.Named(c.reach.user)
	default:
		return
	}
	c.reach.known = c.reach.user
}

// observer returns what is told of the rooms of the connection, or nil.
func (c *connection) observer() room.Observer {
	users := &c.owner.users
	if users.connected == nil {
		return nil
	}
	users.mu.Lock()
	defer users.mu.Unlock()
	if c.presence == nil {
		return nil
	}
	return c.presence
}

// index indexes a connection, if it is ready and has a user. u.mu is held.
func (u *userConnections) index(c *connection) {
	caller := c.identity.caller.Load()
	if !c.reach.ready || c.reach.user != "" || caller == nil || caller.User == "" {
		return
	}
	c.reach.user = caller.User
	if u.all == nil {
		u.all = make(map[string]map[*connection]bool)
	}
	if u.all[caller.User] == nil {
		u.all[caller.User] = make(map[*connection]bool, 1)
	}
	u.all[caller.User][c] = true
}

// remove forgets a connection that has ended.
func (u *userConnections) remove(c *connection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c.reach.ready = false
	if c.presence != nil {
		c.presence.Disconnected()
	}
	delete(u.all[c.reach.user], c)
	if len(u.all[c.reach.user]) == 0 {
		delete(u.all, c.reach.user)
	}
}

// of returns the connections of a user.
func (u *userConnections) of(user string) []*connection {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]*connection, 0, len(u.all[user]))
	for c := range u.all[user] {
		all = append(all, c)
	}
	return all
}

// send queues a text message on each connection of a user, and returns on how many. A connection that is ending gets none, and neither does one whose
// client reads so slowly that the message does not fit into the queue.
func (u *userConnections) send(user string, text []byte) (reached int) {
	for _, c := range u.of(user) {
		if !c.ending() && c.Queue(websocket.OpText, text) == nil {
			c.Flush()
			reached++
		}
	}
	return reached
}
