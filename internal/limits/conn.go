package limits

import (
	"container/list"
	"net/netip"
	"time"
)

// Conn is what is counted of one socket.
type Conn struct {
	registry *Registry
	abort    func() // ends the socket; nil if only its owner can

	// Guarded by registry.mu.
	at      place
	home    place // as the listener counted it
	counted bool
	closed  bool
	meter   *Meter
	since   time.Time     // when it became pending
	element *list.Element // in registry.waiting, or nil
}

// accept counts a socket that has just been accepted, or returns why not. abort ends the socket.
func (r *Registry) accept(peer netip.Addr, abort func()) (*Conn, Reason) {
	at := place{address: Key(peer), pending: true}
	if r.cfg.Proxies.Trusts(peer) { // its clients count, once they are known
		at = place{}
	}
	c := &Conn{registry: r, abort: abort, home: at}
	if why := c.move(at, func() Reason { return r.fits(at, spare, addressSpare) }); why != None {
		return nil, why
	}
	return c, None
}

// New returns the Conn of a socket that no Listener has accepted. It counts from its handshake on.
func (r *Registry) New() *Conn { return &Conn{registry: r} }

// Handshake says that the socket becomes a WebSocket, and whose. It is pending as long as that is not known for certain. If a limit would be
// exceeded, Handshake returns it, and nothing has changed.
func (c *Conn) Handshake(of Client, pending bool) Reason {
	to := of.place(pending)
	return c.move(to, func() Reason { return c.registry.fits(to, 0, 0) })
}

// Identify says whose WebSocket it is, once that is known. If the user has too many already, it returns that, and nothing has changed.
func (c *Conn) Identify(of Client) Reason {
	to := of.place(false)
	return c.move(to, func() Reason { return c.registry.fitsUser(to) })
}

// move changes the place of a Conn, if it fits there.
func (c *Conn) move(to place, fits func() Reason) Reason {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.closed {
		return None
	}
	if c.counted {
		r.add(c.at, -1)
	}
	why := fits()
	if why == Pending && r.makeRoom(to, c) {
		why = fits()
	}
	if why == None {
		c.at, c.counted = to, true
	}
	if c.counted {
		r.add(c.at, 1)
	}
	r.list(c)
	return r.refuse(why)
}

// Known says that the client of the socket is known: it is pending no more.
func (c *Conn) Known() {
	if c == nil {
		return
	}
	c.change(func() { c.at.pending, c.home.pending = false, false })
}

// Undo is called after a handshake that has failed: the socket counts as before.
func (c *Conn) Undo() { c.change(func() { c.at = c.home }) }

// change changes the place of a Conn, without a limit.
func (c *Conn) change(f func()) {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.closed || !c.counted {
		return
	}
	r.add(c.at, -1)
	f()
	r.add(c.at, 1)
	r.list(c)
}

// Close ends it. Further calls do nothing.
func (c *Conn) Close() {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	r.close(c)
}

// close counts a Conn no more. r.mu is held.
func (r *Registry) close(c *Conn) {
	if c.counted && !c.closed {
		r.add(c.at, -1)
	}
	c.closed = true
	r.list(c)
}

// Request is an HTTP request in progress.
type Request struct {
	registry *Registry
	at       place
}

// Begin counts an HTTP request, or returns which limit it would exceed.
func (r *Registry) Begin(of Client) (*Request, Reason) {
	at := of.place(false)
	r.mu.Lock()
	defer r.mu.Unlock()
	var address counts
	if c := r.addresses[at.address]; c != nil {
		address = *c
	}
	switch {
	case over(r.all.sockets, r.cfg.Connections):
		return nil, r.refuse(Total)
	case over(max(address.requests+1, address.sockets), r.cfg.AddressConnections):
		return nil, r.refuse(Address)
	case at.named && over(r.userCounts(at.user).requests+1, r.cfg.UserConnections):
		return nil, r.refuse(User)
	}
	r.count(at, 1)
	return &Request{r, at}, None
}

func (r *Registry) count(at place, n int) {
	change := func(c *counts) { c.requests += n }
	change(&r.all)
	r.change(at, change)
}

// End is called once.
func (q *Request) End() {
	q.registry.mu.Lock()
	defer q.registry.mu.Unlock()
	q.registry.count(q.at, -1)
}
