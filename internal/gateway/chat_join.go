package gateway

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

const (
	// maxKept and maxKeptBytes limit the messages to a room that are kept until
	// its join is answered.
	maxKept      = 100
	maxKeptBytes = 256 << 10
)

// joining is a join that first sends the history, in a separate goroutine: the
// reading goroutine must continue to read, for example pongs. Messages of the
// connection to that room are kept meanwhile and handled after the join.
type joining struct {
	msg    chatMessage
	ctx    context.Context // of the history
	cancel context.CancelFunc
	kept   []websocket.Message
	bytes  int
}

// keep keeps m for later, and reports whether there was room for it.
func (j *joining) keep(m websocket.Message) bool {
	if len(j.kept) >= maxKept || j.bytes+len(m.Payload) > maxKeptBytes {
		return false
	}
	j.kept = append(j.kept, websocket.Message{Op: m.Op, Payload: bytes.Clone(m.Payload)})
	j.bytes += len(m.Payload)
	return true
}

// joinBefore returns the unfinished join for which msg has to wait, or nil.
func (p *participant) joinBefore(msg chatMessage) *joining {
	switch msg.Type {
	case "leave":
		if msg.Room == nil { // all of them
			for _, j := range p.joins {
				return j
			}
		}
		return p.joins[msg.room()]
	case "join", "chat":
		return p.joins[msg.room()]
	default:
		return nil
	}
}

func (p *participant) handleJoin(msg chatMessage) {
	name := msg.room()
	past := msg.After != nil || msg.History > 0
	member := p.member(name)
	if name == defaultRoom {
		p.outside = false
	}
	switch {
	case past && !p.server.stored.has(name):
		p.refuse(msg, codeNotStoredIn)
	case past && member == nil && p.full():
		p.refuse(msg, codeTooManyRooms)
	case past && member == nil:
		if p.joins == nil {
			p.joins = make(map[string]*joining, 1)
		}
		msg.ID = bytes.Clone(msg.ID) // it outlives the message
		j := &joining{msg: msg}
		j.ctx, j.cancel = context.WithCancel(p.catchUps)
		p.joins[name] = j
		p.joiners.Go(func() { p.conn.guard(func() { p.catchUp(msg, j) }) })
	default:
		m, more, why := p.join(msg)
		p.joined(msg, m, more, why)
	}
}

// catchUp is the goroutine of a join.
func (p *participant) catchUp(msg chatMessage, j *joining) {
	m, more, why := p.joinStored(j.ctx, msg)
	j.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.conn.memory.Release(budget.CatchUp, int64(j.bytes))
	delete(p.joins, msg.room())
	switch denied := p.deniedJoin(msg); {
	case denied != nil: // a new token does not allow it
		if m != nil {
			m.Leave()
		}
		p.refuseFor(msg, denied)
	case m != nil && m.Left():
		p.outside = p.outside || msg.room() == defaultRoom
		p.refuse(msg, codeKicked)
	default:
		if m != nil {
			p.enter(msg.room(), m)
		}
		p.joined(msg, m, more, why)
	}
	now := time.Now()
	for _, kept := range j.kept {
		p.handle(kept, now)
	}
	p.conn.Flush()
}

// joined answers a join, and then lets the member receive messages.
func (p *participant) joined(msg chatMessage, m *room.Member, more map[string]any, why code) {
	if why != "" {
		p.server.ignored.Add(1)
		p.answer(msg, why, more)
		return
	}
	if msg.Batch {
		if more == nil {
			more = make(map[string]any, 1)
		}
		more["batch"] = m.Batches()
	}
	p.ok(msg, more)
	if msg.Presence {
		p.watching[msg.room()] = true
		m.Watch() // the list comes after the answer
	}
	if p.server.stored.has(msg.room()) {
		m.Release()
	}
}

// full reports whether the connection may be in no more rooms.
func (p *participant) full() bool { return len(p.rooms)+len(p.joins) >= p.server.cfg.MaxRooms }

// join returns the membership of the message's room, or why there is none, and more fields for the
// answer.
func (p *participant) join(msg chatMessage) (m *room.Member, more map[string]any, why code) {
	name := msg.room()
	if m := p.member(name); m != nil {
		return m, nil, ""
	}
	if p.full() {
		return nil, nil, codeTooManyRooms
	}
	if p.server.stored.has(name) {
		m, more, why = p.joinStored(p.catchUps, msg)
	} else {
		opts := room.JoinOptions{User: msg.User, DisconnectOnLag: msg.OnLag == "disconnect", Batch: msg.Batch, Observer: p.conn.observer(), Kicked: p.onKick}
		m = p.server.hub.Join(p.conn.Conn, name, opts)
	}
	if m != nil {
		p.enter(name, m)
	}
	return m, more, why
}

// joinStored is join for a stored room.
func (p *participant) joinStored(ctx context.Context, msg chatMessage) (*room.Member, map[string]any, code) {
	p.durable.Store(true)
	// By default a lagging member is disconnected: it can resume and then
	// misses nothing.
	opts := room.JoinOptions{User: msg.User, DisconnectOnLag: msg.OnLag != "gap", Batch: msg.Batch, Observer: p.conn.observer(), Kicked: p.onKick}
	m, count, upTo, err := p.server.stored.join(ctx, p, msg.room(), msg, opts)
	lost, isLost := errors.AsType[*engine.HistoryLostError](err)
	old, isOld := errors.AsType[*engine.TooOldError](err)
	switch {
	case isOld:
		return nil, map[string]any{"oldest": old.Oldest}, engine.CodeTooOld
	case isLost:
		return nil, map[string]any{"last": lost.Last}, engine.CodeHistoryLost
	case errors.Is(err, websocket.ErrSlowReader):
		p.conn.StartClose(websocket.StatusPolicyViolation, "reads too slowly")
		return nil, nil, codeUnavailable
	case errors.Is(err, engine.ErrRefused):
		p.server.stored.log.warn("join failed", "error", err)
		return nil, nil, engine.CodeRefused
	case err != nil:
		return nil, nil, codeUnavailable
	}
	return m, map[string]any{"position": upTo, "history": count}, ""
}

func (p *participant) enter(name string, m *room.Member) {
	p.naming.Lock()
	defer p.naming.Unlock()
	if p.rooms == nil {
		p.rooms = make(map[string]*room.Member, 1)
	}
	p.rooms[name] = m
}

func (p *participant) exit(name string) {
	p.naming.Lock()
	defer p.naming.Unlock()
	delete(p.rooms, name)
}
