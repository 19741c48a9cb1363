package tidewire

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"
)

// subCore is a subscription without a codec: of a stream, or of events.
type subCore struct {
	c       *Client
	name    string // on the wire
	stream  string
	options SubscribeOptions
	encode  func(w *writer, after int64, resumes bool) // the fields of the request
	convert func(m *incoming) (item, bool)             // of events

	once  sync.Once
	ready chan struct{} // closed with the first answer
	first error         // with which it could not begin

	mu       sync.Mutex
	link     *link
	items    []item
	head     int
	wake     chan struct{} // holds one value if the program may find something
	after    int64         // the position that the program has got
	resumes  bool          // after says where it goes on
	used     int           // messages for which the server has no credit yet
	credit   int           // messages that the server may still send
	owned    []int         // partitions
	attempts int
	ended    bool
	err      error
}

// item is a message, or something that happens between two of them.
type item struct {
	message  Message[[]byte]
	event    Event
	position bool   // no message: everything up to its position was left out
	call     func() // tells the program
	gap      *Gap   // messages are missing here
	err      error  // says so to a program that does not skip gaps
	part     bool   // it belongs to a partition that can be revoked
}

func newSubCore(c *Client, stream string, o SubscribeOptions) *subCore {
	s := &subCore{c: c, stream: stream, options: o, ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	s.encode = s.streamFields
	if o.After != nil {
		s.after, s.resumes = *o.After, true
	}
	c.mu.Lock()
	c.names++
	s.name = "s" + strconv.Itoa(c.names)
	c.mu.Unlock()
	return s
}

// streamFields appends where the subscription begins, and what it takes.
func (s *subCore) streamFields(w *writer, after int64, resumes bool) {
	o := &s.options
	w.text("stream", s.stream)
	switch {
	case o.Share:
		w.text("group", o.Group)
		w.yes("share")
	case resumes:
		w.number("after", after)
	case o.Group != "":
		w.text("group", o.Group)
	case !o.At.IsZero():
		w.text("at", o.At.UTC().Format(time.RFC3339Nano))
	case o.FromStart:
		w.text("from", "start")
	}
	if len(o.Keys) > 0 {
		w.texts("keys", o.Keys)
	}
	if len(o.Headers) > 0 {
		headers, _ := json.Marshal(o.Headers) // texts alone
		w.json("headers", headers)
	}
}

// subscribe begins s, and waits until the server has taken it.
func (c *Client) subscribe(ctx context.Context, s *subCore) error {
	c.mu.Lock()
	c.subs[s.name] = s
	err := c.addLocked(s)
	c.unlock()
	if err != nil {
		return err
	}
	return c.begun(ctx, s, s.ready, &s.first)
}

// begun waits until a source has begun, and ends it if that fails.
func (c *Client) begun(ctx context.Context, s source, ready chan struct{}, first *error) (err error) {
	timeout := time.NewTimer(c.opts.Timeout)
	defer timeout.Stop()
	select {
	case <-ready:
		return *first
	case <-ctx.Done():
		err = &Error{Code: "cancelled", Message: "the context has ended", cause: context.Cause(ctx)}
	case <-timeout.C:
		c.mu.Lock()
		err = c.timeout("the server has not answered in time")
		c.mu.Unlock()
	}
	c.remove(s)
	s.quit()
	s.finish(err)
	return err
}

// attach subscribes on l. The client holds its lock.
func (s *subCore) attach(l *link) {
	s.mu.Lock()
	s.link, s.used, s.credit = l, 0, s.options.Credits
	after, resumes, credits := s.after, s.resumes, s.options.Credits
	s.mu.Unlock()
	s.c.startOn(l, &request{kind: "subscribe", repeat: own, asText: s.convert != nil, check: s.placed, then: s.answered, encode: func(w *writer, _ *request) {
		w.text("subscription", s.name)
		s.encode(w, after, resumes)
		w.number("credits", int64(credits))
	}})
}

// placed wants the position after which a subscription of a stream begins.
func (s *subCore) placed(in *incoming) error {
	if s.convert != nil || s.options.Share {
		return nil
	}
	return positioned(in)
}

// answered takes the answer to subscribe.
func (s *subCore) answered(a *answer, err error) {
	if err != nil {
		s.failed(err)
		return
	}
	s.mu.Lock()
	s.attempts = 0
	if !s.resumes && a.has && !s.options.Share {
		s.after, s.resumes = a.position, true
	}
	s.mu.Unlock()
	s.once.Do(func() { close(s.ready) })
}

// failed takes an error that has ended the subscription, or not let it begin.
func (s *subCore) failed(err error) {
	if err == errDetached {
		return
	}
	var e *Error
	gap := gapOf(err)
	switch {
	case gap != nil && s.options.Gap != nil:
		s.missing(gap, err)
	case errors.As(err, &e) && (e.Retryable || e.Code == "token_expired") && e.Code != "closed":
		s.mu.Lock()
		wait := pause(s.attempts)
		s.attempts++
		s.mu.Unlock()
		s.detach()
		s.c.reattach(s, max(wait, e.RetryAfter))
	default:
		s.c.remove(s)
		s.finish(err)
	}
}

// finish ends the iteration, after what has come.
func (s *subCore) finish(err error) {
	s.c.mu.Lock()
	delete(s.c.subs, s.name)
	s.c.mu.Unlock()
	s.once.Do(func() {
		s.first = err
		if err == nil {
			s.first = closedError(nil)
		}
		close(s.ready)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.err = true, err
		s.signal()
	}
}

// close ends the subscription for the program.
func (s *subCore) close() {
	s.c.remove(s)
	s.finish(nil)
	s.quit()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items, s.head, s.err = nil, 0, nil
}

// quit ends the subscription on the server.
func (s *subCore) quit() {
	s.mu.Lock()
	l := s.link
	s.link = nil
	s.mu.Unlock()
	if l == nil {
		return
	}
	s.c.mu.Lock()
	defer s.c.unlock()
	if s.c.link == l {
		s.c.startOn(l, &request{kind: "unsubscribe", repeat: own, encode: func(w *writer, _ *request) { w.text("subscription", s.name) }})
	}
}

// detach forgets what waits: it comes again on the next connection.
func (s *subCore) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return
	}
	s.link = nil
	s.discard(func(i *item) bool { return i.call == nil })
	if len(s.owned) > 0 {
		lost := s.owned
		s.owned = nil
		s.revoke(lost)
	}
}

