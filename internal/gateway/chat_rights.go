package gateway

import (
	"context"

	"github.com/tidewire/tidewire/internal/auth"
)

// denied returns why the client may not have a message. The user of an authenticated client is the sub of its token. p.mu is held.
func (p *participant) denied(msg *chatMessage) *problem {
	id := &p.conn.identity
	if id.policy == nil || msg.Type == "ping" || msg.Type == "pong" {
		return nil
	}
	if why := id.refuses(msg.Type); why != nil {
		return why
	}
	c := id.caller.Load()
	if why := msg.denied(p.server.work, c, p.member(msg.room()) != nil); why != nil {
		return why
	}
	msg.User = c.User
	return nil
}

// deniedJoin returns why the client may not have a join whose history was being sent. The end of its token is no reason. p.mu is held.
func (p *participant) deniedJoin(msg chatMessage) *problem {
	if p.conn.identity.policy == nil {
		return nil
	}
	return msg.denied(p.server.work, p.conn.identity.caller.Load(), false)
}

// rightsChanged leaves the rooms that the caller may not be in any more, ends the presence that it may not have, and ends joins that are under
// way. p.mu is held: nothing but this connection waits for it.
func (p *participant) rightsChanged(ctx context.Context, c *auth.Caller) {
	for _, j := range p.joins {
		if j.msg.denied(ctx, c, false) != nil {
			j.cancel() // its goroutine answers
		}
	}
	for name := range p.rooms {
		m := p.member(name)
		if m == nil {
			continue
		}
		why := need{"join", auth.Room, name}.denied(ctx, c)
		switch {
		case why != nil:
			m.Leave()
			p.exit(name)
		case p.watching[name]:
			if why = (need{"presence", auth.Room, name}).denied(ctx, c); why == nil {
				continue
			}
			m.Unwatch()
		default:
			continue
		}
		delete(p.watching, name)
		with := why.reply()
		with.Room = name
		p.send(with.complete())
	}
}

// denied returns why the caller may not have a message of a room. A chat that makes its sender a member is a join, too.
func (m chatMessage) denied(ctx context.Context, c *auth.Caller, member bool) *problem {
	name := m.room()
	var needs []need
	switch m.Type {
	case "join":
		needs = append(needs, need{"join", auth.Room, name})
		if m.After != nil || m.History > 0 {
			needs = append(needs, need{"history", auth.Room, name})
		}
		if m.Presence {
			needs = append(needs, need{"presence", auth.Room, name})
		}
	case "chat":
		needs = append(needs, need{"chat", auth.Room, name})
		if !member && m.Room == nil {
			needs = append(needs, need{"join", auth.Room, name})
		}
	default:
		return nil
	}
	if why := mayAll(ctx, c, needs...); why != nil {
		return why
	}
	if m.User != "" && m.User != c.User {
		return &problem{code: codeForbidden, text: "user: want the sub of your token, or none", need: needs[0]}
	}
	return nil
}
