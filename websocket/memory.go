package websocket

import "time"

// Memory is told what a connection holds for its peer, as it grows and shrinks.
// delta is a number of bytes, below zero when they are given back. Once the
// connection has ended it holds nothing, whatever was told last. The calls come from
// any goroutine. They must not block, and must not call the Conn.
//
// Only what stays is told: nothing is called for a message that arrives whole or
// for an answer that the socket takes at once.
type Memory interface {
	// Assembly is told of the buffer of a message that is not complete.
	Assembly(delta int)
	// Output is told of buffers of what is queued and the socket does not take.
	Output(delta int)
}

// What a connection may hold without telling, in bytes.
const (
	freeAssembly = 4 << 10
	freeOutput   = 16 << 10
)

// tellAssembly tells how large the buffer is that Read keeps. Only the reading
// goroutine calls it.
func (c *Conn) tellAssembly() {
	if c.cfg.Memory == nil {
		return
	}
	now := 0
	if b := c.dec.buf; b != nil && len(b.b) > freeAssembly {
		now = len(b.b)
	}
	if now != c.toldAssembly {
		c.cfg.Memory.Assembly(now - c.toldAssembly)
		c.toldAssembly = now
	}
}

// tellOutput tells how large the buffers are that hold what is queued. c.mu is
// held.
func (c *Conn) tellOutput() {
	if c.cfg.Memory == nil {
		return
	}
	now := 0
	for _, b := range [...]*buffer{c.head.buffer, c.parked.buffer, c.tail, c.live} {
		if b != nil {
			now += cap(b.b)
		}
	}
	if slow := c.writing && !c.bulking; now <= freeOutput && !slow {
		now = 0
	}
	if now != c.toldOutput {
		c.cfg.Memory.Output(now - c.toldOutput)
		c.toldOutput = now
	}
}

// evictTime is how long Evict lets the peer take part in the closing handshake.
const evictTime = time.Second

// Evict is Close for a connection whose memory is needed: what is queued and has
// not begun to be sent is dropped at once, and the closing handshake takes at most
// a second. Read fails by then.
func (c *Conn) Evict(code StatusCode, reason string) error {
	c.mu.Lock()
	if !c.closeSent {
		c.shed()
	}
	c.mu.Unlock()
	return c.closeWithin(min(evictTime, c.cfg.CloseTimeout), code, reason)
}

// shed drops what is queued, but what is being sent: it may be in the middle of a
// frame. c.mu is held.
func (c *Conn) shed() {
	for _, o := range []outgoing{{buffer: c.tail}, {buffer: c.live}} {
		if o.buffer != nil {
			c.unsent -= len(o.rest())
			o.put()
		}
	}
	c.tail, c.tailSince, c.live, c.liveSince = nil, stamp{}, nil, stamp{}
	c.tellOutput()
}
