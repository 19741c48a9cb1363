package websocket

import (
	"errors"
	"fmt"
	"time"
)

// leastRate is how many bytes of a message must arrive per second, after
// Config.MessageTimeout.
const leastRate = 4 << 10

// errOverdue says that the peer has not completed a message in time.
var errOverdue = errors.New("websocket: message overdue")

// errFragments ends a message of more frames than Config.MaxFragments.
var errFragments = &ProtocolError{StatusPolicyViolation, "too many fragments in one message"}

// watch is the time limit of unfinished messages. Its deadline on the socket is
// lazy: it is set when Read waits in the middle of a message, at most once per
// timeout, and not cleared when the message is complete. When it passes, Read
// checks whether the current message is overdue. So a whole message costs nothing,
// and a wait inside one costs one reading of the clock. Owned by the reading
// goroutine.
type watch struct {
	message int       // decoder.finished, when the message was first seen unfinished
	since   time.Time // when that was; zero: start again
	armed   time.Time // when the deadline passes; zero if none is set
	last    bool      // it is overdue and gets a last look at what has arrived
}

// overdue is called before a wait for the peer. It reports whether the message
// that Read waits for is past its deadline; if not, it sets a socket deadline
// that ends the wait in time.
func (c *Conn) overdue() bool {
	w := &c.watch
	held := c.dec.held()
	if c.client || held == 0 && c.dec.op == 0 {
		return false
	}
	now := time.Now()
	if w.since.IsZero() || w.message != c.dec.finished {
		w.since, w.message, w.last = now, c.dec.finished, false
	}
	due := w.since.Add(c.cfg.MessageTimeout + time.Duration(held)*time.Second/leastRate)
	if !now.Before(due) {
		if c.raw != nil || w.last { // a plain socket was just found empty
			return true
		}
		w.last = true
		due = now.Add(time.Second)
	}
	if w.armed.IsZero() || w.armed.After(due) {
		c.arm(due)
	}
	return false
}

// arm sets the deadline for an unfinished message; a zero time means none.
func (c *Conn) arm(by time.Time) {
	c.watch.armed = by
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messageBy = by
	if c.closeBy.IsZero() { // else Close has set it
		_ = c.conn.SetReadDeadline(c.readDeadline()) // fails only if closed, and then so does the read
	}
}

// readDeadline is the earlier of the caller's deadline and that of an unfinished
// message. c.mu is held.
func (c *Conn) readDeadline() time.Time {
	if c.readBy.IsZero() || !c.messageBy.IsZero() && c.messageBy.Before(c.readBy) {
		return c.messageBy
	}
	return c.readBy
}

// ownDeadline reports whether the deadline that passed was that of an unfinished
// message and not the caller's. Then Read continues and checks the message.
func (c *Conn) ownDeadline() bool {
	if c.watch.armed.IsZero() {
		return false
	}
	c.mu.Lock()
	own := c.readBy.IsZero() || time.Now().Before(c.readBy)
	c.mu.Unlock()
	if own {
		c.arm(time.Time{})
	}
	return own
}

// overdueError is Read's error after errOverdue.
func (c *Conn) overdueError() error {
	return &ProtocolError{StatusPolicyViolation,
		fmt.Sprintf("a message took longer than %v and a second for each %d bytes", c.cfg.MessageTimeout, leastRate)}
}
