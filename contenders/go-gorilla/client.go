package main

import (
	"encoding/json"
	"net"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

const (
	maxMessage = 64 << 10 // bytes
	sendBuffer = 256      // messages
)

// client is one connection.
type client struct {
	server  *server
	conn    *websocket.Conn
	send    chan outgoing // closed by readPump when no more messages will be sent
	gone    chan struct{} // closed by writePump at its end
	closing atomic.Bool   // a Close frame is sent or will be sent soon

	// Only readPump uses these:
	rooms    map[string]bool
	bucket   bucket
	finished bool // send is closed
}

// outgoing is a message to the client.
type outgoing struct {
	payload []byte
	chat    bool // a chat of another client; otherwise an answer to this client
}

func newClient(s *server, conn *websocket.Conn) *client {
	return &client{
		server: s, conn: conn, send: make(chan outgoing, sendBuffer), gone: make(chan struct{}),
		rooms: make(map[string]bool), bucket: newBucket(s.cfg.rateLimit, s.cfg.rateBurst, time.Now()),
	}
}

// readPump handles what the client sends until the connection ends.
func (c *client) readPump() {
	defer func() {
		c.leaveAll()
		c.finish()
		<-c.gone
		c.conn.Close()
	}()
	c.conn.SetReadLimit(maxMessage)
	c.heard()
	ping := c.conn.PingHandler()
	c.conn.SetPingHandler(func(data string) error {
		c.heard()
		return ping(data)
	})
	c.conn.SetPongHandler(func(string) error {
		c.heard()
		return nil
	})
	for {
		kind, payload, err := c.conn.ReadMessage()
		if err != nil {
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				c.writeClose(websocket.ClosePolicyViolation)
			}
			return
		}
		if c.closing.Load() {
			continue // ignore messages until the peer's Close frame
		}
		c.heard()
		if kind != websocket.TextMessage {
			c.server.stats.ignored.Add(1)
			continue
		}
		c.handle(payload)
	}
}

// heard restarts the timeout, since something has arrived.
func (c *client) heard() {
	c.conn.SetReadDeadline(time.Now().Add(c.server.cfg.pongTimeout))
}

func (c *client) handle(payload []byte) {
	m, err := parseMessage(payload)
	if err != nil {
		c.server.stats.ignored.Add(1)
		return
	}
	switch m.Type {
	case "join":
		c.join(m.room())
	case "chat":
		c.chat(m, payload)
	case "ping":
		c.answer(reply{Type: "pong", TS: m.TS})
	case "pong":
	case "leave":
		if m.Room == nil {
			c.leaveAll()
		} else {
			c.leave(*m.Room)
		}
		if len(c.rooms) == 0 {
			c.closing.Store(true)
			c.finish()
		}
	default:
		c.server.stats.ignored.Add(1)
	}
}

func (c *client) join(room string) {
	switch {
	case c.rooms[room]:
	case len(c.rooms) == maxRooms:
		c.server.stats.ignored.Add(1)
	default:
		c.rooms[room] = true
		c.server.hub.joins <- membership{c, room}
	}
}

// chat passes on the bytes unchanged. A chat without a room goes to the public
// room.
func (c *client) chat(m message, payload []byte) {
	room := m.room()
	if m.Room == nil {
		c.join(room)
	}
	if !c.rooms[room] {
		c.server.stats.ignored.Add(1)
		return
	}
	if !c.bucket.take(time.Now()) {
		c.server.stats.dropped.Add(1)
		return
	}
	c.server.stats.messages.Add(1)
	c.server.hub.broadcast <- chat{c, room, payload}
}

func (c *client) leave(room string) {
	if c.rooms[room] {
		delete(c.rooms, room)
		c.server.hub.leaves <- membership{c, room}
	}
}

func (c *client) leaveAll() {
	for room := range c.rooms {
		c.leave(room)
	}
}

// finish makes writePump end after the queued messages. The client is in no
// room any more, so the hub sends nothing to it.
func (c *client) finish() {
	if !c.finished {
		c.finished = true
		close(c.send)
	}
}

// reply is a message from the server itself.
type reply struct {
	Type string          `json:"type"`
	TS   json.RawMessage `json:"ts,omitempty"`
}

// answer waits for room in the buffer. This delays only the reading from this
// client.
func (c *client) answer(r reply) {
	payload, err := json.Marshal(r)
	if err != nil {
		return // cannot fail: TS was read from JSON
	}
	select {
	case c.send <- outgoing{payload: payload}:
	case <-c.gone:
	}
}
