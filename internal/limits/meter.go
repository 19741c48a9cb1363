package limits

import "time"

// Meter measures what one connection sends, against its own rate and that of its user. A nil *Meter has no limit. Only one goroutine may use it.
type Meter struct {
	registry       *Registry
	own, user      *bucket
	free, userFree *bucket
	rests          time.Time // until when nothing is read, because of what is free

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
		c.meter = &Meter{registry: r, own: own, free: newBucket(freeRate, r.cfg.ByteRate, r.cfg.MaxMessage)}
	}
	c.meter.user, c.meter.userFree = nil, nil
	if c.at.user != "" && c.counted && !c.closed {
		u := r.user(c.at.user)
		c.meter.user, c.meter.userFree = u.bucket, u.free
	}
	return c.meter
}

// Fits reports whether a message of n bytes, of which the type is not known yet, is within the rate of bytes, or after how long it would be. It takes nothing.
func (m *Meter) Fits(now time.Time, n int) (wait time.Duration, ok bool) {
	if m == nil {
		return 0, true
	}
	m.lock()
	defer m.unlock()
	wait = m.wait(now, 0, n)
	return wait, wait == 0
}

// Take counts a message of n bytes that its sender could have left for later, or returns after how long it would be allowed. Then it takes nothing.
func (m *Meter) Take(now time.Time, n int) (wait time.Duration, ok bool) {
	if m == nil {
		return 0, true
	}
	m.messages.sent(now)
	wait, ok = m.take(now, n)
	m.messages.taken = m.messages.taken || ok
	return wait, ok
}

// Control counts a Ping or Pong of n bytes. It reports whether the client has sent too many of them for too long. They say nothing about its patience
// with messages: a client that waits still answers Pings.
func (m *Meter) Control(now time.Time, n int) (tooLong bool) {
	if m == nil {
		return false
	}
	m.controls.sent(now)
	wait, ok := m.take(now, n)
	if ok {
		m.controls.taken = true
		return false
	}
	m.refuse(now, n)
	return m.controls.refused(now, min(wait, controlPause))
}

// Owe counts requests and bytes that are let through in any case, and returns after how long they would have been allowed. It says nothing about the
// patience of the client: what settles or ends something need not wait.
func (m *Meter) Owe(now time.Time, requests, bytes int) (wait time.Duration) {
	if m == nil {
		return 0
	}
	return max(m.own.owe(now, requests, bytes), m.user.owe(now, requests, bytes))
}

// Refused counts a message of n bytes that was over the rate, and after how long it would be allowed. It reports whether the client has gone on
// like that for too long.
func (m *Meter) Refused(now time.Time, n int, wait time.Duration) (tooLong bool) {
	m.refuse(now, n)
	m.messages.sent(now) // Fits does not say so
	return m.messages.refused(now, wait)
}

// refuse counts a refusal of n bytes.
func (m *Meter) refuse(now time.Time, n int) {
	m.registry.limited.Add(1)
	m.spendFree(now, refusalCost, n)
}

// Settle counts a message of n bytes that only settles or ends something. It is let through in any case, and says nothing about the patience of the client.
func (m *Meter) Settle(now time.Time, n int) {
	if m == nil {
		return
	}
	m.spendFree(now, 1, 0)
	m.rest(now.Add(max(m.own.oweAtMost(now, 0, n), m.user.oweAtMost(now, 0, n))))
}

func (m *Meter) spendFree(now time.Time, cost, bytes int) {
	m.rest(now.Add(max(m.free.oweAtMost(now, cost, bytes), m.userFree.oweAtMost(now, cost, bytes))))
}

// rest says that nothing should be read until then, or later.
func (m *Meter) rest(until time.Time) {
	if m.rests.Before(until) {
		m.rests = until
	}
}

// Rests returns until when the server should read nothing from the connection, because its client has caused too much that takes nothing from its rate. The zero Time is always.
func (m *Meter) Rests() time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.rests
}

// Rested says that the server has read nothing for a time. What it reads then may have been sent before, so the time is no pause of the client, and no
// impatience.
func (m *Meter) Rested(d time.Duration) {
	m.messages.wait(d)
	m.controls.wait(d)
}

// Waits reports whether the client was told to wait, and is not known to have done so. Meanwhile Take must not be asked about what need not wait.
func (m *Meter) Waits() bool { return m != nil && !m.messages.since.IsZero() }

// take takes one request and n bytes from both buckets, or from neither.
func (m *Meter) take(now time.Time, n int) (wait time.Duration, ok bool) {
	m.lock()
	defer m.unlock()
	if wait = m.wait(now, 1, n); wait > 0 {
		return wait, false
	}
	m.own.spend(1, n)
	m.user.spend(1, n)
	return 0, true
}

// wait returns after how long both buckets allow a message. Both locks are held.
func (m *Meter) wait(now time.Time, requests, bytes int) time.Duration {
	return max(m.own.wait(now, requests, bytes), m.user.wait(now, requests, bytes))
}

// lock takes the locks of both buckets, always in this order. Nobody but this goroutine takes the first one.
func (m *Meter) lock() {
	m.own.lock()
	m.user.lock()
}

func (m *Meter) unlock() {
	m.user.unlock()
	m.own.unlock()
}

// Take counts an HTTP request and its bytes for its user, or returns after how long it would be allowed. Then it takes nothing.
func (q *Request) Take(now time.Time, bytes int) (wait time.Duration, ok bool) {
	return q.bucket().take(now, 1, bytes)
}

// Refused is told of an HTTP request that was over the rate. It returns how long the answer should wait, because the user has caused too many refusals.
func (q *Request) Refused(now time.Time) (rest time.Duration) {
	q.registry.limited.Add(1)
	return q.spendFree(now)
}

// Settle counts an HTTP request that only settles or ends something, with its bytes. It returns how long it should wait.
func (q *Request) Settle(now time.Time, bytes int) (rest time.Duration) {
	return max(q.bucket().oweAtMost(now, 0, bytes), q.spendFree(now))
}

// spendFree counts a request that takes nothing from the rate: it costs as much as a refusal, whatever it is.
func (q *Request) spendFree(now time.Time) (rest time.Duration) {
	if u := q.user(); u != nil {
		rest = u.free.oweAtMost(now, refusalCost, 0)
	}
	return rest
}

// Owe counts bytes of an HTTP request that have arrived already.
func (q *Request) Owe(now time.Time, bytes int) { q.bucket().owe(now, 0, bytes) }

func (q *Request) bucket() *bucket {
	if u := q.user(); u != nil {
		return u.bucket
	}
	return nil
}

// user returns the user of a request in progress; nil if it has none.
func (q *Request) user() *user {
	r := q.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.users[q.at.user]
}
