package gateway

import (
	"bytes"
	"context"
	"math"
	"net/http"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/websocket"
)

// settles reports whether a message of that type only settles or ends something. It is let through when others are not: refusing it would
// keep what it ends.
func settles(kind string) bool {
	switch kind {
	case "begin", "ack", "nack", "extend", "unsubscribe", "cancel", "leave", "pong", "credit":
		return true
	}
	return false
}

// maxSettling is the largest message that is let through because it settles something, in bytes. Larger ones are refused like all others.
const maxSettling = 64 << 10

// overRate counts a message of so many bytes over the rate, and ends the connection if its client goes on like that.
func (c *connection) overRate(now time.Time, size int, wait time.Duration) reply {
	if c.meter.Refused(now, size, wait) {
		c.tooMuch()
	}
	return later(codeRateLimited, wait)
}

func (c *connection) tooMuch() {
	if c.flooded {
		return
	}
	c.flooded = true
	c.owner.limits.Log().Warn(c.address, "a connection was closed: it sends more than it may")
	c.endWith(statusTooMany, "sends more than it may")
}

// tooManyBytes refuses a message over the rate of bytes, without decoding it.
func (s *session) tooManyBytes(m websocket.Message, now time.Time) bool {
	wait, ok := s.conn.meter.Fits(now, len(m.Payload))
	if ok {
		return false
	}
	var r request
	identifyInto(&s.decoder, m.Payload, s.encodingOf(m.Op), &r)
	if settles(r.Type) && len(m.Payload) <= maxSettling { // tooManyRequests counts it
		return false
	}
	by := r.asked()
	by.ID = bytes.Clone(by.ID)
	s.limited(by, now, wait)
	return true
}

// tooManyRequests counts a message of s.size bytes, or refuses it if it is over a rate.
func (s *session) tooManyRequests(r asked, now time.Time) bool {
	if s.conn.meter == nil {
		return false
	}
	if settles(r.Type) && s.size <= maxSettling {
		s.conn.meter.Settle(now, s.size)
		return false
	}
	wait, ok := s.conn.meter.Take(now, s.size)
	if !ok {
		s.limited(r, now, wait)
	}
	return !ok
}

func (s *session) limited(r asked, now time.Time, wait time.Duration) {
	s.server.ignored.Add(1)
	s.answer(r, s.conn.overRate(now, s.size, wait))
}

// limited refuses a message over the rate. p.mu is held.
func (p *participant) limited(m websocket.Message, now time.Time) bool {
	meter, size := p.conn.meter, len(m.Payload)
	if meter.Waits() && size <= maxSettling && settles(identify(m.Payload).Type) {
		meter.Settle(now, size)
		return false
	}
	wait, ok := meter.Take(now, size)
	if ok {
		return false
	}
	if size <= maxSettling && settles(identify(m.Payload).Type) {
		meter.Settle(now, size)
		return false
	}
	p.server.ignored.Add(1)
	with := p.conn.overRate(now, size, wait)
	p.answer(chatMessage{ID: identifyChat(trimSpace(m.Payload))}, codeRateLimited, map[string]any{"retry_after_ms": with.RetryAfterMS})
	return true
}

// handledTogether is how many messages of one read are handled before other connections get the processor: a read may have 10,000 of them.
const handledTogether = 32

// rest is called after a few messages of a read. If they are as many as may be handled together, other connections get the processor. If the server has
// had to do too much that takes nothing from the rate, nothing is read for a while. It returns the time after that.
func (c *connection) rest(now time.Time, handled int) time.Time {
	if handled >= handledTogether {
		runtime.Gosched()
	}
	until := c.meter.Rests()
	if !now.Before(until) {
		return now
	}
	c.Flush()
	c.SetUnread(true) // nobody reads, so no answer may wait for a pong
	c.sleep(until)
	c.SetUnread(false)
	after := time.Now()
	// With the time in which the messages were handled: nothing was read then, either. Without it, floods are ended sooner, come back at once with fresh
	// bursts, and cause twenty times as many refusals.
	c.meter.Rested(after.Sub(now))
	return after
}

