package gateway

import (
	"context"
	"sync"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/websocket"
)

// pushFrames is how many bytes of messages are encoded at a time.
const pushFrames = 256 << 10

// feed is what a subscriber follows: a stream, or events.
type feed interface {
	// Position after which it begins.
	Position() int64
	// next waits for a page of at most most messages.
	next(ctx context.Context, most int) (page, error)
	Close()
}

// page is what a feed returns.
type page struct {
	size  int       // messages, at least 1
	bytes int       // about what they take in memory
	text  appendNth // encodes one of them
}

// appendNth appends the nth message of a page as a client gets it.
type appendNth func(dst []byte, n int) []byte

// streamFeed is a stream.
type streamFeed struct {
	engine.Subscription
	stream, name string
}

func (f streamFeed) next(ctx context.Context, most int) (page, error) {
	messages, err := f.Next(ctx, most)
	p := page{size: len(messages), text: func(dst []byte, n int) []byte { return appendMessage(dst, f.stream, f.name, messages[n]) }}
	for i := range messages {
		p.bytes += messageBytes(&messages[i])
	}
	return p, err
}

// subscriber is a subscription of a connection. Its goroutine takes credit and then
// a page of the store, sends it at the pace at which the peer takes it, and only
// then the next: a slow peer costs one page, and one without credit none.
type subscriber struct {
	session *session
	name    string
	credits *credits
	ctx     context.Context
	cancel  context.CancelFunc
	held    int64 // of the budget
	source  feed  // what it follows, once that is open
	end     ending
}

func newSubscriber(s *session, name string, r *request) *subscriber {
	sub := &subscriber{session: s, name: name, credits: newCredits(r.Credits)}
	sub.ctx, sub.cancel = context.WithCancel(s.ctx)
	return sub
}

// run is the subscription's goroutine. It does apart all that needs a deep stack. Whatever of it
// panics, what was opened is closed.
func (sub *subscriber) run(by asked, open func(ctx context.Context) (feed, error)) {
	defer sub.cancel()
	err := sub.apart(func() error { return sub.begin(by, open) })
	if sub.source == nil {
		sub.apart(func() error { sub.refuse(by, err); return nil })
	} else {
		if err == nil {
			err = sub.session.conn.try(sub.follow)
		}
		sub.apart(func() error { sub.finish(err); return nil })
	}
	sub.apart(func() error { sub.answer(); return nil })
}

// begin opens what is followed, and answers if that succeeds.
func (sub *subscriber) begin(by asked, open func(ctx context.Context) (feed, error)) error {
	s := sub.session
	if err := s.conn.memory.Reserve(sub.ctx, budget.Follow, followOverhead); err != nil {
		return err
	}
	sub.held = followOverhead
	source, err := open(sub.ctx)
	if err != nil {
		return err
	}
	sub.source = source
	position := source.Position()
	return s.pushStart(sub.ctx, by, reply{Position: &position})
}

// refuse answers that nothing was opened, for this reason.
func (sub *subscriber) refuse(by asked, err error) {
	s := sub.session
	sub.leave()
	switch {
	case s.conn.broken.Load(): // nothing is answered any more
	case sub.ctx.Err() != nil:
		s.answer(by, refusal(codeEnded))
	default:
		s.fail(by, err, codeUnavailable)
	}
}

// finish ends what has begun, for this reason.
func (sub *subscriber) finish(err error) {
	func() {
		defer sub.leave()
		sub.source.Close()
	}()
	sub.tell(err)
}

// answer answers the request that has ended the subscription, if one has.
func (sub *subscriber) answer() {
	sub.session.conn.memory.Release(budget.Follow, sub.held)
	sub.end.answer(sub.session)
	sub.session.server.flusher.later(sub.session.conn)
}

