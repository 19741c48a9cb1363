package tidewire

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// repeat says what happens to a request whose connection has ended.
type repeat int

const (
	again  repeat = iota // it is sent on the next connection
	once                 // its outcome is unknown
	leased               // it is about deliveries, whose leases are lost
	own                  // it belongs to the connection, and what began it begins it anew
)

// request is one request of the program, or of the library itself.
type request struct {
	order    uint64 // of the call
	id       uint64 // on the wire
	sequence int64  // with which it can be repeated; -1 before it has one
	numbered bool   // it gets a sequence
	repeat   repeat
	link     *link // the one that it belongs to; nil if it is sent on any
	size     int
	counted  bool // it counts against the bounds
	sent     bool // at least once, or about to be
	written  bool // at least once
	lost     bool // it may have had an effect, since a connection has ended before its answer, or the server does not know
	reads    bool // it has no effect
	finished bool
	attempts int
	timer    *time.Timer
	members  []*request                     // of a batch
	batch    *request                       // that has it as a member
	open     int                            // members that are not finished
	resting  *time.Timer                    // until it is sent again
	alone    bool                           // it has harmed a batch, or may have
	send     *sending                       // of publish and enqueue
	kind     string                         // of other requests
	room     string                         // of a chat: it waits while the client joins that room
	encode   func(w *writer, r *request)    // their fields
	limit    int                            // of a page of events
	asked    int                            // limit as it is sent
	asText   bool                           // JSON, also on a connection with CBOR
	check    func(in *incoming) error       // of the answer: what it must have
	decode   func(text []byte) (any, error) // of the answer, as JSON
	then     func(a *answer, err error)     // called without the lock; must not block

	done   chan struct{}
	answer answer
	err    error
	wire   *wireError // as the server has sent it
}

// requests are sorted by order.
type requests []*request

func (q *requests) insert(r *request) {
	i, _ := slices.BinarySearchFunc(*q, r.order, func(r *request, order uint64) int { return cmp.Compare(r.order, order) })
	*q = slices.Insert(*q, i, r)
}

// start takes a request of the program. It does not block.
func (c *Client) start(r *request, timeout time.Duration) {
	r.done = make(chan struct{})
	r.sequence = -1
	c.mu.Lock()
	defer c.unlock()
	if c.closing {
		c.finish(r, closedError(c.cause))
		return
	}
	c.begin()
	if c.tooBig(r) {
		return
	}
	c.order++
	r.order = c.order
	r.timer = time.AfterFunc(cmp.Or(timeout, c.opts.Timeout), func() { c.expire(r) })
	if len(c.waiting) > 0 || !c.room(r) {
		c.waiting = append(c.waiting, r)
		return
	}
	c.admit(r)
}

// tooBig fails a request whose payload is larger than the server takes. The caller holds the lock.
func (c *Client) tooBig(r *request) bool {
	if c.limits.MessageBytes == 0 || r.size <= c.limits.MessageBytes {
		return false
	}
	c.finish(r, local("too_big", "the message has %d bytes, and the server takes %d: send less, or let an operator raise --max-message", r.size, c.limits.MessageBytes))
	return true
}

// room reports whether r may wait for an answer now. The caller holds the lock.
func (c *Client) room(r *request) bool {
	return c.pending == 0 || c.pending < c.opts.MaxPending && c.bytes+r.size <= c.opts.MaxPendingBytes
}

// admit lets r be sent. The caller holds the lock.
func (c *Client) admit(r *request) {
	r.counted = true
	c.pending++
	c.bytes += r.size
	c.ready = append(c.ready, r)
	c.wake()
}

func (c *Client) wake() {
	if c.link != nil {
		c.link.signal()
	}
}

// startOn sends a request of the library on l, before those of the program. The caller holds the lock.
func (c *Client) startOn(l *link, r *request) {
	r.link, r.sequence = l, -1
	r.done = make(chan struct{})
	if c.closed {
		c.finish(r, lostLink(r))
		return
	}
	if r.repeat == leased { // the client waits for these when it closes
		r.counted = true
		c.pending++
	}
	l.first = append(l.first, r)
	l.signal()
}

// finish ends a request with what it has got. The caller holds the lock.
func (c *Client) finish(r *request, err error) {
	if r.finished {
		return
	}
	r.finished, r.err = true, err
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.counted {
		c.pending--
		c.bytes -= r.size
		c.admitWaiting()
	}
	if c.sent[r.id] == r {
		delete(c.sent, r.id)
	}
	if r.resting != nil {
		r.resting.Stop()
		delete(c.resting, r)
	}
	for _, m := range r.members {
		c.finish(m, err)
	}
	if b := r.batch; b != nil {
		if b.open--; b.open == 0 {
			c.finish(b, err)
		}
	}
	close(r.done)
	if r.then != nil {
		c.after = append(c.after, func() { r.then(&r.answer, err) })
	}
}

