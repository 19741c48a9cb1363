package limits

import "time"

// overdue is how long a client may send more than it may, without a pause, before its connection is ended.
const overdue = 3 * time.Second

// Meter measures what one connection sends, against its own rate and that of its user. A nil *Meter has no limit. Only one goroutine may use it.
type Meter struct {
	registry  *Registry
	own, user *bucket

	since time.Time     // the first refusal after the last pause; zero if there was none
	last  time.Time     // the message before, if since is set
	told  time.Duration // how long it was told to wait: such a pause is one
	taken bool          // something was allowed after the last refusal
}

// Meter returns the meter of a connection, with the rate of its present user; nil if there are no rates. A connection keeps its own rate when its user changes.
func (c *Conn) Meter() *Meter {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.meter == nil {
		own := newBucket(r.cfg.RequestRate, r.cfg.ByteRate, r.cfg.MaxMessage)
		if own == nil {
			return nil
		}
		c.meter = &Meter{registry: r, own: own}
	}
	if c.meter.user = nil; c.at.user != "" && c.counted && !c.closed {
		c.meter.user = r.user(c.at.user).bucket
	}
	return c.meter
}

// Bytes counts a message of n bytes that has arrived, or returns after how long it would be allowed.
func (m *Meter) Bytes(now time.Time, n int) (wait time.Duration, ok bool) {
	if m == nil {
		return 0, true
	}
	if !m.since.IsZero() {
		if now.Sub(m.last) >= m.told {
			m.since = time.Time{}
		}
		m.last = now
	}
	if wait, ok = m.own.takeBytes(now, n); ok {
		wait, ok = m.user.takeBytes(now, n)
	}
	return wait, ok
}

// Request counts a request, or returns after how long it would be allowed.
func (m *Meter) Request(now time.Time) (wait time.Duration, ok bool) {
	if m == nil {
		return 0, true
	}
	if wait, ok = m.own.takeRequest(now); ok {
		wait, ok = m.user.takeRequest(now)
	}
	m.taken = m.taken || ok
	return wait, ok
}

// Owe counts requests and bytes that are let through in any case, and returns after how long they would have been allowed.
func (m *Meter) Owe(now time.Time, requests, bytes int) (wait time.Duration) {
	if m == nil {
		return 0
	}
	return max(m.own.owe(now, requests, bytes), m.user.owe(now, requests, bytes))
}

// Refused is told of a message that was over the rate, and after how long it would be allowed. It reports whether the client has gone on like that
// for too long.
func (m *Meter) Refused(now time.Time, wait time.Duration) (tooLong bool) {
	m.registry.limited.Add(1)
	switch {
	case m.since.IsZero():
		m.since, m.last, m.told = now, now, wait
	case m.taken:
		m.told = wait
	}
	m.taken = false
	return now.Sub(m.since) >= overdue
}

// Take counts an HTTP request and its bytes for its user, or returns after how long it would be allowed.
func (q *Request) Take(now time.Time, bytes int) (wait time.Duration, ok bool) {
	b := q.bucket()
	if wait, ok = b.takeBytes(now, bytes); ok {
		wait, ok = b.takeRequest(now)
	}
	if !ok {
		q.registry.limited.Add(1)
	}
	return wait, ok
}

// Owe counts bytes of an HTTP request that have arrived already.
func (q *Request) Owe(now time.Time, bytes int) { q.bucket().owe(now, 0, bytes) }

func (q *Request) bucket() *bucket {
	r := q.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.users[q.at.user]; u != nil {
		return u.bucket
	}
	return nil
}
