package gateway

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/auth"
)

// denied returns why the client may not have a request.
func (s *session) denied(r *request) *problem {
	id := &s.conn.identity
	if id.policy == nil {
		return nil
	}
	if why := id.refuses(r.Type); why != nil {
		return why
	}
	c := id.caller.Load()
	same := granted{c, r.Type, r.Stream, r.Queue}
	if s.granted == same {
		return nil
	}
	why := r.denied(s.server.work, c)
	if why == nil && r.oneRight() && !c.Asked() { // what a function has answered ends after a while
		s.granted = granted{c, r.Type, strings.Clone(r.Stream), strings.Clone(r.Queue)}
	}
	return why
}

// granted is a request that the caller was granted: clients send many of the same kind to the same stream or queue, one after another. A caller never
// changes, so a new token or new rules make it another one.
type granted struct {
	caller              *auth.Caller
	kind, stream, queue string
}

// oneRight reports whether type, stream and queue say all that the right depends on.
func (r *request) oneRight() bool {
	switch r.Type {
	case "publish", "commit", "enqueue", "begin", "ack", "nack", "extend":
		return true
	}
	return false
}

// rightsChanged ends what the caller may not have any more. It may wait for the database; the goroutines of the connection go on meanwhile.
func (s *session) rightsChanged(ctx context.Context, c *auth.Caller) {
	s.mu.Lock()
	subscriptions, consumers := slices.Collect(maps.Values(s.subscriptions)), slices.Collect(maps.Values(s.consumers))
	s.mu.Unlock()
	for _, sub := range subscriptions {
		if why := sub.allowed(ctx, c); why != nil {
			sub.revoke(why)
		}
	}
	for _, consumer := range consumers {
		if why := (need{"consume", auth.Queue, consumer.queue}).denied(ctx, c); why != nil {
			consumer.revoke(why)
		}
	}
	s.chat.mu.Lock()
	defer s.chat.mu.Unlock()
	s.chat.rightsChanged(ctx, c)
}
