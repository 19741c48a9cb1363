package websocket

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// plainBuffer is the read buffer of a connection whose socket cannot be accessed (net.Pipe, or
// a TLS connection that is not from NewTLSListener or Dial): it is held while the connection is
// idle.
const plainBuffer = 4 << 10

// Read waits until at least one message is complete and returns all messages
// that one read of the socket completed. Before it waits it flushes the queued
// messages, so that the answers to one Read leave in one write. Payloads are
// valid until the next Read, even if the Conn is closed meanwhile.
//
// Read passes pings to OnPing and answers them, and passes pongs to OnPong. An error is
// returned after all whole messages, and again by every later Read. It is
//   - a *CloseError when the peer's Close frame has arrived. It is not answered
//     yet: queue the remaining answers, then call Close.
//   - a *ProtocolError when the peer broke a rule, or sent a message too slowly. The
//     peer gets it in a Close frame.
//   - io.EOF when the connection ended between messages without a Close frame,
//     io.ErrUnexpectedEOF when it ended inside one.
//   - ErrWriteTimeout, ErrClosed, or the socket's error.
func (c *Conn) Read() ([]Message, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.lent = false
	for {
		msgs := c.dec.decode()
		if c.dec.unpack != nil {
			c.tellInflated()
		}
		if len(msgs) > 0 {
			c.traffic.in.Add(int64(len(msgs)))
			c.lent = true
			return msgs, nil
		}
		if c.dec.err != nil {
			return nil, c.endRead()
		}
		if err := c.Flush(); err == nil {
			c.waitForPeer()
		} // even if it failed, bytes that the peer sent before are still read
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// crowded reports whether so much is queued that nothing more may be read from
// the peer. c.mu is held.
func (c *Conn) crowded() bool { return c.unsent > c.cfg.MaxUnsent/2 }

// waitForPeer delays reading while the peer reads too little (back-pressure):
// otherwise answers to further requests would only pile up. It obeys the read
// deadline.
func (c *Conn) waitForPeer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.crowded() && c.writing && c.err == nil && !c.closeSent {
		c.watch.since = time.Time{} // the wait is not for the message
		c.moved.Broadcast()         // to WriteBulk, which would wait for a pong
		if c.readBy.IsZero() {
			c.moved.Wait()
			continue
		}
		left := time.Until(c.readBy)
		if left <= 0 {
			return
		}
		timer := time.AfterFunc(left, c.nudge)
		c.moved.Wait()
		timer.Stop()
	}
}

// endRead returns the error that ended reading. For a protocol error it first
// sends the Close frame: only now, so that answers to the messages before it
// could be queued.
func (c *Conn) endRead() error {
	c.dec.release()
	c.tellAssembly()
	if broken, ok := errors.AsType[*ProtocolError](c.dec.err); ok {
		c.StartClose(broken.Code, broken.Reason)
	}
	return c.dec.err
}

// fill waits for bytes and reads once. It stores an error that ends the
// connection in dec.err; it returns only a deadline error, after which reading
// can go on.
func (c *Conn) fill() error {
	n, err := c.receive()
	c.dec.w += n
	c.received.Add(int64(n))
	switch {
	case err == nil || n > 0: // the next read returns an error that came with bytes
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && !c.closing():
		if c.ownDeadline() {
			return nil
		}
		return err
	case errors.Is(err, errOverdue):
		c.dec.err = c.overdueError()
		return nil
	case err == io.EOF:
		if c.dec.held() > 0 || c.dec.op != 0 {
			err = io.ErrUnexpectedEOF
		}
	default:
		err = c.cause(fmt.Errorf("websocket: read: %w", err))
	}
	c.dec.err = err
	return nil
}

// cause returns why this side ended the connection, or else err.
func (c *Conn) cause(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.evicted {
		return ErrClosed
	}
	return cmp.Or(c.err, err)
}

// receive waits for bytes and reads them into the decoder's buffer.
func (c *Conn) receive() (int, error) {
	if c.raw == nil {
		if c.overdue() {
			return 0, errOverdue
		}
		space := c.dec.space()
		c.tellAssembly()
		return c.conn.Read(space)
	}
	err := c.raw.Read(c.onReadable)
	c.sendAnswer()
	if err != nil {
		return 0, err
	}
	return c.readN, c.readErr
}

// sendAnswer sends what package tls has answered while it read: a new key, or an alert. It is not part of tryRead, which must not wait for
// c.mu: who holds it may close the socket, and that waits for tryRead.
func (c *Conn) sendAnswer() {
	if c.secure == nil || !c.secure.answered {
		return
	}
	c.secure.answered = false
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countSealed()
	c.flush()
}

// tryRead reads once. If there is nothing to read it releases the buffer and
// returns false, so that the runtime waits: an idle connection holds no buffer.
func (c *Conn) tryRead(fd uintptr) bool {
	space := c.dec.space()
	if len(c.dec.buf.b) > c.dec.size { // the buffer stays in use while the caller handles a large message
		c.tellAssembly()
	}
	c.readN, c.readErr = c.readOnce(fd, space)
	switch {
	case c.readErr == nil && c.readN == 0:
		c.readErr = io.EOF
	case c.readErr != nil && again(c.readErr):
		if c.overdue() {
			c.readErr = errOverdue
			return true
		}
		if c.secure != nil && c.secure.answered { // the answer leaves before the wait
			c.readErr = nil
			return true
		}
		c.dec.park()
		c.tellAssembly()
		return false
	}
	return true
}

// readOnce reads what has arrived, without waiting.
func (c *Conn) readOnce(fd uintptr, space []byte) (n int, err error) {
	s := c.secure
	if s == nil {
		return sysRead(fd, space)
	}
	s.fd, s.empty = fd, false
	before := s.waiting()
	for n < len(space) && err == nil { // package tls returns one record a call
		var k int
		k, err = c.conn.Read(space[n:])
		n += k
	}
	s.answered = s.answered || s.waiting() > before // or a writer has added to it
	if n > 0 {
		err = nil // the next call returns it again
	}
	return n, err
}

// control handles a Ping or Pong between messages.
func (c *Conn) control(op Opcode, payload []byte) {
	switch {
	case op == OpPing:
		if c.cfg.OnPing != nil {
			c.cfg.OnPing(payload)
		}
		c.queuePong(payload)
	case !c.creditPong(payload) && c.cfg.OnPong != nil:
		c.cfg.OnPong(payload)
	}
}
