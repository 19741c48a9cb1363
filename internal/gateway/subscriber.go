package gateway

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// pushFrames is how many bytes of messages are encoded at a time.
const pushFrames = 256 << 10

// feed is the source of a subscriber: a stream, or events.
type feed interface {
	// Position returns the position after which it begins.
	Position() int64
	// next waits for a page of one to most messages.
	next(ctx context.Context, most int) (page, error)
	Close()
}

// source is what a subscription follows.
type source interface {
	// Position returns the position after which it begins, -1 if it has several.
	Position() int64
	// follow sends what it has, until an error ends it.
	follow() error
	Close()
}

// paged is the source of a subscription that follows a feed.
type paged struct {
	feed
	sub *subscriber
}

func (p paged) follow() error { return p.sub.follow(p.feed) }

// page is some messages of a feed.
type page struct {
	size  int      // messages, at least 1 without a filter
	bytes int      // approximate size in memory
	write writeNth // encodes one of them
	// position returns the position of one of them; nil if nobody asks.
	position func(n int) int64
	// length returns the approximate size in memory of one of them; nil if nobody asks.
	length func(n int) int
	// passed is the position up to which a filter has dropped everything after these messages, 0 if there is none.
	passed int64
}

// writeNth writes the nth message of a page as a client gets it.
type writeNth func(w *wire.Writer, n int)

// streamFeed is the feed of a stream.
type streamFeed struct {
	engine.Subscription
	stream, name string
}

func (f streamFeed) next(ctx context.Context, most int) (page, error) {
	messages, err := f.Next(ctx, most)
	return f.page(messages), err
}

// page is the page of these messages.
func (f streamFeed) page(messages []engine.Message) page {
	p := page{size: len(messages), position: func(n int) int64 { return messages[n].Position }, write: func(w *wire.Writer, n int) { writeMessage(w, f.stream, f.name, &messages[n]) }}
	for i := range messages {
		p.bytes += messageBytes(&messages[i])
	}
	return p
}

// subscriber is a subscription of a connection. Its goroutine takes credit, reads a
// page from the store, and sends it as fast as the peer reads: a slow peer costs the
// memory of one page, and a peer without credit none. For a fast one, the next page is
// read meanwhile (pageReader).
type subscriber struct {
	session *session
	name    string
	// encoding is that of the request.
	encoding wire.Encoding
	with     *websocket.Compression // of its messages; nil without compression
	credits  *credits
	ctx      context.Context
	cancel   context.CancelFunc
	held     int64         // bytes of the memory budget
	source   source        // nil until it is open
	after    int64         // the position of the last message that was read
	shared   *sharedFrames // nil if it shares nothing
	end      ending
	passing  passing

	of     membershipOf      // with a member
	member engine.Membership // guarded by session.mu; nil if it is none

	wants   *request // what it was asked for with
	allowed func(context.Context, *auth.Caller) *problem
	revoked atomic.Pointer[problem] // why the client may not have it any more
}

func newSubscriber(s *session, name string, r *request) *subscriber {
	sub := &subscriber{session: s, name: name, encoding: r.Encoding, with: s.conn.compression(), credits: newCredits(r.Has(wire.FieldCredits), r.Credits)}
	sub.ctx, sub.cancel = context.WithCancel(s.ctx)
	sub.passing = passing{sub: sub, stream: r.Stream}
	sub.wants = &request{wire.Request{Type: "subscribe", Stream: r.Stream, Group: r.Group, Store: r.Store, Query: r.Query, Given: r.Given}}
	sub.allowed = sub.wants.denied
	return sub
}

// shown describes the subscription.
func (sub *subscriber) shown() shownSubscription {
	is := shownSubscription{Subscription: sub.name, Stream: sub.wants.Stream, Group: sub.wants.Group}
	if is.Stream == "" {
		is.Store = storeName(sub.wants.Store)
	}
	return is
}

// revoke ends the subscription because its client may not have it any more.
func (sub *subscriber) revoke(why *problem) {
	sub.revoked.Store(why)
	sub.cancel()
}

// run is the subscription's goroutine. Steps that need a deep stack run in another goroutine
// (apart). The source is closed even after a panic.
func (sub *subscriber) run(by asked, open func(ctx context.Context) (source, error)) {
	defer sub.cancel()
	err := sub.apart(func() error { return sub.begin(by, open) })
	if sub.source == nil {
		sub.apart(func() error { sub.refuse(by, err); return nil })
	} else {
		if err == nil {
			err = sub.session.conn.try(sub.source.follow)
			sub.passing.end()
		}
		sub.apart(func() error { sub.finish(err); return nil })
	}
	sub.apart(func() error { sub.answer(); return nil })
}

// begin opens the source, and answers if that succeeds.
func (sub *subscriber) begin(by asked, open func(ctx context.Context) (source, error)) error {
	s := sub.session
	if err := s.conn.memory.Reserve(sub.ctx, budget.Follow, followOverhead); err != nil {
		return err
	}
	sub.held = followOverhead
	source, err := query(sub.ctx, s.conn.socket, func() (source, error) { return open(sub.ctx) })
	if err != nil {
		return err
	}
	sub.source = source
	with := reply{}
	if position := source.Position(); position >= 0 {
		sub.after, with.Position = position, &position
	}
	return s.pushStart(sub.ctx, by, with)
}

