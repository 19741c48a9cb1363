package gateway

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/websocket"
)

// maxRunning is how many requests of a connection may have a goroutine each.
const maxRunning = 64

// maxProjecting is how many of them may project at a time.
const maxProjecting = 4

// maxQuerying is how many of them may query at a time, until their answers are
// with the peer: each holds a page and its encoding.
const maxQuerying = 2

// countedRequest is from how many bytes on a request that has a goroutine, or a query
// that is subscribed to, is counted by the memory budget. All smaller ones of a connection are 64 KiB.
const countedRequest = 1 << 10

// session is one connection on /ws. Its reading goroutine handles all requests
// in their order; what it hands to a store is answered later, and what has to
// wait for one gets a goroutine. Each subscription and consumption has its own,
// which writes on the bulk lane.
type session struct {
	server *sessions
	conn   *connection
	chat   *participant
	heart  heartbeat   // of the reading goroutine
	size   int         // of the message that is handled, in bytes; of the reading goroutine
	slow   atomic.Bool // the peer takes nothing: reading is to end
	gone   atomic.Bool // nobody is there for answers: what only reads need not begin

	// pending are requests that a store answers, and running those with a
	// goroutine, at most as many as slots. The end waits for both. work is the
	// context of running, which ends with the server's work, or when the connection
	// is evicted: what waits for a store gives its memory back.
	pending  pending
	running  sync.WaitGroup
	slots    chan struct{}
	work     context.Context
	stopWork context.CancelFunc

	projecting chan struct{} // as many as may at a time
	querying   chan struct{} // the same, to the end of their answers

	// ctx is that of subscriptions and consumptions, cancel ends it.
	ctx     context.Context
	cancel  context.CancelFunc
	feeding sync.WaitGroup

	mu            sync.Mutex
	subscriptions map[string]*subscriber
	consumers     map[string]*consumer
}

// session serves a connection on /ws.
func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	sess := &session{
		server: s.sessions, slots: make(chan struct{}, maxRunning), projecting: make(chan struct{}, maxProjecting), querying: make(chan struct{}, maxQuerying),
		subscriptions: make(map[string]*subscriber), consumers: make(map[string]*consumer),
	}
	heard := func([]byte) { sess.heart.heard = time.Now() }
	cfg := websocket.Config{OnPing: heard, OnPong: heard}
	s.accept(w, r, cfg, func(c *connection) {
		s.chats.opened()
		defer s.chats.open.Add(-1)
		sess.conn, sess.chat = c, newParticipant(s.chats, c, s.cfg.DrainTimeout)
		sess.chat.stays = true
		sess.ctx, sess.cancel = context.WithCancel(s.work)
		sess.work, sess.stopWork = context.WithCancel(s.work)
		defer sess.stopWork()
		c.whenEvicted(sess.stopWork)
		sess.run()
	})
}

func (s *session) run() {
	// After a Close frame there are no answers: it comes when they have left.
	s.conn.whenStopped(func() { s.conn.SetReadDeadline(time.Now()) })
	err := s.conn.try(s.read)
	s.gone.Store(!s.owed(err))
	s.conn.SetUnread(true) // no answer is to wait for a pong
	s.chat.end()
	s.conn.await(&s.pending, s.server.work)
	s.running.Wait()
	s.cancel() // consumptions give back what has not been acknowledged by now
	s.feeding.Wait()
	s.conn.Close(closeCode(s.conn, err), "")
}

// owed reports whether the peer may still take answers after reading has ended:
// after its Close frame, or where the server stops.
func (s *session) owed(err error) bool {
	var closed *websocket.CloseError
	return (errors.As(err, &closed) || errors.Is(err, os.ErrDeadlineExceeded)) && !s.slow.Load() && !s.conn.evicted.Load() && !s.conn.broken.Load()
}

