package gateway

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/room"
	"github.com/tidewire/tidewire/websocket"
)

// participant is one connection on /ws/chat: of its reading goroutine alone.
type participant struct {
	server *chatServer
	conn   *connection
	drain  time.Duration
	rooms  map[string]*room.Member
	bucket bucket
	// pending are chats accepted for stored rooms and not answered. The closing
	// handshake waits for them.
	pending pending
	durable atomic.Bool // there may be such chats

	heard    time.Time // when something last arrived
	nextPing time.Time
}

func (p *participant) run() {
	p.conn.whenStopped(p.stopReading)
	err := p.read()
	p.pending.wait(p.server.work)
	for _, m := range p.rooms {
		m.Leave()
	}
	p.conn.Close(closeCode(p.conn, err), "")
}

// stopReading makes the connection end because the server does. Behind a Close
// frame there are no answers, so who waits for some gets it after them.
func (p *participant) stopReading() {
	if p.durable.Load() {
		p.conn.SetReadDeadline(time.Now())
		return
	}
	p.conn.StartClose(websocket.StatusGoingAway, "server is shutting down")
	p.conn.SetReadDeadline(time.Now().Add(p.drain))
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
		p.handleJoin(msg)
	case "chat":
		p.say(msg, m, now)
	case "leave":
		p.leave(msg)
		p.ok(msg, nil)
		if len(p.rooms) == 0 {
			p.pending.wait(p.server.work)
			p.conn.StartClose(websocket.StatusNormal, "")
		}
	case "ping":
		p.send(map[string]any{"type": "pong", "ts": msg.TS})
	case "pong":
	default:
		p.refuse(msg, codeUnknownType)
	}
}

func (p *participant) handleJoin(msg chatMessage) {
	name := msg.room()
	if !p.server.stored.has(name) && (msg.After != nil || msg.History > 0) {
		p.refuse(msg, codeNotStoredIn)
		return
	}
	member, more, why := p.join(msg)
	if why != "" {
		p.refuse(msg, why)
		return
	}
	p.ok(msg, more)
	if msg.Presence {
		member.Watch() // the list comes behind the answer
	}
	if p.server.stored.has(name) {
		member.Release()
	}
}

// join returns the membership of the message's room and what its answer says
// beside, or why there is none.
func (p *participant) join(msg chatMessage) (m *room.Member, more map[string]any, why code) {
	name := msg.room()
	if m := p.rooms[name]; m != nil {
		return m, nil, ""
	}
	if len(p.rooms) >= p.server.cfg.MaxRooms {
		return nil, nil, codeTooManyRooms
	}
	opts := room.JoinOptions{User: msg.User, DisconnectOnLag: msg.OnLag == "disconnect"}
	if stored := p.server.stored; stored.has(name) {
		p.durable.Store(true)
		opts.DisconnectOnLag = msg.OnLag != "gap" // it can resume, and then misses nothing
		var count int
		var upTo int64
		var err error
		m, count, upTo, err = stored.join(p, name, msg, opts)
		switch {
		case errors.Is(err, errAhead):
			return nil, nil, codeAhead
		case err != nil:
			return nil, nil, codeUnavailable
		}
		more = map[string]any{"position": upTo, "history": count}
	} else {
		m = p.server.hub.Join(p.conn.Conn, name, opts)
	}
	if p.rooms == nil {
		p.rooms = make(map[string]*room.Member, 1)
	}
	p.rooms[name] = m
	return m, more, ""
}

// say passes a chat on, as the bytes that its sender sent. Who has joined
// nothing and names no room speaks in the public one.
func (p *participant) say(msg chatMessage, m websocket.Message, now time.Time) {
	name := msg.room()
	member := p.rooms[name]
	if member == nil && msg.Room == nil {
		if member, _, _ = p.join(msg); member != nil {
			member.Release()
		}
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
	if stored := p.server.stored; stored.has(name) {
		p.store(stored, member, msg, m.Payload)
		return
	}
	p.server.messages.Add(1)
	member.Publish(m.Op, m.Payload)
	p.ok(msg, nil)
}

// store passes a chat on by way of the store.
func (p *participant) store(stored *storedRooms, member *room.Member, msg chatMessage, payload []byte) {
	if !storable(payload) {
		p.refuse(msg, codeMalformed)
		return
	}
	if err := stored.append(p, member, msg.room(), msg, payload); err != nil {
		p.answer(msg, codeNotStored, nil)
		return
	}
	p.server.messages.Add(1)
}

func (p *participant) leave(msg chatMessage) {
	for name, m := range p.rooms {
		if msg.Room == nil || name == *msg.Room {
			m.Leave()
			delete(p.rooms, name)
		}
	}
}

func (p *participant) ok(msg chatMessage, more map[string]any) {
	if msg.ID == nil {
		return
	}
	answer := map[string]any{"type": "ok", "id": msg.ID}
	maps.Copy(answer, more)
	p.send(answer)
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
	maps.Copy(answer, more)
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
