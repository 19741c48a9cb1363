package limits

import "time"

// pendingPatience is how long a pending socket keeps its place if no address has more pending sockets than that of a new one. A client needs a few
// round trips until it is known. Without this time, clients that all come at once would end each other's handshakes.
const pendingPatience = 2 * time.Second

// makeRoom ends a pending socket in favour of another, and reports whether there was one to end. It is the oldest of the address that has the most
// of them, so that few addresses cannot keep out all others. If no address has more than that of the favoured socket would have, it is the oldest of
// all, unless that has been pending for less than pendingPatience. It walks all pending sockets: a thousand by default. r.mu is held.
func (r *Registry) makeRoom(at place, favoured *Conn) bool {
	most := 1
	if c := r.addresses[at.address]; c != nil {
		most += c.pending
	}
	var victim, oldest *Conn
	for e := r.waiting.Front(); e != nil; e = e.Next() {
		c := e.Value.(*Conn)
		if c == favoured {
			continue
		}
		if oldest == nil {
			oldest = c
		}
		if n := r.addresses[c.at.address].pending; n > most {
			victim, most = c, n
		}
	}
	if victim == nil && oldest != nil && r.now().Sub(oldest.since) >= pendingPatience {
		victim = oldest
	}
	if victim == nil {
		return false
	}
	r.close(victim)
	r.ended.Add(1)
	go func() { // without r.mu
		r.log.Warn(victim.at.address, "a connection was closed: its client was not known, and another waited", "limit", Pending)
		victim.abort()
	}()
	return true
}

// list keeps r.waiting up to date after a change of a Conn. r.mu is held.
func (r *Registry) list(c *Conn) {
	switch may := c.counted && !c.closed && c.at.pending && c.at.address.IsValid() && c.abort != nil; {
	case may && c.element == nil:
		c.since = r.now()
		c.element = r.waiting.PushBack(c)
	case !may && c.element != nil:
		r.waiting.Remove(c.element)
		c.element = nil
	}
}
