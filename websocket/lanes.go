package websocket

import "time"

// All that leaves a connection goes by one of three lanes. Control is what Queue
// encodes: answers and acknowledgements, and pongs. Live is what WriteShared
// offers. Bulk is what WriteBulk sends, in chunks; the lane is chosen anew
// after each chunk: first what control has, then live, then one more chunk.
// A lane that has waited for maxTurn goes before the others, at the end of the
// frame being written.

// LaneStats are what a connection's lanes did since it was opened.
type LaneStats struct {
	// BulkBytes and BulkChunks is what the socket took on the bulk lane.
	BulkBytes, BulkChunks int64
	// BulkWait is how long WriteBulk waited: for its turn, for credit, and for
	// the socket.
	BulkWait time.Duration
	// ControlWaits counts the times that a Flush could not write all that was
	// queued, because of a chunk being written or of a full socket, and
	// ControlWait is how long what was queued by then waited, all together.
	ControlWaits int64
	ControlWait  time.Duration
	// LiveWaits and LiveWait are the same of WriteShared.
	LiveWaits int64
	LiveWait  time.Duration
	// Window is how many bytes may be outstanding on the bulk lane, and
	// Outstanding how many are.
	Window, Outstanding int64
}

// Lanes returns what the lanes did.
func (c *Conn) Lanes() LaneStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	if c.bulk != nil {
		s.Window, s.Outstanding = c.bulk.credit.window, c.bulk.credit.outstanding()
	}
	return s
}

// liveQueue is how many bytes of the live lane are copied and wait for their
// turn; the others are offered again later.
const liveQueue = 64 << 10

// refuseLive deals with shared frames that cannot go now, and returns with how
// many bytes of them: none, unless what is in the way is a chunk, or has been for
// long although the peer takes what it is sent. c.mu is held.
func (c *Conn) refuseLive(frames []byte) int {
	if c.liveSince.IsZero() {
		c.liveSince.set()
		c.liveSent = c.sent
	}
	starved := c.liveSince.overdue(time.Now()) && c.sent > c.liveSent
	if c.bulking && c.head.buffer == nil || starved {
		return c.queueLive(frames)
	}
	return 0
}

// liveGoes ends the time for which the live lane was refused. c.mu is held.
func (c *Conn) liveGoes() {
	if !c.liveSince.IsZero() {
		c.stats.LiveWaits++
		c.stats.LiveWait += time.Since(c.liveSince.Time)
		c.liveSince = stamp{}
	}
}

// queueLive copies shared frames into the queue of the live lane, and returns
// how many bytes of them. c.mu is held.
func (c *Conn) queueLive(frames []byte) int {
	have := 0
	if c.live != nil {
		have = len(c.live.b)
	}
	n := len(frames)
	if have+n > liveQueue {
		if have > 0 {
			return 0
		}
		n = frameEnd(frames, liveQueue)
	}
	if c.live == nil {
		c.live = getBuffer(max(n, outBuffer))
		c.live.b = c.live.b[:0]
		c.tellOutput()
	} else if have+n > cap(c.live.b) {
		larger := getBuffer(have + n)
		larger.b = append(larger.b[:0], c.live.b...)
		c.live.put()
		c.live = larger
		c.tellOutput()
	}
	c.live.b = append(c.live.b, frames[:n]...)
	c.unsent += n
	c.want()
	return n
}

// want has the owner of c.writing take along what is queued. c.mu is held.
func (c *Conn) want() {
	c.wanted = true
	if c.tail != nil {
		c.tailSince.set()
	}
}
