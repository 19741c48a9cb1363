package websocket

import (
	"errors"
	"net"
	"time"
)

// StartClose sends a Close frame after what is queued; Queue then returns
// ErrClosed. Read goes on to return what the peer had sent before it answered,
// and ends with the answer's *CloseError. Call Close after it. The code and
// reason are as in AppendClose. It never blocks; if a Close frame was queued
// before, it does nothing.
func (c *Conn) StartClose(code StatusCode, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startClose(code, reason)
}

func (c *Conn) startClose(code StatusCode, reason string) {
	if c.closeSent || c.err != nil {
		return
	}
	var payload [MaxControl]byte
	p := closePayload(payload[:0], code, reason)
	if c.cut {
		c.drop()
	}
	c.appendPong()
	c.append(OpClose, p, frameSize(len(p), c.client))
	c.closeSent = true
	c.moved.Broadcast() // to WriteBulk
	c.flush()
}

// drop forgets the messages queued: they may not follow one that broke off.
// c.mu is held; a pong may still be in the hands of a write, so that buffers are
// left to the garbage collector.
func (c *Conn) drop() {
	for _, o := range []outgoing{c.head, c.parked, {buffer: c.tail}, {buffer: c.live}} {
		if o.buffer != nil {
			c.unsent -= len(o.rest())
		}
	}
	c.head, c.parked, c.tail, c.live = outgoing{}, outgoing{}, nil, nil
	c.tellOutput()
}

// Close ends the connection in an orderly way: everything queued is sent, then
// a Close frame unless one was sent before, and the peer's is awaited unless it
// came first; messages before it are dropped. Then the socket is closed. All of
// this takes at most CloseTimeout. The error tells that the peer did not take
// part to the end; the resources are released in any case. No goroutine of the
// Conn is left. Only the first call of Close or Abort does something.
func (c *Conn) Close(code StatusCode, reason string) error {
	c.mu.Lock()
	if !c.closeBy.IsZero() || c.err == ErrClosed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.closeBy = time.Now().Add(c.cfg.CloseTimeout)
	_ = c.conn.SetDeadline(c.closeBy)
	c.startClose(code, reason)
	c.mu.Unlock()

	c.readMu.Lock() // a Read under way ends by closeBy at the latest
	defer c.readMu.Unlock()
	c.dec.abandon()
	for c.dec.err == nil {
		c.dec.decode()
		if c.dec.err == nil {
			_ = c.fill() // while closing, every error is left in dec.err
		}
	}
	c.dec.release()
	c.tellAssembly()
	err := c.dec.err
	_, clean := errors.AsType[*CloseError](err)
	if clean {
		err = nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing {
		c.moved.Wait()
	}
	if c.err != nil {
		err = c.err
	} else {
		if by := time.Now().Add(lingerTime); clean && by.Before(c.closeBy) {
			_ = c.conn.SetReadDeadline(by) // fails only if closed
		}
		c.linger()
	}
	c.shut()
	return err
}

// lingerTime is how long a peer that took part in the closing handshake has to
// close its side.
const lingerTime = time.Second

// linger tells the peer that nothing more comes and swallows what it still
// sends until it closes. Closing with bytes unread would reset the connection,
// and the peer might never see why it was closed.
func (c *Conn) linger() {
	if half, ok := c.conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		return
	}
	c.mu.Unlock()
	x := getBuffer(plainBuffer)
	for {
		if _, err := c.conn.Read(x.b); err != nil {
			break
		}
	}
	x.put()
	c.mu.Lock()
}

// Abort ends the connection at once, without a Close frame: a TCP connection is
// reset, so that the system keeps nothing for a peer that takes nothing. What
// is queued or on its way may be lost.
func (c *Conn) Abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reset()
	for c.writing {
		c.moved.Wait()
	}
}

// reset closes the socket without regard for the peer. c.mu is held.
func (c *Conn) reset() {
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.shut()
}

// shut closes the socket, which ends whatever waits for it. c.mu is held.
func (c *Conn) shut() {
	if c.err == nil {
		c.err = ErrClosed
	}
	c.closeSent = true
	c.forget()
	_ = c.conn.Close() // nothing depends on it any more
	c.moved.Broadcast()
}

// closing reports whether Close has set the end.
func (c *Conn) closing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closeBy.IsZero()
}
