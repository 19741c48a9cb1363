package websocket

import (
	"cmp"
	"crypto/tls"
	"errors"
	"time"
)

// StartClose sends a Close frame after all queued messages; Queue then returns
// ErrClosed. Read still returns the messages that the peer sent before its
// answer, and then the answer's *CloseError. Call Close after that. The code
// and reason are as in AppendClose. It never blocks; if a Close frame was
// queued before, it does nothing.
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

// drop discards the queued messages: they must not follow a message that was
// aborted in the middle. c.mu is held; a running write may still use the bytes
// of a pong, so the buffers are left to the garbage collector.
func (c *Conn) drop() {
	for _, o := range []outgoing{c.head, c.parked, {buffer: c.tail}, {buffer: c.live}} {
		if o.buffer != nil {
			c.unsent -= len(o.rest())
		}
	}
	c.head, c.parked, c.tail, c.live = outgoing{}, outgoing{}, nil, nil
	c.tellOutput()
}

// Close does the closing handshake. It sends everything queued, then a Close
// frame unless one was sent before, waits for the peer's Close frame unless
// that has arrived, drops the messages before it, and closes the socket. All of
// this takes at most CloseTimeout. An error means that the peer did not
// complete the handshake; the resources are released in any case. When Close
// returns, no goroutine of the Conn is left. Only the first call of Close or
// Abort has an effect.
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

	c.readMu.Lock() // a running Read ends by closeBy at the latest
	defer c.readMu.Unlock()
	c.dec.abandon()
	left := maxDiscard
	for c.dec.err == nil {
		if len(c.dec.decode()) > 0 || c.dec.err != nil {
			continue
		}
		before := c.Received()
		_ = c.fill() // while closing, every error is left in dec.err
		if left -= int(c.Received() - before); left <= 0 && !c.client {
			c.dec.err = cmp.Or(c.dec.err, errSendsOn)
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
		c.linger(left)
	}
	c.shut()
	return err
}

const (
	// lingerTime is how long a peer that completed the closing handshake, or sent too
	// much instead, has to close its side.
	lingerTime = time.Second
	// maxDiscard is about how many bytes of a peer a closing server discards. A peer that
	// sends more does not care about the Close frame.
	maxDiscard = 256 << 10
)

// errSendsOn ends the wait of a server for a peer's Close frame.
var errSendsOn = errors.New("websocket: peer sends on instead of closing")

// linger shuts down the sending side and discards up to left bytes of the peer until
// it closes. Closing a socket with unread bytes would reset the connection, and the
// peer might never see why it was closed: a peer that sends more gets time to see it,
// and then the reset. c.mu is held, and nobody writes.
func (c *Conn) linger(left int) {
	by := c.closeBy
	c.mu.Unlock()
	flood := c.closeWrite(by) && c.discard(left)
	c.mu.Lock()
	if !flood {
		return
	}
	if soon := time.Now().Add(lingerTime); soon.Before(by) {
		by = soon
	}
	timer := time.AfterFunc(time.Until(by), c.nudge)
	defer timer.Stop()
	for c.err == nil && time.Now().Before(by) {
		c.moved.Wait()
	}
}

// discard reads up to left bytes of the socket, and reports whether the peer may send
// more.
func (c *Conn) discard(left int) (more bool) {
	x := getBuffer(plainBuffer)
	defer x.put()
	for left > 0 || c.client {
		n, err := c.socket.Read(x.b)
		if err != nil {
			return false
		}
		left -= n
	}
	return true
}

// closeWrite shuts down the sending side: that of TLS, so that the peer knows that nothing was cut off, and that of the
// socket. It reports whether the socket has one.
func (c *Conn) closeWrite(by time.Time) bool {
	half, ok := c.socket.(interface{ CloseWrite() error })
	if !ok {
		return false
	}
	if over, ok := c.conn.(*tls.Conn); ok {
		err := over.CloseWrite()
		_ = c.conn.SetWriteDeadline(by) // package tls has set one that is over
		for err == nil && c.secure != nil && c.secure.waiting() > 0 {
			err = c.secure.flush(true)
		}
		if err != nil {
			return false
		}
	}
	return half.CloseWrite() == nil
}

// Abort ends the connection at once, without a Close frame: a TCP connection is
// reset, so that the system keeps no data for a peer that reads nothing. Data
// that is queued or in flight may be lost.
func (c *Conn) Abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reset()
	for c.writing {
		c.moved.Wait()
	}
}

// reset closes the socket with a TCP reset. c.mu is held.
func (c *Conn) reset() {
	if tcp, ok := c.socket.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	c.shut()
}

// shut closes the socket, which ends every call that waits for it. c.mu is
// held.
func (c *Conn) shut() {
	if c.err == nil {
		c.err = ErrClosed
	}
	c.closeSent = true
	c.forget()
	_ = c.socket.Close() // nothing depends on it any more. The Close of package tls might wait for the peer
	c.moved.Broadcast()
}

// closing reports whether Close or Evict was called.
func (c *Conn) closing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closeBy.IsZero()
}
