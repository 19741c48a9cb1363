package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// participant is one connection on /ws/chat.
type participant struct {
	server *chatServer
	conn   *connection
	drain  time.Duration

	// mu is held by who handles messages: the reading goroutine, and one at the
	// end of a join that it did not wait for.
	mu    sync.Mutex
	rooms map[string]*room.Member
	joins map[string]*joining
	limit rateLimit

	joiners  sync.WaitGroup  // the goroutines of joins
	catchUps context.Context // of these
	// abandon ends catchUps.
	abandon context.CancelFunc

	// pending are chats accepted for stored rooms and not answered. The closing
	// handshake waits for them.
	pending pending
	durable atomic.Bool // there may be such chats

	// stays is set where the connection is for other things too: it is not closed
	// when the last room has been left.
	stays bool

	heart heartbeat // of the reading goroutine
}

// newParticipant returns the chat's part in a connection, to be ended by end.
func newParticipant(server *chatServer, c *connection, drain time.Duration) *participant {
	p := &participant{server: server, conn: c, drain: drain, limit: newRateLimit(server.cfg)}
	p.catchUps, p.abandon = context.WithCancel(server.work)
	return p
}

func (p *participant) run() {
	p.conn.whenStopped(p.stopReading)
	err := p.conn.try(p.read)
	p.end()
	p.conn.Close(closeCode(p.conn, err), "")
}

// end waits for what is owed, when nothing is read any more, and leaves.
func (p *participant) end() {
	p.abandon() // the pongs that they wait for are not read any more
	p.joiners.Wait()
	p.conn.await(&p.pending, p.server.work)
	for _, m := range p.rooms {
		m.Leave()
	}
}

// stopReading makes the connection end because the server does. After a Close
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
	p.heart = newHeartbeat(p.server.cfg, time.Now())
	p.conn.wakeAt(p.heart.deadline())
	for {
		messages, err := p.conn.Read()
		now := time.Now()
		p.handleAll(messages, now)
		if len(messages) > 0 {
			p.heart.heard = time.Now() // handling may have waited for a store, and heard nothing meanwhile
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !p.conn.ending() && p.beat(now) {
			continue
		}
		if err != nil {
			return err
		}
	}
}

// beat sends a ping when it is due and returns false when the silence has
// lasted for too long.
func (p *participant) beat(now time.Time) bool {
	ping, silent := p.heart.due(now)
	if silent {
		return false
	}
	if ping {
		p.send(map[string]any{"type": "ping", "ts": now.UnixMilli()})
		p.conn.Queue(websocket.OpPing, nil) // which a browser answers by itself
		p.conn.Flush()
	}
	p.conn.wakeAt(p.heart.deadline())
	return true
}

func (p *participant) handleAll(messages []websocket.Message, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range messages {
		p.handle(m, now)
	}
}

// handle does what a message asks for. p.mu is held.
func (p *participant) handle(m websocket.Message, now time.Time) {
	msg, why := parseChat(m.Payload)
	if m.Op == websocket.OpBinary && !utf8.Valid(m.Payload) { // a text was looked at as it came
		if why = errNoUTF8; !utf8.Valid(msg.ID) {
			msg.ID = nil
		}
	}
	if why != nil {
		p.refuseFor(msg, why)
		return
	}
	if len(msg.room()) > maxNameBytes || len(msg.User) > maxNameBytes {
		p.refuse(msg, codeNameTooLong)
		return
	}
	if j := p.joinBefore(msg); j != nil {
		if !j.keep(m) {
			p.refuse(msg, codeJoining)
			return
		}
		p.conn.memory.Take(budget.CatchUp, int64(len(m.Payload)))
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
		if len(p.rooms) == 0 && !p.stays {
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

// say passes a chat on, as the bytes that its sender sent. Who names no room
// speaks in the public one, and joins it by that, whatever else it has joined.
func (p *participant) say(msg chatMessage, m websocket.Message, now time.Time) {
	name := msg.room()
	member := p.rooms[name]
	if member == nil && msg.Room == nil {
		// The other fields of a chat are the application's: no wish for what was said before.
		if member, _, _ = p.join(chatMessage{User: msg.User, OnLag: msg.OnLag}); member != nil {
			member.Release()
		}
	}
	if member == nil {
		p.refuse(msg, codeNotJoined)
		return
	}
	if wait, ok := p.limit.take(now); !ok {
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
	if msg.Placed { // members trust the one that the server adds
		p.refuseFor(msg, malformed("position", "none: the server adds it"))
		return
	}
	if err := stored.append(p, member, msg.room(), msg, payload); err != nil {
		p.notStored(msg, err)
		return
	}
	p.server.messages.Add(1)
}

// notStored answers a chat that the store did not take, or of which nobody knows
// whether it did.
func (p *participant) notStored(msg chatMessage, err error) {
	with := explained(err, codeNotStored)
	if with.Code == codeNotStored || with.Code == engine.CodeRefused {
		p.server.stored.log.warn("chat not stored", "error", err)
	}
	p.answer(msg, with.Code, map[string]any{"message": with.Message})
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
func (p *participant) refuse(msg chatMessage, why code) { p.refuseFor(msg, because(why)) }

// refuseFor is refuse for a problem that may have words of its own.
func (p *participant) refuseFor(msg chatMessage, why *problem) {
	p.server.ignored.Add(1)
	p.answer(msg, why.code, map[string]any{"message": why.message()})
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
// does not fit after what the peer has not read yet ends the connection.
func (p *participant) send(v any) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // a client's ts comes back as it is, and is not six times as long
	if encoder.Encode(v) != nil {
		return // no value of ours fails
	}
	if errors.Is(p.conn.Queue(websocket.OpText, bytes.TrimSuffix(text.Bytes(), []byte{'\n'})), websocket.ErrSlowReader) {
		p.conn.Abort()
	}
}
