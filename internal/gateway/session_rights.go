package gateway

import "github.com/tidewire/tidewire/internal/auth"

// denied returns why the client may not have a request.
func (s *session) denied(r *request) *problem {
	id := &s.conn.identity
	if id.policy == nil {
		return nil
	}
	if why := id.refuses(r.Type); why != nil {
		return why
	}
	return r.denied(id.caller.Load())
}

// rightsChanged ends what a new token does not allow.
func (s *session) rightsChanged(c *auth.Caller) {
	s.mu.Lock()
	for _, sub := range s.subscriptions {
		if sub.allowed(c) != nil {
			sub.revoke()
		}
	}
	for _, consumer := range s.consumers {
		if !(need{"consume", auth.Queue, consumer.queue}).granted(c) {
			consumer.revoke()
		}
	}
	s.mu.Unlock()
	s.chat.mu.Lock()
	defer s.chat.mu.Unlock()
	s.chat.rightsChanged(c)
}

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
	if why := msg.denied(c, p.rooms[msg.room()] != nil); why != nil {
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
	return msg.denied(p.conn.identity.caller.Load(), false)
}

// rightsChanged leaves the rooms that a new token does not allow, also those whose presence it does not, and ends joins that are
// under way. p.mu is held.
func (p *participant) rightsChanged(c *auth.Caller) {
	for _, j := range p.joins {
		if j.msg.denied(c, false) != nil {
			j.cancel() // its goroutine answers
		}
	}
	for name, m := range p.rooms {
		needs := []need{{"join", auth.Room, name}}
		if p.watching[name] {
			needs = append(needs, need{"presence", auth.Room, name})
		}
		why := mayAll(c, needs...)
		if why == nil {
			continue
		}
		m.Leave()
		delete(p.rooms, name)
		delete(p.watching, name)
		with := why.reply()
		with.Room = name
		p.send(with)
	}
}
