package gateway

import (
	"context"
	"errors"
	"sync"

	"github.com/tidewire/tidewire/websocket"
)

// pushFrames is how many bytes of messages are encoded at a time.
const pushFrames = 256 << 10

// subscriber is a subscription of a connection. Its goroutine takes a page of
// the store, sends it at the pace at which the peer takes it, and only then the
// next: a slow peer costs one page.
type subscriber struct {
	session *session
	name    string
	stream  string
	credits *credits
	ctx     context.Context
	cancel  context.CancelFunc
	end     ending
}

func newSubscriber(s *session, name string, r request) *subscriber {
	sub := &subscriber{session: s, name: name, stream: r.Stream, credits: newCredits(r.Credits)}
	sub.ctx, sub.cancel = context.WithCancel(s.ctx)
	return sub
}

// run is the subscription's goroutine.
func (sub *subscriber) run(r request, from Start) {
	defer sub.cancel()
	s := sub.session
	source, err := s.server.streams.Store.Subscribe(sub.ctx, sub.stream, from)
	if err != nil {
		sub.leave()
		if sub.ctx.Err() != nil {
			s.answer(r, refusal(codeEnded))
		} else {
			s.refuseStart(r, err)
		}
	} else {
		position := source.Position()
		if err = s.pushStart(sub.ctx, r, reply{Position: &position}); err == nil {
			err = sub.follow(source)
		}
		source.Close()
		sub.leave()
		sub.tell(err)
	}
	sub.end.answer(s)
	s.server.flusher.later(s.conn)
}

// refuseStart tells why nothing begins.
func (s *session) refuseStart(r request, err error) {
	var old *TooOldError
	if errors.As(err, &old) {
		with := refusal(codeTooOld)
		with.Oldest = &old.Oldest
		s.server.ignored.Add(1)
		s.answer(r, with)
		return
	}
	s.fail(r, err, codeUnavailable)
}

func (sub *subscriber) leave() {
	sub.session.mu.Lock()
	defer sub.session.mu.Unlock()
	delete(sub.session.subscriptions, sub.name)
}

// tell says that the subscription has ended without being asked to.
func (sub *subscriber) tell(err error) {
	if sub.ctx.Err() != nil {
		return
	}
	why := codeOf(err, codeUnavailable)
	switch why {
	case codeNotFound:
		why = codeStreamGone
	case codeUnavailable:
		sub.session.server.log.warn("subscription ended", "stream", sub.stream, "error", err)
	}
	with := refusal(why)
	with.Subscription = sub.name
	var old *TooOldError
	if errors.As(err, &old) {
		with.Oldest = &old.Oldest
	}
	sub.session.pushEnd(with)
}

// follow sends page after page until something ends it.
func (sub *subscriber) follow(source Subscription) error {
	for {
		page, err := source.Next(sub.ctx)
		if err != nil {
			return err
		}
		for len(page) > 0 {
			n, err := sub.credits.take(sub.ctx, len(page))
			if err != nil {
				return err
			}
			if err := sub.send(page[:n]); err != nil {
				return err
			}
			page = page[n:]
		}
	}
}

// send sends messages on the bulk lane, some at a time.
func (sub *subscriber) send(page []Message) error {
	server := sub.session.server
	text, frames := server.buffer(), server.buffer()
	defer func() { server.reuse(text); server.reuse(frames) }()
	for i, m := range page {
		text = appendMessage(text[:0], sub.stream, sub.name, m)
		frames = websocket.AppendFrame(frames, websocket.OpText, text)
		if len(frames) < pushFrames && i < len(page)-1 {
			continue
		}
		if err := sub.session.push(sub.ctx, frames); err != nil {
			return err
		}
		frames = frames[:0]
	}
	server.delivered.Add(uint64(len(page)))
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
