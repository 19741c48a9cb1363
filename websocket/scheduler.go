package websocket

import "time"

// maxTurn is how long one lane may keep another waiting while the peer reads.
// It is half of the guaranteed maximum, because a turn lasts until the end of a
// frame.
const maxTurn = 25 * time.Millisecond

// outgoing is a run of frames on its way to the socket.
type outgoing struct {
	*buffer       // nil if there is none
	taken   int   // bytes that the socket has
	bound   int   // an offset at which a frame begins, or the end
	live    bool  // on the live lane, else on the control lane
	since   stamp // when it began to wait, if it had to
}

// stamp is a time; zero means not set.
type stamp struct{ time.Time }

func (s *stamp) set() {
	if s.IsZero() {
		s.Time = time.Now()
	}
}

func (s *stamp) overdue(now time.Time) bool { return !s.IsZero() && now.Sub(s.Time) > maxTurn }

// end is the offset of the end; 0 if there is no buffer.
func (o *outgoing) end() int {
	if o.buffer == nil {
		return 0
	}
	return len(o.b)
}

// rest is what the socket has not taken.
func (o *outgoing) rest() []byte { return o.b[o.taken:] }

// frame moves bound to the first frame boundary at or after taken, and returns
// it.
func (o *outgoing) frame() int {
	for o.bound < o.taken {
		h, size, err := ParseHeader(o.b[o.bound:])
		if err != nil || size == 0 {
			o.bound = len(o.b) // it holds nothing but frames: not reached
			break
		}
		o.bound += size + int(h.Length)
	}
	return o.bound
}

// turn returns the offset up to which the drain goroutine may write before it
// calls turn again, and whether it must let the bulk lane write instead. c.mu
// is held.
func (c *Conn) turn() (until int, over bool) {
	bulkWaits := c.bulk != nil && c.bulk.waiting
	if c.head.buffer == nil {
		return 0, bulkWaits
	}
	now := time.Now()
	bulkDue := bulkWaits && c.bulk.since.overdue(now)
	liveDue := c.live != nil && !c.head.live && c.liveSince.overdue(now)
	if !bulkDue && !liveDue {
		return len(c.head.b), false
	}
	if until = c.head.frame(); until > c.head.taken {
		return until, false
	}
	if bulkDue {
		return 0, true
	}
	c.parked = c.head
	c.takeLive()
	return len(c.head.b), false
}

// takeLive makes what is queued on the live lane the head. c.mu is held.
func (c *Conn) takeLive() {
	c.head = outgoing{buffer: c.live, live: true, since: c.liveSince}
	c.live, c.liveSince = nil, stamp{}
}

// advance chooses the next head, if there is none: the interrupted head, else
// the tail with the answer to the latest ping appended, else the live lane's
// queue. The live lane goes first when it has waited for maxTurn, and when a
// Close frame is queued: the peer reads nothing after that. c.mu is held.
func (c *Conn) advance() {
	switch {
	case c.head.buffer != nil:
	case c.live != nil && (c.closeSent || c.liveSince.overdue(time.Now())):
		c.takeLive()
	case c.parked.buffer != nil:
		c.head, c.parked = c.parked, outgoing{}
	default:
		c.appendPong()
		if c.tail == nil && c.live != nil {
			c.takeLive()
			return
		}
		c.head = outgoing{buffer: c.tail, since: c.tailSince}
		c.tail, c.tailSince = nil, stamp{}
	}
}

// left records the head's wait and releases its buffer: the socket has taken
// all of it. c.mu is held.
func (c *Conn) left() {
	if !c.head.since.IsZero() {
		wait := time.Since(c.head.since.Time)
		if c.head.live {
			c.stats.LiveWaits++
			c.stats.LiveWait += wait
		} else {
			c.stats.ControlWaits++
			c.stats.ControlWait += wait
		}
	}
	c.head.put()
	c.head = outgoing{}
	if c.toldOutput > 0 {
		c.tellOutput()
	}
}