// apart calls f in a goroutine of its own, with the deep stack that a query or a write takes:
// the stacks of thousands of subscriptions that wait stay small. A panic is returned as an error.
func (sub *subscriber) apart(f func() error) (err error) {
	var calling sync.WaitGroup
	calling.Go(func() { err = sub.session.conn.try(f) })
	calling.Wait()
	return err
}

func (sub *subscriber) leave() {
	sub.session.mu.Lock()
	defer sub.session.mu.Unlock()
	delete(sub.session.subscriptions, sub.name)
}

// tell says that the subscription has ended without being asked to.
func (sub *subscriber) tell(err error) {
	if sub.ctx.Err() != nil || sub.session.conn.ending() {
		return
	}
	with := explained(err, codeUnavailable)
	switch with.Code {
	case engine.CodeNotFound:
		with = refusal(codeStreamGone)
	case codeUnavailable:
		sub.session.server.log.warn("subscription ended", "subscription", sub.name, "error", err)
	}
	with.Subscription = sub.name
	sub.session.pushEnd(with)
}

// follow sends page after page until something ends it. It takes credit first, so
// that it holds nothing while it has none.
func (sub *subscriber) follow() error {
	for {
		most, err := sub.credits.take(sub.ctx, maxBatch)
		if err != nil {
			return err
		}
		if err := sub.session.conn.admit(sub.ctx); err != nil {
			return err
		}
		p, err := sub.source.next(sub.ctx, most)
		if err != nil {
			return err
		}
		sub.credits.giveBack(most - p.size)
		if err := sub.send(p); err != nil {
			return err
		}
	}
}

// send sends a page on the bulk lane, some messages at a time.
func (sub *subscriber) send(p page) error {
	server, memory := sub.session.server, sub.session.conn.memory
	held := int64(p.bytes + min(p.bytes, pushFrames))
	memory.Take(budget.Page, held)
	defer memory.Release(budget.Page, held)
	one, frames := server.buffer(), server.buffer()
	defer func() { server.reuse(one); server.reuse(frames) }()
	for i := range p.size {
		one = p.text(one[:0], i)
		frames = websocket.AppendFrame(frames, websocket.OpText, one)
		if len(frames) < pushFrames && i < p.size-1 {
			continue
		}
		if err := sub.session.push(sub.ctx, frames); err != nil {
			return err
		}
		frames = frames[:0]
	}
	server.delivered.Add(uint64(p.size))
	return nil
}

// ending is the request that ended a subscription or consumption, answered when
// that has happened.
type ending struct {
	mu    sync.Mutex
	asked bool
	by    asked
}

// ask notes the request, unless there was one.
func (e *ending) ask(r asked) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked {
		return false
	}
	e.asked, e.by = true, r
	return true
}

func (e *ending) answer(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked {
		s.ok(e.by, reply{})
	}
	e.asked = true // whoever asks now is too late
}

// credits is how many messages a subscription may still send.
type credits struct {
	unlimited bool
	mu        sync.Mutex
	left      int64
	more      chan struct{} // one slot
}

// newCredits returns credits without a bound if there is no number.
func newCredits(n *int64) *credits {
	c := &credits{unlimited: n == nil, more: make(chan struct{}, 1)}
	if n != nil {
		c.left = *n
	}
	return c
}

// take waits for credit and takes as much as there is, at most n.
func (c *credits) take(ctx context.Context, n int) (int, error) {
	for !c.unlimited {
		c.mu.Lock()
		taken := min(int64(n), c.left)
		c.left -= taken
		c.mu.Unlock()
		if taken > 0 {
			return int(taken), nil
		}
		select {
		case <-c.more:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return n, nil
}

// giveBack returns what was taken and not needed.
func (c *credits) giveBack(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left += int64(n)
}

// add reports whether n makes sense; without a bound there is nothing to add to.
func (c *credits) add(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unlimited || n < 1 || n > maxCredits-c.left {
		return false
	}
	c.left += n
	signal(c.more)
	return true
}

// signal fills a channel's one slot.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
