package gateway

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

const (
	// followPage is how many messages are read for a follower at a time.
	followPage = 200
	// followBeat is after how long without a message a follower gets a comment: proxies close a connection that is silent for a
	// minute or so. The rights of the caller are looked at then, too.
	followBeat = 15 * time.Second
	// followFirst is how long the answer waits for the first messages, or for a reason to refuse.
	followFirst = 100 * time.Millisecond
	// followRetry is what a browser is told to wait before it connects again, in milliseconds.
	followRetry = 2000
)

// eventSource is a stream of server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html. The id of each is a
// position, from which a client resumes with the header Last-Event-ID; a browser does so itself.
type eventSource struct {
	c *call
	w wire.Writer // one message
	// out are the bytes to be sent.
	out []byte
	// expected is how many bytes of memory the next page is expected to take, with its encoding.
	expected int64
}

// followStream sends the messages of a stream, those that are stored and then those to come.
func (c *call) followStream() {
	store := c.api.server.cfg.Engine.Streams
	if !c.served(store != nil) {
		return
	}
	from, ok := c.followStart()
	if !ok {
		return
	}
	c.follow("message", func(ctx context.Context) (feed, error) {
		source, err := store.Subscribe(ctx, c.stream(), from)
		if try, is := source.(engine.TrySubscription); is {
			return tryBodyFeed{bodyFeed{source}, try}, err
		}
		return bodyFeed{source}, err
	})
}

// followEvents does that for the events that match a query, given as URL parameters as in readEvents.
func (c *call) followEvents() {
	store, name, ok := c.events()
	if !ok {
		return
	}
	parameters := c.r.URL.Query()
	q := engine.EventQuery{}
	if parameters.Has("type") || parameters.Has("tag") {
		q.Items = []engine.EventItem{{Types: parameters["type"], Tags: parameters["tag"]}}
	}
	from, ok := c.followStart()
	if !ok || !c.permitAlso(func(caller *auth.Caller) *problem { return mayQuery(c.ctx, caller, name, q) }) {
		return
	}
	after := from.After
	if from.End {
		after = -1
	}
	c.follow("event", func(ctx context.Context) (feed, error) {
		source, err := store.SubscribeEvents(ctx, name, q, after)
		return eventBodyFeed{source}, err
	})
}

// followStart returns where a follower begins: after the position of the last message that it has got, or where the URL says; without both
// at the end.
func (c *call) followStart() (engine.Start, bool) {
	if last := c.r.Header.Get("Last-Event-ID"); last != "" {
		after, err := strconv.ParseInt(last, 10, 64)
		if err != nil || after < 0 {
			c.refuseFor(wrong(codeStart, "Last-Event-ID", "a position, 0 or more"))
			return engine.Start{}, false
		}
		return engine.Start{After: after}, true
	}
	parameters := c.r.URL.Query()
	after, ok := c.number("after", 0, math.MaxInt64, 0)
	if !ok {
		return engine.Start{}, false
	}
	named := request{wire.Request{From: parameters.Get("from"), After: after}}
	if parameters.Get("after") != "" {
		named.Given = wire.Of(wire.FieldAfter)
	}
	from, why := named.start()
	return from, c.permit(why)
}

// bodyFeed is the feed of a follower of a stream.
type bodyFeed struct{ engine.Subscription }

func (f bodyFeed) next(ctx context.Context, most int) (page, error) {
	messages, err := f.Next(ctx, most)
	return f.page(messages), err
}

func (bodyFeed) page(messages []engine.Message) page {
	p := page{
		size: len(messages), position: func(n int) int64 { return messages[n].Position }, length: func(n int) int { return messageBytes(&messages[n]) },
		write: func(w *wire.Writer, n int) {
			w.Open()
			writeBody(w, &messages[n])
			w.Close()
		},
	}
	for i := range messages {
		p.bytes += p.length(i)
	}
	return p
}

// tryBodyFeed is a bodyFeed of a subscription that can wait without reading.
type tryBodyFeed struct {
	bodyFeed
	engine.TrySubscription
}

func (f tryBodyFeed) tryNext(ctx context.Context, most int) (page, error) {
	messages, err := f.TryNext(ctx, most)
	return f.page(messages), err
}

// eventBodyFeed is the feed of a follower of events.
type eventBodyFeed struct{ engine.EventSubscription }