// refuse answers that the subscription could not be opened.
func (sub *subscriber) refuse(by asked, err error) {
	s := sub.session
	sub.leave()
	switch {
	case s.conn.broken.Load(): // nothing more is answered
	case sub.ctx.Err() != nil:
		s.answer(by, refusal(codeEnded))
	default:
		s.fail(by, err, codeUnavailable)
	}
}

// finish closes the source and tells the client the reason.
func (sub *subscriber) finish(err error) {
	func() {
		defer sub.leave()
		sub.source.Close()
	}()
	sub.tell(err)
}

// answer answers the request that ended the subscription, if there was one.
func (sub *subscriber) answer() {
	sub.session.conn.memory.Release(budget.Follow, sub.held)
	sub.end.answer(sub.session)
	sub.session.server.flusher.later(sub.session.conn)
}

// apart calls f in a separate goroutine, whose stack may grow deep for a query or a write: so the
// stacks of thousands of waiting subscriptions stay small. A panic is returned as an error.
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

// tell tells the client that the server has ended the subscription.
func (sub *subscriber) tell(err error) {
	if why := sub.revoked.Load(); why != nil {
		with := why.reply()
		with.Subscription = sub.name
		sub.session.pushEnd(with, sub.encoding)
		return
	}
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
	sub.session.pushEnd(with, sub.encoding)
}

// follow sends page after page until an error ends it.
func (sub *subscriber) follow(from feed) error {
	r := newPageReader(sub, from)
	defer r.stop()
	for {
		p, err := r.next()
		if err != nil {
			return err
		}
		if err := sub.passing.after(unparted, p.passed, func() error { return r.send(&p) }); err != nil {
			return err
		}
	}
}

// send sends a page on the bulk lane.
func (sub *subscriber) send(p *page) error {
	if p.size == 0 { // the filter has dropped all
		return nil
	}
	server, memory := sub.session.server, sub.session.conn.memory
	held := int64(p.bytes + encodedBytes(p.bytes, p.size))
	memory.Take(budget.Page, held)
	defer memory.Release(budget.Page, held)
	sent, err := sub.sendShared(p)
	if err == nil && !sent {
		err = sub.sendAlone(p)
	}
	if err == nil {
		server.delivered.Add(uint64(p.size))
	}
	return err
}

// sendShared sends a page that is encoded once for all who get the same. It reports whether there is such an encoding.
func (sub *subscriber) sendShared(p *page) (bool, error) {
	after := sub.after
	if p.position != nil {
		sub.after = p.position(p.size - 1)
	}
	if sub.shared == nil || p.position == nil || sub.shared.users.Load() < 2 {
		return false, nil
	}
	w := sub.session.server.writer(sub.encoding)
	parts := sub.shared.of(after, p, w)
	sub.session.server.reuse(w)
	for _, frames := range parts {
		if len(frames) == 0 {
			continue
		}
		if err := sub.session.push(sub.ctx, frames); err != nil {
			return true, err
		}
	}
	return parts[0] != nil || parts[1] != nil, nil
}

// sendAlone encodes a page and sends it, about pushFrames bytes at a time.
func (sub *subscriber) sendAlone(p *page) error {
	server := sub.session.server
	w, frames := server.writer(sub.encoding), server.buffer()
	defer func() { server.reuse(w); server.reuseBuffer(frames) }()
	for i := range p.size {
		w.Buf = w.Buf[:0]
		p.write(w, i)
		*frames = sub.with.AppendFrame(*frames, opcode(sub.encoding), w.Buf)
		if len(*frames) < pushFrames && i < p.size-1 {
			continue
		}
		if err := sub.session.push(sub.ctx, *frames); err != nil {
			return err
		}
		*frames = (*frames)[:0]
	}
	return nil
}

// ending is the request that ends a subscription or consumption. It is answered
// after the end.
type ending struct {
	mu    sync.Mutex
	asked bool
	by    asked
}

// ask records the request, and reports whether it is the first.
func (e *ending) ask(r asked) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked {
		return false
	}
	e.asked, e.by = true, r
	return true
}

// begun reports whether the client has asked for the end.
func (e *ending) begun() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked
}

func (e *ending) answer(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked {
		s.ok(e.by, reply{})
	}
	e.asked = true // later requests are refused
}

// credits is how many messages a subscription may still send.
type credits struct {
	unlimited bool
	mu        sync.Mutex
	left      int64
	more      chan struct{} // one slot
}

// newCredits returns n credits, or unlimited ones.
func newCredits(limited bool, n int64) *credits {
	return &credits{unlimited: !limited, left: n, more: make(chan struct{}, 1)}
}

// take waits for credit and takes all of it, at most n.
func (c *credits) take(ctx context.Context, n int) (int, error) {
	for !c.unlimited {
		if taken := c.some(n); taken > 0 {
			return taken, nil
		}
		select {
		case <-c.more:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return n, nil
}

// some takes all credit, at most n, without waiting.
func (c *credits) some(n int) int {
	if c.unlimited {
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := min(int64(n), c.left)
	c.left -= taken
	return int(taken)
}

// giveBack returns credit that was not used.
func (c *credits) giveBack(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left += int64(n)
}

// add adds n credits. It returns false if n is out of range, or the credits are
// unlimited.
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
