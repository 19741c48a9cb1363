package websocket

import (
	"cmp"
	"time"
)

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

// A connection may hold so many bytes without telling.
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

const (
	// evictTime is how long the peer has to take the Close frame of Evict and to
	// close its side.
	evictTime = time.Second
	// evictHead is the largest buffer under way for which Evict waits, in bytes.
	evictHead = 64 << 10
)

// Evict ends a connection whose memory is needed, and gives the buffers back at
// once: what is queued and what is there of a message are dropped, and Read fails.
// A Close frame is sent, and the peer has a second to take it; but if much is under
// way that the peer does not take, the connection is aborted. The error is ErrClosed
// if the connection was closed before.
func (c *Conn) Evict(code StatusCode, reason string) error {
	c.mu.Lock()
	if !c.closeBy.IsZero() || c.err == ErrClosed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.evicted = true
	c.closeBy = time.Now().Add(min(evictTime, c.cfg.CloseTimeout))
	_ = c.conn.SetWriteDeadline(c.closeBy)
	_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // Read returns
	c.shed()
	if c.holdsMuch() {
		c.reset()
	} else {
		c.startClose(code, reason)
	}
	c.mu.Unlock()

	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.dec.abandon() // messages that Read returned may be in use
	c.dec.release()
	c.dec.err = cmp.Or(c.dec.err, error(ErrClosed))
	c.tellAssembly()

	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing {
		c.moved.Wait()
	}
	if c.err == nil {
		_ = c.conn.SetReadDeadline(c.closeBy)
		c.linger()
	}
	c.shut()
	return nil
}

// holdsMuch reports whether much is under way that the peer does not take. c.mu is
// held.
func (c *Conn) holdsMuch() bool {
	n := 0
	for _, b := range [...]*buffer{c.head.buffer, c.parked.buffer} {
		if b != nil {
			n += cap(b.b)
		}
	}
	return n > evictHead || c.bulking
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