func (f eventBodyFeed) next(ctx context.Context, most int) (page, error) {
	events, err := f.Next(ctx, most)
	p := page{
		size: len(events), position: func(n int) int64 { return events[n].Position }, length: func(n int) int { return eventBytes(&events[n]) },
		write: func(w *wire.Writer, n int) { writeEvent(w, &events[n]) },
	}
	for i := range events {
		p.bytes += p.length(i)
	}
	return p, err
}

// follow opens a feed and sends what it has, until the client goes, the server stops, or the caller may not have it any more.
func (c *call) follow(name string, open func(context.Context) (feed, error)) {
	ctx, cancel := c.followContext()
	defer cancel()
	if !c.reserve(budget.Follow, followOverhead) {
		return
	}
	source, err := query(ctx, c, func() (feed, error) { return open(ctx) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	defer source.Close()
	at := source.Position()
	s := &eventSource{c: c, expected: c.api.answerReserve()}
	first, err := s.firstPage(ctx, source)
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	s.serve(at, func() error {
		if p := first; p.size > 0 {
			first = page{}
			return s.page(ctx, name, p)
		}
		return s.turn(ctx, name, source)
	})
}

// firstPage returns what a feed has soon. A position that does not exist any more shows only when it is read, and a browser
// comes back after an event with an error, but not after a status.
func (s *eventSource) firstPage(ctx context.Context, source feed) (page, error) {
	wait, cancel := context.WithTimeout(ctx, followFirst)
	defer cancel()
	p, err := s.next(wait, source)
	if wait.Err() != nil { // nothing yet, or the server stops, which is said later
		err = nil
	}
	return p, err
}

// tryFeed is a feed that can wait without reading: then a follower that waits for messages reserves no memory for them.
type tryFeed interface {
	Wait(ctx context.Context) error
	// tryNext returns an empty page in place of waiting.
	tryNext(ctx context.Context, most int) (page, error)
}

// next waits for a page, and reserves memory before it reads one. The page and its encoding are counted: see release.
func (s *eventSource) next(ctx context.Context, source feed) (page, error) {
	from, waits := source.(tryFeed)
	if !waits {
		if err := s.c.admit(ctx); err != nil {
			return page{}, err
		}
		p, err := source.next(ctx, followPage)
		s.c.memory.Take(budget.Page, followed(&p))
		return p, err
	}
	for {
		if err := from.Wait(ctx); err != nil {
			return page{}, err
		}
		if err := s.c.memory.Reserve(ctx, budget.Page, s.expected); err != nil {
			return page{}, err
		}
		p, err := from.tryNext(ctx, followPage)
		held := followed(&p)
		s.c.memory.Take(budget.Page, held-s.expected) // Take and Release ignore values below 1
		s.c.memory.Release(budget.Page, s.expected-held)
		if p.size > 0 {
			s.expected = max(held, admission)
		}
		if err != nil || p.size > 0 {
			return p, err
		}
	}
}

// followed is how much memory a page takes while it is sent to a follower: each message is encoded alone, or some small ones together.
func followed(p *page) int64 {
	if p.size == 0 {
		return 0
	}
	return int64(p.bytes + p.bytes/p.size + 2*answerChunk)
}

// errOver is the error of a follower whose caller may not have it any more.
type errOver struct{ why *problem }

func (e errOver) Error() string { return e.why.message() }

// turn sends a page, or a comment if there is none for a while.
func (s *eventSource) turn(ctx context.Context, name string, source feed) error {
	wait, cancel := context.WithTimeout(ctx, followBeat)
	defer cancel()
	p, err := s.next(wait, source)
	if why := s.c.lapsed(); why != nil {
		s.c.memory.Release(budget.Page, followed(&p))
		return errOver{why}
	}
	switch {
	case err == nil:
		return s.page(ctx, name, p)
	case ctx.Err() == nil && wait.Err() != nil:
		s.out = append(s.out, ":\n\n"...)
		return s.send()
	}
	return err
}

// page sends the messages of a page, and releases it. Each is encoded into what is sent: a client that does not read keeps that, and the page, for long.
func (s *eventSource) page(ctx context.Context, name string, p page) error {
	memory, held := s.c.memory, followed(&p)
	defer func() { memory.Release(budget.Page, held) }()
	room := p.bytes/p.size + 2*answerChunk // of held, for the encoding
	for i := range p.size {
		if more := len(s.out) + p.length(i) - room; more > 0 { // a message that is larger than the others
			if err := memory.Reserve(ctx, budget.Page, int64(more)); err != nil {
				return err
			}
			held, room = held+int64(more), room+more
		}
		if s.c.evicted.Load() {
			return budget.ErrEvicted
		}
		s.out = append(append(append(s.out, "event: "...), name...), "\nid: "...)
		s.out = append(strconv.AppendInt(s.out, p.position(i), 10), dataField...)
		start, w := len(s.out), wire.Writer{Buf: slices.Grow(s.out, p.length(i))}
		p.write(&w, i)
		s.out = endData(w.Buf, start)
		if more := cap(s.out) - room; more > 0 { // its encoding is larger than the message
			memory.Take(budget.Page, int64(more))
			held, room = held+int64(more), room+more
		}
		if len(s.out) < answerChunk && i < p.size-1 {
			continue
		}
		if err := s.send(); err != nil {
			return err
		}
		if cap(s.out) > 2*answerChunk {
			s.out = nil
		}
	}
	s.c.api.server.sessions.delivered.Add(uint64(p.size))
	return nil
}

// data appends the message as the data of an event.
func (s *eventSource) data() { s.out = appendData(s.out, s.w.Buf) }

// appendData appends JSON as the data of an event, and ends that. In JSON a line break is a space between values, and nothing else.
func appendData(dst, text []byte) []byte {
	dst = append(dst, dataField...)
	return endData(append(dst, text...), len(dst))
}

// dataField begins the data of an event.
const dataField = "\ndata: "

// endData ends the data of an event, which begin at start.
func endData(dst []byte, start int) []byte {
	for i, c := range dst[start:] {
		if c == '\n' || c == '\r' {
			dst[start+i] = ' '
		}
	}
	return append(dst, "\n\n"...)
}

// send sends what is there. A client that does not read is disconnected, as for any other answer.
func (s *eventSource) send() error {
	deadline := http.NewResponseController(s.c.w)
	for len(s.out) > 0 {
		if s.c.evicted.Load() {
			return budget.ErrEvicted
		}
		deadline.SetWriteDeadline(time.Now().Add(answerTimeout))
		n, err := s.c.w.Write(s.out[:min(len(s.out), answerChunk)])
		if err == nil {
			err = deadline.Flush()
		}
		if err != nil {
			return err
		}
		s.out = s.out[:copy(s.out, s.out[n:])]
	}
	return nil
}

// end tells the client why nothing more comes, if it can still be told.
func (s *eventSource) end(err error) {
	with := explained(err, codeUnavailable)
	var over errOver
	switch {
	case s.c.evicted.Load() || errors.Is(err, budget.ErrEvicted) || errors.Is(err, budget.ErrTooLarge):
		with = refusal(codeOverloaded)
	case s.c.api.polls.Err() != nil:
		with = refusal(codeStopping)
	case s.c.r.Context().Err() != nil:
		return
	case errors.As(err, &over):
		with = over.why.reply()
	case with.Code == engine.CodeNotFound:
		with = refusal(codeStreamGone)
	case with.Code == codeUnavailable:
		s.c.api.server.sessions.log.warn("a follower was ended", "request_id", requestID(s.c.r), "path", s.c.r.URL.Path, "error", err)
	}
	s.w.Buf = s.w.Buf[:0]
	with.Type = "error"
	with.write(&s.w)
	s.out = []byte("event: error") // what was not sent is released
	s.data()
	http.NewResponseController(s.c.w).SetWriteDeadline(time.Now().Add(s.c.api.server.cfg.DrainTimeout))
	s.c.w.Write(s.out)
}

// followContext returns the context of a follower, which ends when the client goes or the server stops.
func (c *call) followContext() (context.Context, func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	gone := context.AfterFunc(c.r.Context(), cancel) // a client that is closed for sending cannot be told from one that has gone
	stopping := context.AfterFunc(c.api.polls, cancel)
	return ctx, func() {
		gone()
		stopping()
		cancel()
	}
}

// serve answers with the events that turn sends, until it returns an error, and with why that is the end. A HEAD gets the headers alone. at is the position
// after which they begin, or negative: a browser that comes back before the first event goes on there.
func (s *eventSource) serve(at int64, turn func() error) {
	h := s.c.w.Header()
	setHeaders(h)
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold messages back
	s.c.w.WriteHeader(http.StatusOK)
	if s.c.r.Method == http.MethodHead {
		return
	}
	if at >= 0 {
		s.out = append(strconv.AppendInt(append(s.out, "id: "...), at, 10), '\n')
	}
	s.out = append(strconv.AppendInt(append(s.out, "retry: "...), followRetry, 10), "\n\n"...)
	err := s.send()
	for err == nil {
		err = turn()
	}
	s.end(err)
}
