package gateway

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/websocket"
)

// statusRevoked is the close code of a connection whose token or API key was revoked: the client must not connect again by itself.
const statusRevoked websocket.StatusCode = 4403

// accessChanged applies a change of keys, revocations or rights to the open connections. It takes some milliseconds with 20,000 of them, and waits
// for nothing: what has to ask the database does so in the goroutines of the connections.
func (s *Server) accessChanged(change auth.Change) {
	s.cfg.Auth.Policy.Forget(change)
	applied := appliedChange{setOf(change.Disconnected), setOf(change.Rights), change.AllRights}
	s.changes.add(applied) // before the snapshot: a connection that is not in it yet looks there
	s.changes.wake()
	for _, c := range s.conns.snapshot() {
		c.identity.accessChanged(applied)
	}
}

// appliedChange is an auth.Change that can be looked up by user.
type appliedChange struct {
	disconnected, rights map[string]bool
	allRights            bool
}

// accessChanged applies a change to the connection, and reports whether that ends it. To apply it twice is harmless.
func (i *identity) accessChanged(change appliedChange) (ends bool) {
	caller := i.caller.Load()
	switch {
	case caller == nil:
	case !i.policy.Valid(caller):
		i.revoke(caller)
		return true
	case caller.User != "" && change.disconnected[caller.User]:
		i.finish(caller, statusTokenOver, "disconnected by an administrator: get a new token, and connect again")
		return true
	case caller.Asked() && (change.allRights || change.rights[caller.User]):
		i.recheckSoon(caller)
	}
	return false
}

// maxChanges is how many changes are kept for connections whose callers are being verified. That takes seconds at most.
const maxChanges = 1000

// changes are the last changes, numbered from 1. A connection counts those that came after the verification of its caller began: accessChanged
// did not know then that it is that caller's.
type changes struct {
	mu    sync.Mutex
	n     uint64 // how many there were in all
	last  []appliedChange
	woken chan struct{} // closed by the next change, or when the rules change; nil if nobody waits for that
}

// next is closed when somebody's rights may have changed.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.woken == nil {
		c.woken = make(chan struct{})
	}
	return c.woken
}

// wake closes next.
func (c *changes) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.woken != nil {
		close(c.woken)
		c.woken = nil
	}
}

func (c *changes) add(change appliedChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if c.last = append(c.last, change); len(c.last) > maxChanges {
		c.last = slices.Clone(c.last[maxChanges/2:])
	}
}

// number returns how many there were so far.
func (c *changes) number() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// since returns those after the first n. If they are not all kept, it returns false.
func (c *changes) since(n uint64) ([]appliedChange, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	missed := c.n - n
	if missed > uint64(len(c.last)) {
		return nil, false
	}
	return slices.Clone(c.last[uint64(len(c.last))-missed:]), true
}

// RulesChanged gives the open connections the rights of the rules as they are now, after Policy.Reload. What a connection may not have any more ends.
func (s *Server) RulesChanged() {
	s.changes.wake()
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
		i.finish(before, statusTokenOver, "a token is required now: connect again with one")
	case i.caller.CompareAndSwap(before, next): // if not, a new token has come, and set looks at the rules after that
		i.schedule(next)
		i.recheckSoon(next)
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

// revoke ends the connection because the token or key of its caller was revoked. Requests that have arrived and were not looked at have no effect
// any more; those that were have their answers first.
func (i *identity) revoke(c *auth.Caller) {
	i.finish(c, statusRevoked, "the token or key was revoked")
}

// recheckSoon has the reading goroutine of the connection check the rights of its caller again. An endpoint that has nothing to check again ends:
// its client connects again if it still may.
func (i *identity) recheckSoon(c *auth.Caller) {
	if !i.talks.Load() {
		i.finish(c, statusTokenOver, "the rights have changed: connect again")
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
