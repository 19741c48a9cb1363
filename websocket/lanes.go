package websocket

import "time"

// A connection sends on three priority lanes. The control lane has the messages
// of Queue (answers and acknowledgements) and pongs. The live lane has the
// frames of WriteShared. The bulk lane has the messages of WriteBulk, in chunks.
// The next lane is chosen after each chunk: control, then live, then one more
// chunk. A lane that has waited for maxTurn precedes the others, at the end of
// the frame being written.

// LaneStats counts the traffic and waits of a connection's lanes since it was
// opened.
type LaneStats struct {
	// BulkBytes and BulkChunks count what the socket took on the bulk lane.
	BulkBytes, BulkChunks int64
	// BulkWait is how long WriteBulk waited: for its turn, for credit, and for
	// the socket.
	BulkWait time.Duration
	// ControlWaits counts the times that a Flush could not write everything
	// queued, because a chunk was being written or the socket was full.
	// ControlWait is the sum of these waits.
	ControlWaits int64
	ControlWait  time.Duration
	// LiveWaits and LiveWait are the same for WriteShared.
	LiveWaits int64
	LiveWait  time.Duration
	// Window is how many bytes may be outstanding on the bulk lane; Outstanding
	// is how many are.
	Window, Outstanding int64
}

// Lanes returns the statistics of the lanes.
func (c *Conn) Lanes() LaneStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	if c.bulk != nil {
		s.Window, s.Outstanding = c.bulk.credit.window, c.bulk.credit.outstanding()
	}
	return s
}

// liveQueue is the most bytes of the live lane that are copied and wait for
// their turn. Callers offer the remaining bytes again later.
const liveQueue = 64 << 10

// refuseLive handles shared frames that cannot be written now, and returns how
// many of their bytes it queued. It queues none, unless they wait for a chunk, or
// have waited for longer than maxTurn while the peer was reading. c.mu is held.
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

// liveGoes ends the measured wait of the live lane. c.mu is held.
func (c *Conn) liveGoes() {
	if !c.liveSince.IsZero() {
		c.stats.LiveWaits++
		c.stats.LiveWait += time.Since(c.liveSince.Time)
		c.liveSince = stamp{}
	}
}

// queueLive copies shared frames into the queue of the live lane, and returns
// the number of bytes copied. c.mu is held.
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
		n, _ = frameEnd(frames, liveQueue)
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

// want asks the owner of c.writing to write the queued messages too. c.mu is
// held.
func (c *Conn) want() {
	c.wanted = true
	if c.tail != nil {
		c.tailSince.set()
	}
}
