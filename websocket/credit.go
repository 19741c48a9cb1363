package websocket

import (
	"encoding/binary"
	"errors"
	"time"
)

// ErrCredit is Grant's error for an amount that is out of range.
var ErrCredit = errors.New("websocket: invalid credit")

const (
	// minWindow and maxWindow limit the adaptive window of the bulk lane, in
	// bytes.
	minWindow = 64 << 10
	maxWindow = 4 << 20
	// firstWindow is its initial value: small enough for the kernel buffers of
	// both sides when the peer never reads, so that the Close frame with the
	// reason still fits.
	firstWindow = 64 << 10
	// chunkTarget is how much longer than the fastest round trip a round trip may
	// take to a peer that reassembles chunks; if a quarter of the fastest is
	// more, that counts. It is the time that an answer waits after bulk bytes in
	// the peer's buffer. Half of it cost throughput on one machine, and twice as
	// much gained none (docs/benchmarks/lanes.md). An answer to another peer also
	// waits for the end of a message, so its buffer may add less
	// (fragmentTarget).
	chunkTarget    = 200 * time.Microsecond
	fragmentTarget = 100 * time.Microsecond
	// baseAge is how long a measured fastest round trip is valid: network paths
	// change.
	baseAge = 10 * time.Second
	// maxGrant is the most bytes that may be granted and not used.
	maxGrant = 1 << 30

	// unaskedBytes is how many bytes may be sent before a ping asks whether they have arrived, a quarter of the window if that
	// is less. With a ping after each page of small messages, a server spends a quarter of its time on pongs.
	unaskedBytes = 16 << 10

	creditMark = 'b' // the first byte of a credit ping
	creditSize = 1 + 8
)

// credit is the link credit of the bulk lane: it limits the bytes sent and not
// acknowledged by the peer, since nothing can overtake bytes that are already in the
// peer's buffer. A ping after a chunk carries the offset of the chunk's end; its
// pong, or that of any later ping, acknowledges it. Small chunks share a ping. So every peer gives credit, as
// every peer answers pings. The number of bytes in flight adapts to the delay that it
// causes, as in delay-based congestion control (TCP Vegas, Brakmo and Peterson 1995).
// Guarded by Conn.mu.
type credit struct {
	sent, acked int64 // offsets
	asked       int64 // offset of the last ping
	window      int64 // at most outstanding; 0: no bound
	adapts      bool
	target      time.Duration // chunkTarget or fragmentTarget
	started     bool          // a round trip was too slow once; before that the window doubles every round trip (slow start)
	granted     int64         // offset up to which the peer allows sending, if explicit
	explicit    bool          // the peer gives credit by Grant, not by pongs
	fragments   bool          // a message is being sent in fragments, under the rule with which it began
	next        int64         // bytes granted meanwhile, for the next messages
	unread      bool          // nobody calls Read, so no pong arrives

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

// allows reports whether n more bytes may be sent. Without explicit credit, one
// chunk may always be sent when no ping is on its way: no pong would come.
func (c *credit) allows(n int) bool {
	switch {
	case c.explicit:
		return c.sent+int64(n) <= c.granted
	case c.window == 0 || c.unread:
		return true
	default:
		return len(c.pings) == 0 || c.outstanding()+int64(n) <= c.window
	}
}

// appendPing records that n bytes are about to be sent and appends the ping
// whose pong acknowledges them, if one is needed.
func (c *credit) appendPing(dst []byte, n int, now time.Time) []byte {
	c.sent += int64(n)
	if c.explicit || c.window == 0 || c.sent-c.asked < min(unaskedBytes, c.window/4) {
		return dst
	}
	c.asked = c.sent
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

// adapt changes the window after a pong. A round trip within the target widens it,
// by minWindow for each window acknowledged, and in slow start by the number of
// bytes acknowledged. A slower one narrows it, at most once per round trip, by
// half of the excess share of the round trip time.
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

// Grant adds n bytes to the peer's explicit credit for the bulk lane. The first
// call replaces credit by pongs, from the next message on if one is being sent in
// fragments: a peer sees nothing of such a message before its end, and cannot know
// how much credit it still needs. The error is ErrCredit if n is below 1, or if
// more than 1 GiB would be granted and not used.
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

// adopt switches to explicit credit once the peer has granted some, unless a
// message is being sent in fragments.
func (c *credit) adopt() {
	if c.next > 0 && !c.fragments {
		c.explicit, c.granted, c.next = true, c.sent+c.next, 0
	}
}

// SetUnread(true) says that nobody calls Read until SetUnread(false). No pong arrives
// meanwhile, so the bulk lane does not wait for pongs: it sends as fast as the socket
// takes it. Explicit credit (Grant) still limits it.
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
