package gateway

import (
	"context"
	"sync"

	"github.com/tidewire/tidewire/websocket"
)

// pushFrames is how many bytes of messages are encoded at a time.
const pushFrames = 256 << 10

// feed is what a subscriber follows: a stream, or events.
type feed interface {
	// Position behind which it begins.
	Position() int64
	// next waits for a page and returns its size, at least 1, and how to encode
	// what it holds, until the next call.
	next(ctx context.Context) (size int, text appendNth, err error)
	Close()
}

// appendNth appends the nth message of a page as a client gets it.
type appendNth func(dst []byte, n int) []byte

// streamFeed is a stream.
type streamFeed struct {
	Subscription
	stream, name string
}

func (f streamFeed) next(ctx context.Context) (int, appendNth, error) {
	page, err := f.Next(ctx)
	return len(page), func(dst []byte, n int) []byte { return appendMessage(dst, f.stream, f.name, page[n]) }, err
}

// subscriber is a subscription of a connection. Its goroutine takes a page of
// the store, sends it at the pace at which the peer takes it, and only then the
// next: a slow peer costs one page.
type subscriber struct {
	session *session
	name    string
	credits *credits
	ctx     context.Context
	cancel  context.CancelFunc
	end     ending
}

func newSubscriber(s *session, name string, r request) *subscriber {
	sub := &subscriber{session: s, name: name, credits: newCredits(r.Credits)}
	sub.ctx, sub.cancel = context.WithCancel(s.ctx)
	return sub
}

// run is the subscription's goroutine.
func (sub *subscriber) run(r request, open func(ctx context.Context) (feed, error)) {
	defer sub.cancel()
	s := sub.session
	source, err := open(sub.ctx)
	if err != nil {
		sub.leave()
		if sub.ctx.Err() != nil {
			s.answer(r, refusal(codeEnded))
		} else {
			s.fail(r, err, codeUnavailable)
		}
	} else {
		position := source.Position()
		if err = s.pushStart(sub.ctx, r, reply{Position: &position}); err == nil {
			err = s.conn.try(func() error { return sub.follow(source) })
		}
		source.Close()
		sub.leave()
		sub.tell(err)
	}
	sub.end.answer(s)
	s.server.flusher.later(s.conn)
}

func (sub *subscriber) leave() {
	sub.session.mu.Lock()
	defer sub.session.mu.Unlock()
	delete(sub.session.subscriptions, sub.name)
}

// tell says that the subscription has ended without being asked to.
func (sub *subscriber) tell(err error) {
	if sub.ctx.Err() != nil || sub.session.conn.broken.Load() {
		return
	}
	with := explained(err, codeUnavailable)
	switch with.Code {
	case codeNotFound:
		with = refusal(codeStreamGone)
	case codeUnavailable:
		sub.session.server.log.warn("subscription ended", "subscription", sub.name, "error", err)
	}
	with.Subscription = sub.name
	sub.session.pushEnd(with)
}

// follow sends page after page until something ends it.
func (sub *subscriber) follow(source feed) error {
	for {
		size, text, err := source.next(sub.ctx)
		if err != nil {
			return err
		}
		for from := 0; from < size; {
			n, err := sub.credits.take(sub.ctx, size-from)
			if err != nil {
				return err
			}
			if err := sub.send(from, from+n, text); err != nil {
				return err
			}
			from += n
		}
	}
}

// send sends messages on the bulk lane, some at a time.
func (sub *subscriber) send(from, to int, text appendNth) error {
	server := sub.session.server
	one, frames := server.buffer(), server.buffer()
	defer func() { server.reuse(one); server.reuse(frames) }()
	for i := from; i < to; i++ {
		one = text(one[:0], i)
		frames = websocket.AppendFrame(frames, websocket.OpText, one)
		if len(frames) < pushFrames && i < to-1 {
			continue
		}
		if err := sub.session.push(sub.ctx, frames); err != nil {
			return err
		}
		frames = frames[:0]
	}
	server.delivered.Add(uint64(to - from))
	return nil
}

// ending is the request that ended a subscription or consumption, answered when
// that has happened.
type ending struct {
	mu    sync.Mutex
	asked bool
	by    request
}

// ask notes the request, unless there was one.
func (e *ending) ask(r request) bool {
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