func (c *Client) admitWaiting() {
	for len(c.waiting) > 0 && (c.waiting[0].finished || c.room(c.waiting[0])) {
		r := c.waiting[0]
		c.waiting = c.waiting[1:]
		if !r.finished {
			c.admit(r)
		}
	}
	if c.pending == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

// expire fails a request whose time is over.
func (c *Client) expire(r *request) {
	c.mu.Lock()
	defer c.unlock()
	if r.finished {
		return
	}
	defer c.forget()
	switch {
	case c.refusedEachTime(r):
		c.finish(r, r.err)
	case r.sent && r.repeat != leased:
		c.finish(r, unknown("no answer has come in time", r.err))
	default:
		c.finish(r, c.timeout("it could not be sent in time: nothing has happened"))
	}
}

// refusedEachTime reports whether r waits after errors that say that it has had no effect. The last one is its error. The caller holds the lock.
func (c *Client) refusedEachTime(r *request) bool {
	return r.err != nil && !r.lost && c.sent[r.id] != r
}

// happened reports whether r may have had an effect, although it has no answer. The caller holds the lock.
func (c *Client) happened(r *request) bool {
	return r.sent && !r.reads && !c.refusedEachTime(r)
}

// forget drops requests that have ended from those that wait, if they are many. The caller holds the lock.
func (c *Client) forget() {
	c.spent++
	if c.spent < 64 || c.spent < (len(c.ready)+len(c.waiting))/2 {
		return
	}
	c.spent = 0
	over := func(r *request) bool { return r.finished }
	c.ready, c.waiting = slices.DeleteFunc(c.ready, over), slices.DeleteFunc(c.waiting, over)
}

// unknown says that something may have happened.
func unknown(why string, cause error) error {
	return &Error{Code: "outcome_unknown", Message: why + ": it may have happened. Check whether it has", cause: cause}
}

// cancel fails a request whose context has ended.
func (c *Client) cancel(r *request, cause error) {
	c.mu.Lock()
	defer c.unlock()
	defer c.forget()
	switch {
	case r.finished:
	case c.happened(r):
		c.finish(r, unknown("the context has ended before the answer came", cause))
	default:
		c.finish(r, &Error{Code: "cancelled", Message: "the context has ended", cause: cause})
	}
}

// wait waits for the answer.
func (c *Client) wait(ctx context.Context, r *request) error {
	select {
	case <-r.done:
	case <-ctx.Done():
		c.cancel(r, context.Cause(ctx))
		<-r.done
	}
	return r.err
}

// do sends a request of the program, and waits for its answer.
func (c *Client) do(ctx context.Context, r *request, timeout time.Duration) error {
	if err := ctx.Err(); err != nil {
		return &Error{Code: "cancelled", Message: "the context has ended", cause: context.Cause(ctx)}
	}
	c.start(r, timeout)
	return c.wait(ctx, r)
}

// takeBack prepares what l has not answered for the next connection. The caller holds the lock.
func (c *Client) takeBack(l *link) {
	for _, r := range l.first {
		c.finish(r, lostLink(r))
	}
	l.first = nil
	for id, r := range c.sent {
		delete(c.sent, id)
		if r.finished {
			continue
		}
		switch r.repeat {
		case again:
			r.lost = true
			if len(r.members) == 0 || slices.ContainsFunc(r.members, func(m *request) bool { return !m.finished }) {
				c.ready.insert(r)
			}
		case once:
			c.finish(r, unknown("the connection has ended before the answer came", nil))
		default:
			c.finish(r, lostLink(r))
		}
	}
	for _, r := range c.ready {
		if r.link == l {
			c.finish(r, lostLink(r))
		}
	}
}

func lostLink(r *request) error {
	if r.repeat == own {
		return errDetached
	}
	return &LeaseLostError{Err: &Error{Code: "lease_lost", Message: "the connection has ended: the messages are delivered again"}}
}

// errDetached ends a request of the library whose connection has ended.
var errDetached = local("detached", "the connection has ended")

// retryable codes may come without the flag.
var retried = map[string]bool{"outcome_unknown": true, "token_expired": true}

// refuse takes the error to a request. The caller holds the lock.
func (c *Client) refuse(r *request, w *wireError) {
	e := w.base(requestID(r.id))
	if r.repeat == again && (w.Retryable || retried[w.Code] && (r.numbered || w.Code == "token_expired")) && !c.closed {
		r.err = e
		r.lost = r.lost || w.Code == "outcome_unknown"
		wait := e.RetryAfter
		if wait == 0 {
			wait = pause(r.attempts)
		}
		r.attempts++
		c.resting[r] = struct{}{}
		r.resting = time.AfterFunc(wait, func() { c.sendAgain(r) })
		return
	}
	if len(r.members) > 0 && w.Code != "sequence_too_old" {
		c.split(r)
		return
	}
	r.wire = w
	c.finish(r, w.typed(e.RequestID))
}

// sendAgain sends a request after a pause.
func (c *Client) sendAgain(r *request) {
	c.mu.Lock()
	defer c.unlock()
	if !r.finished {
		delete(c.resting, r)
		r.resting = nil
		c.ready.insert(r)
		c.wake()
	}
}
