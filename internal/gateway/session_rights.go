package gateway

import "github.com/tidewire/tidewire/internal/auth"

// denied returns why the client may not have a request.
func (s *session) denied(r *request) *problem {
	id := &s.conn.identity
	if id.policy == nil {
		return nil
	}
	if why := id.refuses(r.Type, s.size); why != nil {
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
func (p *participant) denied(msg *chatMessage, size int) *problem {
	id := &p.conn.identity
	if id.policy == nil || msg.Type == "ping" || msg.Type == "pong" {
		return nil
	}
	if why := id.refuses(msg.Type, size); why != nil {
		return why
	}
	c := id.caller.Load()
	if why := msg.denied(c, p.rooms[msg.room()] != nil); why != nil {
		return why
	}
	msg.User = c.User
	return nil
}

// rightsChanged leaves the rooms that a new token does not allow. p.mu is held.
func (p *participant) rightsChanged(c *auth.Caller) {
	for name, m := range p.rooms {
		n := need{"join", auth.Room, name}
		if n.granted(c) {
			continue
		}
		m.Leave()
		delete(p.rooms, name)
		with := n.refusal().reply()
		with.Room = name
		p.send(with)
	}
}
