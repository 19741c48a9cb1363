package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// participant is one connection on /ws/chat.
type participant struct {
	server *chatServer
	conn   *connection
	drain  time.Duration

	// mu is held while messages are handled: by the reading goroutine, and by
	// the goroutine of a join at its end.
	mu     sync.Mutex
	rooms  map[string]*room.Member // changed with naming held too, so that others can read it who must not wait for a message
	joins  map[string]*joining
	naming sync.Mutex
	// watching are the rooms whose presence it gets.
	watching map[string]bool
	// outside: it was kicked from the default room, where only a join brings it back.
	outside bool
	onKick  func()
	limit   rateLimit

	joiners  sync.WaitGroup  // the goroutines of joins
	catchUps context.Context // their context
	// abandon ends catchUps.
	abandon context.CancelFunc

	// pending counts chats accepted for stored rooms and not answered. The
	// closing handshake waits for them.
	pending pending
	durable atomic.Bool // there may be such chats

	// stays is set for connections on /ws: leaving the last room does not close
	// them.
	stays bool

	heart heartbeat // used by the reading goroutine
}

// newParticipant returns the chat state of a connection. End it with end.
func newParticipant(server *chatServer, c *connection, drain time.Duration) *participant {
	p := &participant{server: server, conn: c, drain: drain, limit: newRateLimit(server.cfg)}
	p.watching = make(map[string]bool)
	p.onKick = p.wasKicked
	p.catchUps, p.abandon = context.WithCancel(server.work)
	return p
}

func (p *participant) run() {
	p.conn.whenStopped(p.stopReading)
	err := p.conn.try(p.read)
	p.end()
	p.conn.Close(ended(p.conn, err))
}

// end waits for pending answers after reading has ended, and leaves all rooms.
func (p *participant) end() {
	p.abandon() // the pongs for which they wait are no longer read
	p.joiners.Wait()
	p.conn.await(&p.pending, p.server.work)
	for _, m := range p.rooms {
		m.Leave()
	}
}

// stopReading ends the connection because the server stops. No answer may
// follow a Close frame, so a connection with pending answers gets it after
// them.
func (p *participant) stopReading() {
	if p.durable.Load() {
		p.conn.SetReadDeadline(time.Now())
		return
	}
	p.conn.StartClose(websocket.StatusGoingAway, p.conn.goingAway())
	p.conn.SetReadDeadline(time.Now().Add(p.drain))
}

// read handles messages until the connection ends. The answers to all messages
// of one read are sent in one write.
func (p *participant) read() error {
	p.heart = newHeartbeat(p.server.cfg, time.Now())
	p.conn.wakeAt(p.heart.deadline())
	for {
		messages, err := p.conn.Read()
		now := time.Now()
		p.recheck() // a deadline without messages says that the rights may have changed
		for some := range slices.Chunk(messages, handledTogether) {
			if p.conn.flooded {
				break
			}
			p.handleAll(some, now)
			p.recheck()
			now = p.conn.rest(now, len(some))
		}
		if len(messages) > 0 {
			p.heart.heard = time.Now() // handling may have waited for a store, and nothing was read meanwhile
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !p.conn.ending() && p.beat(now) {
			continue
		}
		if err != nil {
			return err
		}
	}
}

// beat sends a ping when it is due. It returns false when the peer has been
// silent for too long.
func (p *participant) beat(now time.Time) bool {
	ping, silent := p.heart.due(now)
	if silent {
		return false
	}
	if ping {
		p.send(map[string]any{"type": "ping", "ts": now.UnixMilli()})
		p.conn.Queue(websocket.OpPing, nil) // browsers answer it automatically
		p.conn.Flush()
	}
	p.conn.wakeAt(p.heart.deadline())
	return true
}

// handleAll handles some messages of one read, as far as the rate allows.
func (p *participant) handleAll(messages []websocket.Message, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stays { // the session looks at the rate and at the rights
		for _, m := range messages {
			p.handle(m, now)
		}
		return
	}
	for _, m := range messages {
		if p.conn.meter == nil || !p.limited(m, now) {
			p.handle(m, now)
		}
	}
}

// recheck looks at the rights of the connection again, if they may have changed, and at its memberships, if it was kicked.
func (p *participant) recheck() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn.identity.recheck(p.server.work)
	p.noticeKicks()
}

