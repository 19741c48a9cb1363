package main

import (
	"encoding/json"
	"net"
	"sync/atomic"
	"time"

	"github.com/gofiber/contrib/websocket"
)

const (
	defaultRoom  = "public"
	roomsMax     = 100      // of a connection
	nameMax      = 128      // bytes
	messageMax   = 64 << 10 // bytes
	outboxLength = 256      // chats
)

// member is one connection.
type member struct {
	chat    *chat
	conn    *websocket.Conn
	outbox  chan []byte   // chats of others
	answers chan []byte   // to this client itself
	left    chan struct{} // closed when the member has left all rooms
	ended   chan struct{} // closed when reading has ended
	broken  chan struct{} // closed when writing has ended
	closing atomic.Bool   // no more messages are handled
	cut     atomic.Bool   // no more data is read

	rooms map[string]bool // used only by the reading goroutine, like tokens
	limit limiter
}

func newMember(c *chat, conn *websocket.Conn) *member {
	return &member{
		chat: c, conn: conn, outbox: make(chan []byte, outboxLength), answers: make(chan []byte, 16),
		left: make(chan struct{}), ended: make(chan struct{}), broken: make(chan struct{}),
		rooms: make(map[string]bool), limit: limiter{perSecond: c.settings.RateLimit, burst: c.settings.RateBurst},
	}
}

// alive extends the time after which a silent connection is closed.
func (m *member) alive() {
	m.conn.SetReadDeadline(time.Now().Add(duration(m.chat.settings.PongTimeout)))
	if m.cut.Load() { // cut off since the check
		m.conn.SetReadDeadline(time.Now())
	}
}

// cutOff ends the reading, whatever the client does. In fasthttp only the return
// of the handler closes the socket.
func (m *member) cutOff() {
	m.closing.Store(true)
	m.cut.Store(true)
	m.conn.SetReadDeadline(time.Now())
}

// read handles what arrives until the connection ends.
func (m *member) read() {
	m.conn.SetReadLimit(messageMax)
	m.alive()
	answerPing := m.conn.PingHandler()
	m.conn.SetPingHandler(func(data string) error {
		m.alive()
		return answerPing(data)
	})
	m.conn.SetPongHandler(func(string) error {
		m.alive()
		return nil
	})
	for {
		kind, text, err := m.conn.ReadMessage()
		if err != nil {
			if silent, ok := err.(net.Error); ok && silent.Timeout() && !m.closing.Load() {
				m.sendClose(websocket.ClosePolicyViolation)
			}
			return
		}
		if m.closing.Load() {
			continue // ignore messages before the client's Close frame
		}
		m.alive()
		if kind != websocket.TextMessage || !m.handle(text) {
			m.chat.figures.ignored.Add(1)
		}
	}
}

// handle returns false if a message was ignored.
func (m *member) handle(text []byte) bool {
	msg, ok := decode(text)
	if !ok {
		return false
	}
	switch msg.Type {
	case "join":
		return m.join(msg.room())
	case "chat":
		return m.say(msg, text)
	case "ping":
		m.answer(event{Type: "pong", TS: msg.TS})
	case "pong":
	case "leave":
		for room := range m.rooms {
			if msg.Room == nil || *msg.Room == room {
				m.leave(room)
			}
		}
		if len(m.rooms) == 0 {
			m.closing.Store(true)
			close(m.left)
		}
	default:
		return false
	}
	return true
}

func (m *member) join(room string) bool {
	if m.rooms[room] {
		return true
	}
	if len(m.rooms) >= roomsMax {
		return false
	}
	m.rooms[room] = true
	m.chat.hub.register <- entry{room, m}
	return true
}

func (m *member) leave(room string) {
	delete(m.rooms, room)
	m.chat.hub.unregister <- entry{room, m}
}

// say passes a chat on unchanged. A chat without a room goes to the public
// room, which its sender then joins.
func (m *member) say(msg message, text []byte) bool {
	room := msg.room()
	if msg.Room == nil && !m.join(room) || !m.rooms[room] {
		return false
	}
	if !m.limit.allow(time.Now()) {
		m.chat.figures.dropped.Add(1)
		return true
	}
	m.chat.figures.messages.Add(1)
	m.chat.hub.broadcast <- said{entry{room, m}, text}
	return true
}

// answer waits until the answer can be queued: the server does not read from a
// client that reads no answers.
func (m *member) answer(e event) {
	text, err := json.Marshal(e)
	if err != nil {
		return // cannot fail: its value was valid JSON
	}
	select {
	case m.answers <- text:
	case <-m.broken:
	}
}
