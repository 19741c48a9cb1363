package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/room"
	"github.com/tidewire/tidewire/websocket"
)

// ChatConfig configures the chat endpoint.
type ChatConfig struct {
	// RateLimit is how many chats a second a connection may send, refilled
	// continuously. Defaults to 10.
	RateLimit float64
	// RateBurst is how many it may send at once. Defaults to 10.
	RateBurst float64
	// PingInterval is how often the server sends a JSON ping. Defaults to 30 s.
	PingInterval time.Duration
	// PongTimeout is after which silence a connection is closed. Defaults to
	// 60 s.
	PongTimeout time.Duration
	// MaxRooms is how many rooms a connection may be in. Defaults to 100.
	MaxRooms int
	// Room bounds the lag of members.
	Room room.Config
}

func (c ChatConfig) withDefaults() ChatConfig {
	if c.RateLimit == 0 {
		c.RateLimit = 10
	}
	if c.RateBurst == 0 {
		c.RateBurst = 10
	}
	if c.PingInterval == 0 {
		c.PingInterval = 30 * time.Second
	}
	if c.PongTimeout == 0 {
		c.PongTimeout = 60 * time.Second
	}
	if c.MaxRooms == 0 {
		c.MaxRooms = 100
	}
	return c
}

// chatServer is the chat endpoint: its rooms and figures.
type chatServer struct {
	cfg     ChatConfig
	hub     *room.Hub
	started time.Time

	messages, dropped, ignored atomic.Uint64
	connections, open, peak    atomic.Int64
}

func newChatServer(cfg ChatConfig, metrics prometheus.Registerer) *chatServer {
	cfg = cfg.withDefaults()
	c := &chatServer{cfg: cfg, hub: room.NewHub(cfg.Room), started: time.Now()}
	counter := func(name, help string, value func() float64) {
		metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
	}
	counter("tidewire_chat_messages_total", "Chats accepted.", func() float64 { return float64(c.messages.Load()) })
	counter("tidewire_chat_dropped_total", "Chats over the rate limit.", func() float64 { return float64(c.dropped.Load()) })
	counter("tidewire_chat_ignored_total", "Messages that were malformed, of unknown type, or for a room not joined.", func() float64 { return float64(c.ignored.Load()) })
	counter("tidewire_chat_deliveries_total", "Messages handed to members' sockets.", func() float64 { return float64(c.hub.Stats().Deliveries) })
	counter("tidewire_chat_missed_total", "Messages that lagging members were told they missed.", func() float64 { return float64(c.hub.Stats().Missed) })
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidewire_chat_rooms", Help: "Rooms that have members."},
		func() float64 { return float64(c.hub.Stats().Rooms) }))
	return c
}

// chat serves a connection on /ws/chat.
func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	s.accept(w, r, websocket.Config{}, func(c *connection) {
		s.chats.opened()
		defer s.chats.open.Add(-1)
		p := &participant{server: s.chats, conn: c, drain: s.cfg.DrainTimeout, bucket: newBucket(s.chats.cfg, time.Now())}
		p.run()
	})
}

func (c *chatServer) opened() {
	c.connections.Add(1)
	open := c.open.Add(1)
	for peak := c.peak.Load(); open > peak && !c.peak.CompareAndSwap(peak, open); peak = c.peak.Load() {
	}
}

// participant is one connection on /ws/chat: of its reading goroutine alone.
type participant struct {
	server *chatServer
	conn   *connection
	drain  time.Duration
	rooms  map[string]*room.Member
	bucket bucket

	heard    time.Time // when something last arrived
	nextPing time.Time
}

func (p *participant) run() {
	p.conn.whenStopped(func() {
		p.conn.StartClose(websocket.StatusGoingAway, "server is shutting down")
		p.conn.SetReadDeadline(time.Now().Add(p.drain))
	})
	err := p.read()
	for _, m := range p.rooms {
		m.Leave()
	}
	p.conn.Close(closeCode(p.conn, err), "")
}