// handle handles one message. p.mu is held.
func (p *participant) handle(m websocket.Message, now time.Time) {
	if !p.stays && !p.conn.identity.admits(len(m.Payload)) {
		return
	}
	msg, why := p.parse(m.Payload)
	if m.Op == websocket.OpBinary && !utf8.Valid(m.Payload) { // text messages were checked when they were read
		if why = errNoUTF8; !utf8.Valid(msg.ID) {
			msg.ID = nil
		}
	}
	if why != nil {
		p.refuseFor(msg, why)
		return
	}
	if msg.Type == "auth" {
		var auth struct {
			Token string `json:"token"`
		}
		json.Unmarshal(m.Payload, &auth) // a token that is no string is missing
		with := p.conn.identity.handle(p.server.work, auth.Token)
		if with.ID = msg.ID; msg.ID != nil {
			p.sendReply(&with)
		}
		return
	}
	if why = p.denied(&msg); why != nil {
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
		p.refuseFor(msg, &problem{code: codeUnknownType, text: "type: want one of " + strings.Join(roomTypes, ", ")})
	}
}

// say publishes a chat as the bytes of its sender, without the id. A chat without a
// room goes to the public room, and makes its sender a member.
func (p *participant) say(msg chatMessage, m websocket.Message, now time.Time) {
	name := msg.room()
	member := p.member(name)
	if member == nil && msg.Room == nil && !p.outside {
		// The other fields of a chat belong to the application: they do not
		// request history.
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
	member.Publish(m.Op, withoutID(m.Payload))
	p.ok(msg, nil)
}

// store publishes a chat after it is stored.
func (p *participant) store(stored *storedRooms, member *room.Member, msg chatMessage, payload []byte) {
	as, why := msg.requestID(p.conn.identity.caller.Load())
	if why == nil {
		why = msg.unstorable()
	}
	if why != nil {
		p.refuseFor(msg, why)
		return
	}
	if err := stored.append(p, member, msg, as, payload); err != nil {
		p.notStored(msg, err)
		return
	}
	p.server.messages.Add(1)
}

// notStored answers a chat that was not stored, or whose outcome is unknown.
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
			p.exit(name)
			delete(p.watching, name)
		}
	}
}

// roomNames returns the rooms in which the participant is. It waits for no message.
func (p *participant) roomNames() []string {
	p.naming.Lock()
	defer p.naming.Unlock()
	return slices.Collect(maps.Keys(p.rooms))
}

func (p *participant) ok(msg chatMessage, more map[string]any) {
	if msg.ID == nil {
		return
	}
	answer := map[string]any{"type": "ok", "id": msg.ID}
	maps.Copy(answer, more)
	p.send(answer)
}

// refuse counts a message that had no effect, and answers with the reason.
func (p *participant) refuse(msg chatMessage, why code) { p.refuseFor(msg, because(why)) }

// refuseFor is refuse for a problem that may have its own text.
func (p *participant) refuseFor(msg chatMessage, why *problem) {
	p.server.ignored.Add(1)
	p.server.audit.denied(p.conn.address, "", p.conn.identity.caller.Load(), why)
	more := map[string]any{"message": why.message()}
	if why.code == codeForbidden {
		more["verb"], more["kind"], more["name"] = why.need.verb, why.need.kind, why.need.name
	}
	p.answer(msg, why.code, more)
}

func (p *participant) answer(msg chatMessage, why code, more map[string]any) {
	if msg.ID == nil {
		return
	}
	answer := map[string]any{"type": "error", "id": msg.ID, "code": why, "message": publicErrors[why], "retryable": retryable[why]}
	maps.Copy(answer, more)
	p.send(answer)
}

// sendReply is send for an answer that all endpoints have.
func (p *participant) sendReply(with *reply) {
	var w wire.Writer
	with.write(&w)
	p.queue(w.Buf)
}

// send queues an answer; it is sent with the others of this read. If the peer
// reads so slowly that the answer does not fit into the queue, the connection
// is aborted.
func (p *participant) send(v any) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // a client's ts comes back unchanged, and not up to six times longer
	if encoder.Encode(v) != nil {
		return // no value of ours fails
	}
	p.queue(bytes.TrimSuffix(text.Bytes(), []byte{'\n'}))
}

func (p *participant) queue(text []byte) {
	if errors.Is(p.conn.Queue(websocket.OpText, text), websocket.ErrSlowReader) {
		p.conn.Abort()
	}
}