// push adds an item. The caller holds the lock.
func (s *subCore) push(i item) {
	s.add(i)
	s.signal()
}

func (s *subCore) add(i item) {
	if s.head > 0 && s.head == len(s.items) {
		s.items, s.head = s.items[:0], 0
	}
	s.items = append(s.items, i)
}

func (s *subCore) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// position returns where the subscription goes on.
func (s *subCore) position() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after
}

// next takes a message. It returns false after the end, or if there is none and it is not to wait.
func (s *subCore) next(ctx context.Context, wait bool) (Message[[]byte], bool, error) {
	i, ok, err := s.nextItem(ctx, wait)
	return i.message, ok, err
}

func (s *subCore) nextItem(ctx context.Context, wait bool) (item, bool, error) {
	if err := ctx.Err(); err != nil {
		return item{}, false, err
	}
	for {
		s.mu.Lock()
		if s.head == len(s.items) {
			ended, err := s.ended, s.err
			s.mu.Unlock()
			if ended || !wait {
				return item{}, false, err
			}
			select {
			case <-s.wake:
			case <-ctx.Done():
				return item{}, false, ctx.Err()
			}
			continue
		}
		i, l := s.items[s.head], s.link
		if i.gap != nil && !wait { // after what the program has taken
			s.mu.Unlock()
			return item{}, false, nil
		}
		s.items[s.head] = item{}
		s.head++
		if i.gap != nil {
			s.mu.Unlock()
			if err := s.cross(ctx, i, l); err != nil {
				return item{}, false, err
			}
			continue
		}
		if i.call != nil {
			s.mu.Unlock()
			i.call()
			continue
		}
		s.passed(&i)
		if i.position {
			s.mu.Unlock()
			continue
		}
		s.used++
		due := s.due()
		s.mu.Unlock()
		if due {
			s.grant()
		}
		return i, true, nil
	}
}

// due reports whether the server is to get more credit. The caller holds the lock.
func (s *subCore) due() bool { return s.link != nil && s.used >= max(1, s.options.Credits/2) }

// grant lets the server send more. Under both locks, because the credit belongs to the subscription of this moment.
func (s *subCore) grant() {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.due() || s.c.link != s.link {
		return
	}
	var w writer
	w.begin("credit", 0)
	w.text("subscription", s.name)
	w.number("n", int64(s.used))
	w.end()
	s.credit += s.used
	s.used = 0
	s.link.send(w.buf)
}