// sleep waits until a time, or until the connection is ending.
func (c *connection) sleep(until time.Time) {
	for !c.ending() {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		time.Sleep(min(left, paceSlice))
	}
}

// pinged counts the Pings of a peer, and its Pongs. Before a token there are few.
func (c *connection) pinged(size int) {
	if id := &c.identity; id.policy != nil && id.caller.Load() == nil {
		if id.earlyPings++; id.earlyPings > maxEarlyPings {
			id.close(statusTokenOver, "send a token first")
		}
		return
	}
	if c.meter == nil {
		return
	}
	now := time.Now()
	if c.meter.Control(now, size) {
		c.tooMuch()
	}
	if now.Before(c.meter.Rests()) {
		c.rest(now, 1)
	}
}

// paceSlice is after how long at most a connection that sends too fast is looked at again: it may be ending.
const paceSlice = 100 * time.Millisecond

// pace waits until messages that have been read are within the rate: meanwhile nothing is read, and the peer cannot send more.
// It is for endpoints without answers.
func (c *connection) pace(now time.Time, messages []websocket.Message) {
	if c.meter == nil || len(messages) == 0 {
		return
	}
	bytes := 0
	for _, m := range messages {
		bytes += len(m.Payload)
	}
	c.sleep(now.Add(c.meter.Owe(now, len(messages), bytes)))
}

// longestRest is how long an HTTP request that is refused, or only settles something, waits at most.
const longestRest = time.Second

// countKey is the key of the *limits.Request in a request's context.
type countKey struct{}

// limited refuses an HTTP request that is one too many, or over the rate of its client. Otherwise end is called after it. It is for all paths: a path that
// there is not costs the server as much as an object that there is not.
func (s *Server) limited(w http.ResponseWriter, r *http.Request) (counted *http.Request, end func(), refused bool) {
	caller, _ := callerOf(r)
	client := s.client(r, caller)
	count, why := s.limits.Begin(client)
	if why != limits.None {
		s.tooMany(w, r, why, client.Address)
		return nil, nil, true
	}
	counted = r.WithContext(context.WithValue(r.Context(), countKey{}, count))
	size, now := r.ContentLength, time.Now()
	if size < 0 {
		size = 1 // it is counted when it has come, and must not come while the client owes bytes
	}
	if r.ContentLength >= 0 && size <= maxSettling && s.settles(r) {
		time.Sleep(min(count.Settle(now, int(size)), longestRest))
		return counted, count.End, false
	}
	wait, ok := count.Take(now, int(min(size, math.MaxInt32)))
	if !ok {
		time.Sleep(min(count.Refused(now), longestRest))
		count.End()
		dropBody(w, r)
		writeError(w, later(codeRateLimited, wait))
	}
	return counted, count.End, !ok
}

// failedHandshake counts a handshake that has failed as a refusal. A connection may send the next one only when it returns.
func (s *Server) failedHandshake(client limits.Client) {
	if count, why := s.limits.Begin(client); why == limits.None {
		time.Sleep(min(count.Refused(time.Now()), longestRest))
		count.End()
	}
}

// settles reports whether an HTTP request only settles or ends something. The routes decide it: an object may have the name of what settles.
func (s *Server) settles(r *http.Request) bool {
	at := r.URL.EscapedPath()
	if s.api == nil || !settles(path.Base(at)) || at != path.Clean(at) { // another spelling is redirected
		return false
	}
	_, pattern := s.api.mux.Handler(r)
	return settles(path.Base(pattern))
}

// isHandshake reports whether a request wants to be a WebSocket: that counts as a connection, not as a request.
func (s *Server) isHandshake(r *http.Request) bool {
	if r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	switch r.URL.Path {
	case "/ws", "/ws/chat", "/ws/ingest", "/ws/lanes":
		return true
	}
	return r.URL.Path == "/" && s.cfg.Only == Echo
}
