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
