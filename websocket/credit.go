package websocket

import (
	"encoding/binary"
	"errors"
	"time"
)

// ErrCredit is Grant's error for an amount that makes no sense.
var ErrCredit = errors.New("websocket: invalid credit")

const (
	// minWindow and maxWindow bound what may be outstanding on the bulk lane
	// while that adapts.
	minWindow = 64 << 10
	maxWindow = 4 << 20
	// firstWindow is where it begins: little enough to fit the kernels' buffers
	// of a peer that never reads, so that it can be told why it is closed.
	firstWindow = 64 << 10
	// chunkTarget is how much longer than the fastest round trip one may take
	// to a peer that reassembles chunks, or a quarter of that one where it is
	// more: it is the time that an answer spends after bulk in the peer's
	// buffer. Half of it cost throughput on one machine, and twice as much gained
	// none (docs/benchmarks/lanes.md). An answer to another peer waits for the
	// end of a message besides, so less is left for the buffer.
	chunkTarget    = 200 * time.Microsecond
	fragmentTarget = 100 * time.Microsecond
	// baseAge is for how long a fastest round trip counts: paths change.
	baseAge = 10 * time.Second
	// maxGrant is the most that may be granted and not used.
	maxGrant = 1 << 30

	creditMark = 'b' // the first byte of a credit ping
	creditSize = 1 + 8
)

// credit bounds what has been sent on the bulk lane and not been acknowledged
// by the peer: bytes in the peer's own buffer cannot be overtaken any more. A
// ping after each chunk carries the offset up to there; its pong, or that of
// any later ping, acknowledges it. So every peer gives credit, whatever it is.
// The number of bytes under way adapts to the delay that it causes, as in delay-based
// congestion control (TCP Vegas, Brakmo and Peterson 1995). Guarded by Conn.mu.
type credit struct {
	sent, acked int64 // offsets
	window      int64 // at most outstanding; 0: no bound
	adapts      bool
	target      time.Duration // chunkTarget or fragmentTarget
	started     bool          // it has been too wide once; before, it doubles every round trip
	granted     int64         // offset up to which the peer allows, if it says that itself
	explicit    bool
	fragments   bool  // a message is under way in fragments, by the rule it began with
	next        int64 // granted meanwhile, for the messages after it
	unread      bool  // no pong would be read

	pings  []creditPing // not acknowledged, the oldest first
	base   time.Duration
	baseAt time.Time
	cutAt  time.Time
}

type creditPing struct {
	offset int64
	at     time.Time
}

func newCredit(cfg Config) credit {
	switch {
	case cfg.BulkCredit < 0:
		return credit{}
	case cfg.BulkCredit > 0:
		return credit{window: int64(cfg.BulkCredit)}
	default:
		return credit{window: firstWindow, adapts: true, target: fragmentTarget}
	}
}

func (c *credit) outstanding() int64 { return c.sent - c.acked }

// allows reports whether n more bytes may be sent. One chunk always may, where
// nothing is outstanding.
func (c *credit) allows(n int) bool {
	switch {
	case c.explicit:
		return c.sent+int64(n) <= c.granted
	case c.window == 0 || c.unread:
		return true
	default:
		return c.outstanding() == 0 || c.outstanding()+int64(n) <= c.window
	}
}

// appendPing notes that n bytes are about to be sent and appends the ping that
// asks for them, if one is needed.
func (c *credit) appendPing(dst []byte, n int, now time.Time) []byte {
	c.sent += int64(n)
	if c.explicit || c.window == 0 {
		return dst
	}
	c.pings = append(c.pings, creditPing{c.sent, now})
	var payload [creditSize]byte
	payload[0] = creditMark
	binary.BigEndian.PutUint64(payload[1:], uint64(c.sent))
	return AppendFrame(dst, OpPing, payload[:])
}

// pong handles a pong and reports whether it was one of ours.
func (c *credit) pong(payload []byte, now time.Time) bool {
	if len(payload) != creditSize || payload[0] != creditMark {
		return false
	}
	offset := int64(binary.BigEndian.Uint64(payload[1:]))
	answered := 0
	for answered < len(c.pings) && c.pings[answered].offset <= offset {
		answered++
	}
	if answered == 0 || c.pings[answered-1].offset != offset {
		return true // of a ping that was never sent, or acknowledged before
	}
	acked := offset - c.acked
	c.acked = offset
	rtt := now.Sub(c.pings[answered-1].at)
	c.pings = append(c.pings[:0], c.pings[answered:]...)
	if c.adapts {
		c.adapt(rtt, acked, now)
	}
	return true
}

// adapt widens the window by a chunk for each window acknowledged in time, at
// first by as much as was acknowledged, and narrows it, once a round trip, by half
// the share that was too late.
func (c *credit) adapt(rtt time.Duration, acked int64, now time.Time) {
	if c.base == 0 || rtt < c.base || now.Sub(c.baseAt) > baseAge {
		c.base, c.baseAt = rtt, now
	}
	target := c.base + max(c.target, c.base/4)
	if rtt <= target {
		step := acked
		if c.started {
			step = acked * minWindow / c.window
		}
		c.window = min(c.window+step, maxWindow)
		return
	}
	c.started = true
	if now.Sub(c.cutAt) > rtt {
		late := float64(rtt-target) / float64(rtt)
		c.window = max(int64(float64(c.window)*(1-late/2)), minWindow)
		c.cutAt = now
	}
}

// Grant adds n bytes to what the peer allows on the bulk lane. With the first
// call its word replaces the credit by ping, from the next message on: a peer sees
// nothing of a message in fragments before its end, and would not know what this
// one still lacks. n below 1, and more than 1 GiB that is allowed and not sent, is
// ErrCredit.
func (c *Conn) Grant(n int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cr := &c.bulkState().credit
	unused := cr.next
	if cr.explicit {
		unused = cr.granted - cr.sent
	}
	if n < 1 || n > maxGrant || unused+n > maxGrant {
		return ErrCredit
	}
	if cr.explicit {
		cr.granted += n
	} else {
		cr.next += n
		cr.adopt()
	}
	c.bulk.progress = time.Now()
	c.moved.Broadcast()
	return nil
}

// adopt makes the peer's word the rule, once it has given it, unless a message is
// under way in fragments.
func (c *credit) adopt() {
	if c.next > 0 && !c.fragments {
		c.explicit, c.granted, c.next = true, c.sent+c.next, 0
	}
}

// SetUnread says that nobody will call Read for a while, or that somebody does
// again. No pong arrives meanwhile, so the bulk lane waits for none: it sends as
// fast as the socket takes it. The credit that the peer gives by Grant still limits it.
func (c *Conn) SetUnread(unread bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bulkState().credit.unread = unread
	c.moved.Broadcast()
}

// creditPong handles a pong and reports whether the bulk lane had asked for it.
func (c *Conn) creditPong(payload []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bulk == nil {
		return false
	}
	now := time.Now()
	before := c.bulk.credit.acked
	ours := c.bulk.credit.pong(payload, now)
	if c.bulk.credit.acked > before {
		c.bulk.progress = now
		c.moved.Broadcast()
	}
	return ours
}
