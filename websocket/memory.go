package websocket

import (
	"cmp"
	"time"
)

// Memory receives the changes of the memory that a connection holds for its peer.
// delta is a number of bytes, negative when they are released. Once the connection
// has ended it holds nothing, regardless of the last calls. The methods are called
// from any goroutine. They must not block, and must not call the Conn.
//
// Only memory held over a wait is reported: a message that arrives whole, and an
// answer that the socket takes at once, cause no call. Inflated messages are reported until
// the next Read, since whoever handles them may wait.
type Memory interface {
	// Assembly reports the buffer of an incomplete message, and those of inflated messages.
	Assembly(delta int)
	// Output reports the buffers of queued messages that the socket does not
	// take.
	Output(delta int)
}

// A connection does not report buffers up to these sizes, in bytes.
const (
	freeAssembly = 4 << 10
	freeOutput   = 16 << 10
)

// tellAssembly reports the size of the buffer that Read keeps. Only the reading
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
	if c.dec.unpack != nil {
		c.tellInflated()
	}
}

// tellInflated reports the size of the buffers that hold inflated messages. Only the reading goroutine calls it.
func (c *Conn) tellInflated() {
	now := c.dec.unpack.size()
	if now <= freeAssembly {
		now = 0
	}
	if c.cfg.Memory != nil && now != c.toldInflated {
		c.cfg.Memory.Assembly(now - c.toldInflated)
		c.toldInflated = now
	}
}

// tellOutput reports the size of the buffers that hold queued messages. c.mu is
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
	if c.sealed > 0 {
		now += maxSealed
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
	// evictHead is the largest buffer being written for which Evict waits, in
	// bytes.
	evictHead = 64 << 10
)

// Evict ends a connection to free its memory: queued messages and an incomplete message
// are dropped at once, and Read fails. Messages that Read has returned stay valid, and
// are reported to Config.Memory, until the next Read: whoever handles them must end
// soon. Evict sends a Close frame, and the peer has a second to read it; but if a large
// write is stuck at the socket, the connection is aborted. The error is ErrClosed if the
// connection was closed before.
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
	c.dec.err = cmp.Or(c.dec.err, error(ErrClosed))
	if !c.lent {
		c.dec.release()
		c.tellAssembly()
	}
	c.readMu.Unlock() // the next Read must not wait for the peer

	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing {
		c.moved.Wait()
	}
	if c.err == nil {
		_ = c.conn.SetReadDeadline(c.closeBy)
		c.linger(maxDiscard)
	}
	c.shut()
	return nil
}

// holdsMuch reports whether a chunk, or more than evictHead bytes of buffers, is
// being written. c.mu is held.
func (c *Conn) holdsMuch() bool {
	n := 0
	for _, b := range [...]*buffer{c.head.buffer, c.parked.buffer} {
		if b != nil {
			n += cap(b.b)
		}
	}
	return n > evictHead || c.bulking
}

// shed drops the queued messages, except those being sent: the socket may have
// taken a part of a frame. c.mu is held.
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
