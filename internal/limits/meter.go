package limits

import "time"

// Meter measures what one connection sends, against its own rate and that of its user. A nil *Meter has no limit. Only one goroutine may use it.
type Meter struct {
	registry  *Registry
	own, user *bucket

	messages, controls patience
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

// Bytes counts a message of n bytes that has arrived, or returns after how long it would be allowed. It says nothing about the patience of the client:
// messages that settle or end something need not wait.
func (m *Meter) Bytes(now time.Time, n int) (wait time.Duration, ok bool) {
	if m == nil {
		return 0, true
	}
	return m.take(now, 0, n)
}

// Request counts a request, or returns after how long it would be allowed.
func (m *Meter) Request(now time.Time) (wait time.Duration, ok bool) {
	if m == nil {
		return 0, true
	}
	m.messages.sent(now)
	wait, ok = m.take(now, 1, 0)
	m.messages.taken = m.messages.taken || ok
	return wait, ok
}

func (m *Meter) take(now time.Time, requests, bytes int) (wait time.Duration, ok bool) {
	if wait, ok = m.own.take(now, requests, bytes); ok {
		wait, ok = m.user.take(now, requests, bytes)
	}
	return wait, ok
}

// Control counts a Ping or Pong of n bytes. It reports whether the client has sent too many of them for too long. They say nothing about its patience
// with messages: a client that waits still answers Pings.
func (m *Meter) Control(now time.Time, n int) (tooLong bool) {
	m.controls.sent(now)
	wait, ok := m.take(now, 1, n)
	if ok {
		m.controls.taken = true
		return false
	}
	m.registry.limited.Add(1)
	return m.controls.refused(now, min(wait, controlPause))
}

// Waits reports whether the client was told to wait, and is not known to have done so.
func (m *Meter) Waits() bool { return m != nil && !m.messages.since.IsZero() }

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
	m.messages.sent(now)
	return m.messages.refused(now, wait)
}

// Take counts an HTTP request and its bytes for its user, or returns after how long it would be allowed.
func (q *Request) Take(now time.Time, bytes int) (wait time.Duration, ok bool) {
	wait, ok = q.bucket().take(now, 1, bytes)
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