// read handles messages until the connection ends. All messages of one read
// are handled before their answers leave, in one write.
func (s *session) read() error {
	s.heart = newHeartbeat(s.server.chats.cfg, time.Now())
	s.conn.wakeAt(s.heart.deadline())
	for {
		messages, err := s.conn.Read()
		now := time.Now()
		for _, m := range messages {
			s.handle(m, now)
		}
		if len(messages) > 0 {
			s.heart.heard = time.Now() // handling may have waited for a store, and heard nothing meanwhile
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !s.conn.ending() && !s.slow.Load() && s.beat(now) {
			continue
		}
		if err != nil {
			return err
		}
	}
}

// beat sends a ping of WebSocket's when it is due, which every client answers,
// and returns false when the silence has lasted for too long.
func (s *session) beat(now time.Time) bool {
	ping, silent := s.heart.due(now)
	if silent {
		return false
	}
	if ping {
		s.conn.Queue(websocket.OpPing, nil)
		s.conn.Flush()
	}
	s.conn.wakeAt(s.heart.deadline())
	return true
}

// handle does what a message asks for.
func (s *session) handle(m websocket.Message, now time.Time) {
	s.size = len(m.Payload)
	r, why := s.server.decoders.parse(s.server.work, m.Payload)
	switch r.Type {
	case "join", "chat", "leave", "ping", "pong": // whose other fields are the chat's
		r.recycle()
		s.chat.handleAll([]websocket.Message{m}, now)
		return
	}
	if why != nil {
		s.refuseFor(r.asked, why)
		return
	}
	switch r.Type {
	case "publish":
		s.publish(r)
		r.recycle()
	case "subscribe":
		if r.Stream == "" && r.Query != nil {
			s.subscribeEvents(r)
			return
		}
		s.subscribe(r)
	case "unsubscribe":
		s.unsubscribe(r)
	case "commit":
		s.commit(r)
	case "enqueue":
		s.enqueue(r)
		r.recycle()
	case "consume":
		s.consume(r)
	case "cancel":
		s.cancelConsumer(r)
	case "ack", "nack", "extend":
		s.settle(r)
		r.recycle()
	case "append":
		s.appendEvents(r)
	case "query":
		s.queryEvents(r)
	case "project":
		s.project(r)
	case "credit":
		s.credit(r)
	default:
		s.refuse(r.asked, codeUnknownType)
	}
}

// credit is for a subscription or a consumption.
func (s *session) credit(r *request) {
	switch {
	case (r.Queue == "") == (r.Subscription == ""):
		s.refuseFor(r.asked, malformed("subscription", "either subscription or queue"))
	case r.Queue != "":
		s.creditConsumer(r)
	default:
		s.creditSubscriber(r)
	}
}

// inBackground has f answer a request in a goroutine of its own. If there are
// too many of them nothing is read until one has ended. It returns false if there
// will be no answer: the connection was evicted, or the server gave up.
func (s *session) inBackground(f func(ctx context.Context)) bool {
	held, ok := s.reserve()
	if !ok {
		return false
	}
	select {
	case s.slots <- struct{}{}:
	default:
		if !s.awaitSlot() {
			s.conn.memory.Release(budget.Ingest, held)
			return false
		}
	}
	s.running.Go(func() {
		defer func() { <-s.slots }()
		defer s.conn.memory.Release(budget.Ingest, held)
		s.conn.guard(func() { f(s.work) })
		s.server.flusher.later(s.conn)
	})
	return true
}

// reserve has the memory budget count the request that is handled, and returns how
// much. While memory is short nothing more is read.
func (s *session) reserve() (held int64, ok bool) {
	if s.size < countedRequest {
		return 0, true
	}
	held = 2 * int64(s.size) // its text, and what was read out of it
	if s.conn.memory.TryReserve(budget.Ingest, held) {
		return held, true
	}
	s.conn.SetUnread(true)
	defer s.conn.SetUnread(false)
	err := s.conn.memory.Reserve(s.work, budget.Ingest, held)
	if errors.Is(err, budget.ErrTooLarge) {
		s.conn.memory.Take(budget.Ingest, held) // it is there already
		err = nil
	}
	return held, err == nil
}

// feed runs a subscription or consumption.
func (s *session) feed(run func()) {
	s.feeding.Go(func() { s.conn.guard(run) })
}

// awaitSlot takes a slot when there is one, unless the server gives up first.
// Those who have the slots must not wait for a pong, which would not be read.
func (s *session) awaitSlot() bool {
	s.conn.SetUnread(true)
	defer s.conn.SetUnread(false)
	select {
	case s.slots <- struct{}{}:
		return true
	case <-s.work.Done():
		return false
	}
}

// full reports whether the connection has as many subscriptions and
// consumptions as it may. s.mu is held.
func (s *session) full() bool {
	return len(s.subscriptions)+len(s.consumers) >= s.server.cfg.MaxSubscriptions
}

// answer queues an answer, if the request wants one.
func (s *session) answer(r asked, with reply) {
	if r.ID == nil {
		return
	}
	with.ID = r.ID
	s.send(with)
}

func (s *session) ok(r asked, with reply) {
	with.Type = "ok"
	s.answer(r, with)
}

// refuse counts a message that had no effect, and tells a request why.
func (s *session) refuse(r asked, why code) { s.refuseFor(r, because(why)) }

// refuseFor is refuse for a problem that may have words of its own.
func (s *session) refuseFor(r asked, why *problem) {
	s.server.ignored.Add(1)
	s.answer(r, why.reply())
}

// fail is refuse for what a store says.
func (s *session) fail(r asked, err error, otherwise code) {
	with := explained(err, otherwise)
	if with.Code == otherwise || with.Code == engine.CodeRefused {
		s.server.log.warn("request failed", "type", r.Type, "error", err)
	}
	s.server.ignored.Add(1)
	s.answer(r, with)
}

// send queues an answer; it leaves with the others of this read, or is flushed
// later. One that does not fit after what the peer has not read yet ends the
// connection.
func (s *session) send(v reply) {
	if errors.Is(s.conn.Queue(websocket.OpText, v.text()), websocket.ErrSlowReader) {
		s.conn.Abort()
	}
}

// push writes on the bulk lane, and has the connection closed where the peer
// takes nothing.
func (s *session) push(ctx context.Context, frames []byte) error {
	err := s.conn.WriteBulkFrames(ctx, frames)
	if errors.Is(err, websocket.ErrSlowReader) {
		s.conn.StartClose(websocket.StatusPolicyViolation, "reads too slowly")
		s.slow.Store(true)
		s.conn.SetReadDeadline(time.Now())
	}
	return err
}

// pushStart answers a request for messages before them, on their lane: on
// another one it might come after the first of them.
func (s *session) pushStart(ctx context.Context, r asked, with reply) error {
	if r.ID == nil {
		return nil
	}
	with.Type, with.ID = "ok", r.ID
	err := s.push(ctx, websocket.AppendFrame(nil, websocket.OpText, with.text()))
	if err != nil {
		s.answer(r, refusal(codeEnded))
	}
	return err
}

// pushEnd tells of an end, after the messages that came before.
func (s *session) pushEnd(v reply) {
	s.push(s.ctx, websocket.AppendFrame(nil, websocket.OpText, v.text()))
}