// read handles messages until the connection ends. All messages of one read
// are handled before their answers leave, in one write.
func (p *participant) read() error {
	now := time.Now()
	p.heard, p.nextPing = now, now.Add(p.server.cfg.PingInterval)
	p.setDeadline()
	for {
		messages, err := p.conn.Read()
		now := time.Now()
		if len(messages) > 0 {
			p.heard = now
		}
		for _, m := range messages {
			p.handle(m, now)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !p.conn.stopping() && p.beat(now) {
			continue
		}
		if err != nil {
			return err
		}
	}
}

func (p *participant) setDeadline() {
	next := p.heard.Add(p.server.cfg.PongTimeout)
	if p.nextPing.Before(next) {
		next = p.nextPing
	}
	p.conn.SetReadDeadline(next)
}

// beat sends a ping when it is due and returns false when the silence has
// lasted for too long.
func (p *participant) beat(now time.Time) bool {
	if now.Sub(p.heard) >= p.server.cfg.PongTimeout {
		return false
	}
	if !now.Before(p.nextPing) {
		p.nextPing = now.Add(p.server.cfg.PingInterval)
		p.send(map[string]any{"type": "ping", "ts": now.UnixMilli()})
		p.conn.Flush()
	}
	p.setDeadline()
	return true
}

func (p *participant) handle(m websocket.Message, now time.Time) {
	msg, err := parseChat(m.Payload)
	if err != nil {
		p.refuse(msg, codeMalformed)
		return
	}
	if len(msg.room()) > maxNameBytes || len(msg.User) > maxNameBytes {
		p.refuse(msg, codeNameTooLong)
		return
	}
	switch msg.Type {
	case "join":
		member := p.join(msg)
		if member == nil {
			p.refuse(msg, codeTooManyRooms)
			return
		}
		p.ok(msg)
		if msg.Presence {
			member.Watch() // the list comes behind the answer
		}
	case "chat":
		p.say(msg, m, now)
	case "leave":
		p.leave(msg)
		p.ok(msg)
		if len(p.rooms) == 0 {
			p.conn.StartClose(websocket.StatusNormal, "")
		}
	case "ping":
		p.send(map[string]any{"type": "pong", "ts": msg.TS})
	case "pong":
	default:
		p.refuse(msg, codeUnknownType)
	}
}

// join returns the membership of the message's room, or nil if the connection
// has too many.
func (p *participant) join(msg chatMessage) *room.Member {
	name := msg.room()
	if m := p.rooms[name]; m != nil {
		return m
	}
	if len(p.rooms) >= p.server.cfg.MaxRooms {
		return nil
	}
	if p.rooms == nil {
		p.rooms = make(map[string]*room.Member, 1)
	}
	m := p.server.hub.Join(p.conn.Conn, name, room.JoinOptions{User: msg.User, DisconnectOnLag: msg.OnLag == "disconnect"})
	p.rooms[name] = m
	return m
}

// say passes a chat on, as the bytes that its sender sent. Who has joined
// nothing and names no room speaks in the public one.
func (p *participant) say(msg chatMessage, m websocket.Message, now time.Time) {
	member := p.rooms[msg.room()]
	if member == nil && msg.Room == nil {
		member = p.join(msg)
	}
	if member == nil {
		p.refuse(msg, codeNotJoined)
		return
	}
	if wait, ok := p.bucket.take(now); !ok {
		p.server.dropped.Add(1)
		p.answer(msg, codeRateLimited, map[string]any{"retry_after_ms": wait.Milliseconds() + 1})
		return
	}
	p.server.messages.Add(1)
	member.Publish(m.Op, m.Payload)
	p.ok(msg)
}

func (p *participant) leave(msg chatMessage) {
	for name, m := range p.rooms {
		if msg.Room == nil || name == *msg.Room {
			m.Leave()
			delete(p.rooms, name)
		}
	}
}

func (p *participant) ok(msg chatMessage) {
	if msg.ID != nil {
		p.send(map[string]any{"type": "ok", "id": msg.ID})
	}
}

// refuse counts a message that had no effect, and tells a request why.
func (p *participant) refuse(msg chatMessage, why code) {
	p.server.ignored.Add(1)
	p.answer(msg, why, nil)
}

func (p *participant) answer(msg chatMessage, why code, more map[string]any) {
	if msg.ID == nil {
		return
	}
	answer := map[string]any{"type": "error", "id": msg.ID, "code": why, "message": publicErrors[why]}
	for k, v := range more {
		answer[k] = v
	}
	p.send(answer)
}

// send queues an answer; it leaves with the others of this read. One that
// does not fit behind what the peer has not read yet ends the connection.
func (p *participant) send(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		return // no value of ours fails
	}
	if errors.Is(p.conn.Queue(websocket.OpText, text), websocket.ErrSlowReader) {
		p.conn.Abort()
	}
}
