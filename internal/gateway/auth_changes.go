package gateway

import (
	"context"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/websocket"
)

// statusRevoked is the close code of a connection whose token or API key was revoked: the client must not connect again by itself.
const statusRevoked websocket.StatusCode = 4403

// accessChanged applies a change of keys, revocations or rights to the open connections. It takes some milliseconds with 20,000 of them, and waits
// for nothing: what has to ask the database does so in the goroutines of the connections.
func (s *Server) accessChanged(change auth.Change) {
	policy := s.cfg.Auth.Policy
	policy.Forget(change)
	disconnected, rights := setOf(change.Disconnected), setOf(change.Rights)
	for _, c := range s.conns.snapshot() {
		i := &c.identity
		caller := i.caller.Load()
		switch {
		case caller == nil:
		case !policy.Valid(caller):
			i.revoke()
		case caller.User != "" && disconnected[caller.User]:
			i.close(statusTokenOver, "disconnected by an administrator: get a new token, and connect again")
		case caller.Asked() && (change.AllRights || rights[caller.User]):
			i.recheckSoon()
		}
	}
}

// RulesChanged gives the open connections the rights of the rules as they are now, after Policy.Reload. What a connection may not have any more ends.
func (s *Server) RulesChanged() {
	for _, c := range s.conns.snapshot() {
		c.identity.renew()
	}
}

// renew gives the connection the rights of the rules as they are now.
func (i *identity) renew() {
	before := i.caller.Load()
	if before == nil || i.policy.Current(before) {
		return
	}
	next, ok := i.policy.Renew(before)
	switch {
	case !ok:
		i.close(statusTokenOver, "a token is required now: connect again with one")
	case i.caller.CompareAndSwap(before, next): // if not, a new token has come, and set looks at the rules after that
		i.schedule(next)
		i.recheckSoon()
	}
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

// snapshot returns the connections that are open now.
func (c *connections) snapshot() []*connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*connection, 0, len(c.all))
	for conn := range c.all {
		all = append(all, conn)
	}
	return all
}

// revoke ends the connection because its token or key was revoked. Requests that have arrived have no effect any more.
func (i *identity) revoke() {
	i.revoked.Store(true)
	i.close(statusRevoked, "the token or key was revoked")
}

// recheckSoon has the reading goroutine of the connection check its rights again. An endpoint that has nothing to check again ends: its
// client connects again if it still may.
func (i *identity) recheckSoon() {
	if !i.talks.Load() {
		i.close(statusTokenOver, "the rights have changed: connect again")
		return
	}
	i.stale.Store(true)
	i.conn.SetReadDeadline(time.Now())
}

// recheck checks again what the connection has, if its rights may have changed. The reading goroutine calls it between two messages: so a
// subscription that is just beginning is not passed over.
func (i *identity) recheck(ctx context.Context) {
	if i.stale.Load() && i.stale.Swap(false) {
		i.apply(ctx, i.caller.Load())
	}
}

// recheckTimeout bounds a check of all that a connection has. What is not decided by then ends: it is not known whether the client may have it.
const recheckTimeout = 10 * time.Second

// apply ends what the caller may not have.
func (i *identity) apply(ctx context.Context, c *auth.Caller) {
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	i.changed(ctx, c)
}
