package bench

import "time"

// joinMargin is how long after the confirmation of a join a chat is first
// expected: servers whose rooms are joined through a queue answer before.
func (c ChatConfig) joinMargin() time.Duration {
	if c.moving() {
		return min(250*time.Millisecond, c.Session/8)
	}
	return 250 * time.Millisecond
}

// expectedUntil is up to when a chat must have been said for a membership that
// ends now to have had it: it would have had a margin to arrive. Of memberships
// that last, all wait for what was said in the hold, and for nothing later.
func (c *chatRun) expectedUntil(now time.Duration) time.Duration {
	until := now - c.cfg.leaveMargin()
	if c.phase > holding && !c.cfg.moving() {
		return min(until, c.result.HoldEnd.At)
	}
	return until
}

// leaveMargin is how long before its end a membership expects a chat last: it
// would have had that much time to arrive.
func (c ChatConfig) leaveMargin() time.Duration {
	if c.moving() {
		return min(time.Second, c.Session/2)
	}
	return time.Second
}

// chatHistory is every chat said, by number: when it was due.
type chatHistory struct {
	due  []time.Duration
	sent []time.Duration
	by   []uint16 // client
}

func (h *chatHistory) add(client int, due, sent time.Duration) (n int) {
	h.due = append(h.due, due)
	h.sent = append(h.sent, sent)
	h.by = append(h.by, uint16(client))
	return len(h.due) - 1
}

// since returns the number of the first chat said at or after a time.
func (h *chatHistory) since(at time.Duration) int {
	lo, hi := 0, len(h.sent)
	for lo < hi {
		if mid := (lo + hi) / 2; h.sent[mid] < at {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// chatCheck looks at all that arrives at one membership.
type chatCheck struct {
	client int
	base   int // no chat before this one can be expected
	seen   []uint64
	last   []int32 // newest chat of each client, plus one
	joined time.Duration
	Deliveries
}

func newChatCheck(client, clients, base int) *chatCheck {
	return &chatCheck{client: client, base: base, last: make([]int32, clients), joined: -1}
}

// arrived notes chat n of a client, and reports whether it is the first time.
func (c *chatCheck) arrived(client, n int) bool {
	if n < c.base { // said before this membership was asked for
		return false
	}
	at := n - c.base
	for len(c.seen) <= at/64 {
		c.seen = append(c.seen, 0)
	}
	bit := uint64(1) << (at % 64)
	if c.seen[at/64]&bit != 0 {
		c.Duplicated++
		return false
	}
	c.seen[at/64] |= bit
	if int32(n+1) < c.last[client] {
		c.Reordered++
		return true
	}
	c.last[client] = int32(n + 1)
	return true
}

// finish compares with what was said: the chats of the others from a margin
// after the join up to a time.
func (c *chatCheck) finish(h *chatHistory, margin, until time.Duration) Deliveries {
	if c.joined < 0 {
		return c.Deliveries
	}
	end := h.since(until)
	for n := max(h.since(c.joined+margin), c.base); n < end; n++ {
		if int(h.by[n]) == c.client {
			continue
		}
		c.Expected++
		if at := n - c.base; at/64 < len(c.seen) && c.seen[at/64]&(1<<(at%64)) != 0 {
			c.Received++
		}
	}
	return c.Deliveries
}
