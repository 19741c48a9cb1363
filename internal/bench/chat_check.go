package bench

import "time"

// joinMargin is the time after the confirmation of a join from which chats are
// expected: a server that joins rooms through a queue may confirm before the
// join takes effect.
func (c ChatConfig) joinMargin() time.Duration {
	if c.moving() {
		return min(250*time.Millisecond, c.Session/8)
	}
	return 250 * time.Millisecond
}

// expectedUntil returns the time before which a chat must have been sent so
// that a membership that ends now should have received it: the chat had the
// margin to arrive. Memberships that last expect the chats of the hold, and no
// later ones.
func (c *chatRun) expectedUntil(now time.Duration) time.Duration {
	until := now - c.cfg.leaveMargin()
	if c.phase > holding && !c.cfg.moving() {
		return min(until, c.result.HoldEnd.At)
	}
	return until
}

// leaveMargin is the time before the end of a membership from which chats are
// no longer expected: they might not arrive in time.
func (c ChatConfig) leaveMargin() time.Duration {
	if c.moving() {
		return min(time.Second, c.Session/2)
	}
	return time.Second
}

// chatHistory has the due time and the client of every chat sent, by number.
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

// chatCheck checks everything that one membership receives.
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

// arrived notes that chat n of a client has arrived, and reports whether it is
// new.
func (c *chatCheck) arrived(client, n int) bool {
	if n < c.base { // sent before this membership was requested
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

// finish compares the received chats with those sent: the chats of other
// clients, from the margin after the join until the given time.
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
