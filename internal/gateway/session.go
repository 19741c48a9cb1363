package gateway

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// The subprotocols of /ws. Without one a client gets JSON, and nothing that it has not asked for.
const (
	subprotocolJSON = "tidewire.v1"
	subprotocolCBOR = "tidewire.v1.cbor"
)

// maxRunning is how many requests of a connection may have a goroutine each.
const maxRunning = 64

// maxProjecting is how many of them may run a project request at a time.
const maxProjecting = 4

// maxQuerying is how many of them may run a query at a time, until the answer
// is sent: each holds a page and its encoding.
const maxQuerying = 2

// countedRequest is the size in bytes from which the memory budget counts a request with a goroutine,
// or the query of a subscription. All smaller ones of a connection are at most 64 KiB.
const countedRequest = 1 << 10

// session is one connection on /ws. Its reading goroutine handles all requests
// in order. A request passed to a store is answered later; a request that has
// to wait for a store gets a goroutine. Each subscription and consumption has
// its own goroutine, which writes on the bulk lane.
type session struct {
	server  *sessions
	conn    *connection
	chat    *participant
	heart   heartbeat         // used by the reading goroutine
	decoder wire.Decoder      // used by the reading goroutine
	size    int               // size of the current message in bytes; used by the reading goroutine
	granted granted           // the last request that was granted; used by the reading goroutine
	one     [1]engine.Message // memory for the message of a request that has one; used by the reading goroutine
	slow    atomic.Bool       // the peer reads nothing: reading is to end
	gone    atomic.Bool       // the peer takes no answers: queries need not begin

	// pending counts requests that a store answers, and running those with a
	// goroutine, at most as many as slots. The session waits for both before it
	// closes. work is the context of running. It ends with the server's work, or
	// when the connection is evicted, so that requests waiting for a store release
	// their memory. reads is the context of queries, which ends also when the peer has gone.
	pending  pending
	running  sync.WaitGroup
	slots    chan struct{}
	work     context.Context
	stopWork context.CancelFunc
	reads    context.Context
	endReads context.CancelFunc

	projecting chan struct{} // a semaphore of maxProjecting
	querying   chan struct{} // a semaphore of maxQuerying, held until the answer is sent

	// ctx is the context of subscriptions and consumptions; cancel ends it.
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
		server: s.sessions, decoder: wire.Decoder{Limits: s.sessions.decoders.limits()}, slots: make(chan struct{}, maxRunning), projecting: make(chan struct{}, maxProjecting), querying: make(chan struct{}, maxQuerying),
		subscriptions: make(map[string]*subscriber), consumers: make(map[string]*consumer),
	}
	heard := func([]byte) { sess.heart.heard = time.Now() }
	cfg := websocket.Config{OnPing: heard, OnPong: heard, Subprotocols: []string{subprotocolJSON, subprotocolCBOR}, Compression: s.cfg.Compression}
	s.accept(w, r, cfg, func(c *connection) {
		s.chats.opened()
		defer s.chats.open.Add(-1)
		c.identity.changed = sess.rightsChanged
		c.identity.begin(true)
		sess.conn, sess.chat = c, newParticipant(s.chats, c, s.cfg.DrainTimeout)
		sess.chat.stays = true
		c.session.Store(sess)
		c.participant.Store(sess.chat)
		sess.ctx, sess.cancel = context.WithCancel(s.work)
		sess.work, sess.stopWork = context.WithCancel(s.work)
		defer sess.stopWork()
		sess.reads, sess.endReads = context.WithCancel(sess.work)
		defer sess.endReads()
		c.whenEvicted(sess.stopWork)
		sess.hello()
		c.owner.users.add(c)
		sess.run()
	})
}

func (s *session) run() {
	// No answer may follow a Close frame, so it is sent after them.
	s.conn.whenStopped(func() { s.conn.SetReadDeadline(time.Now()) })
	err := s.conn.try(s.read)
	if !s.owed(err) {
		s.gone.Store(true)
		s.endReads()
	}
	s.conn.SetUnread(true) // nobody reads any more, so no answer may wait for a pong
	s.chat.end()
	s.conn.await(&s.pending, s.server.work)
	s.running.Wait()
	s.cancel() // consumptions release the deliveries that are not settled by now
	s.feeding.Wait()
	s.conn.Close(ended(s.conn, err))
}

// owed reports whether the peer may still receive answers after reading has
// ended: after its Close frame, or when the server stops.
func (s *session) owed(err error) bool {
	var closed *websocket.CloseError
	return (errors.As(err, &closed) || errors.Is(err, os.ErrDeadlineExceeded)) && !s.slow.Load() && !s.conn.evicted.Load() && !s.conn.broken.Load()
}

// read handles messages until the connection ends. The answers to all messages
// of one read are sent in one write.
func (s *session) read() error {
	s.heart = newHeartbeat(s.server.chats.cfg, time.Now())
	s.conn.wakeAt(s.heart.deadline())
	for {
		messages, err := s.conn.Read()
		now := time.Now()
		s.recheck()
		for some := range slices.Chunk(messages, handledTogether) {
			if s.conn.flooded {
				break
			}
			for _, m := range some {
				s.handle(m, now)
				s.recheck()
			}
			now = s.conn.rest(now, len(some))
		}
		if len(messages) > 0 {
			s.heart.heard = time.Now() // handling may have waited for a store, and nothing was read meanwhile
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && !s.conn.ending() && !s.slow.Load() && s.beat(now) {
			continue
		}
		if err != nil {
			return err
		}
	}
}

// recheck looks at the rights of the connection again, if they may have changed, and at its memberships, if it was kicked.
func (s *session) recheck() {
	s.conn.identity.recheck(s.server.work)
	if s.conn.kicked.Load() {
		s.chat.mu.Lock()
		defer s.chat.mu.Unlock()
		s.chat.noticeKicks()
	}
}

// beat sends a WebSocket ping, which every client answers, when it is due. It
// returns false when the peer has been silent for too long.
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

// handle handles one message.
func (s *session) handle(m websocket.Message, now time.Time) {
	s.size = len(m.Payload)
	if !s.conn.identity.admits(s.size) {
		return
	}
	if s.tooManyBytes(m, now) {
		return
	}
	e := s.encodingOf(m.Op)
	// A request refers to its message, which is only there until the next read.
	r, why := s.server.decoders.parse(s.server.work, &s.decoder, bytes.Clone(m.Payload), e)
	if s.size > countedRequest {
		r.ID = bytes.Clone(r.ID) // it is there as long as the request waits, and nothing counts the rest
	}
	if s.tooManyRequests(r.asked(), now) {
		return
	}
	if ofRooms(r.Type) && e == wire.JSON { // the chat parses their other fields
		r.recycle()
		s.chat.handleAll([]websocket.Message{m}, now)
		return
	}
	if why == nil {
		why = s.unfit(r)
	}
	if why == nil && r.Type == "auth" {
		with := s.conn.identity.handle(s.server.work, r.Token)
		if with.Type == "ok" && s.conn.Subprotocol() != "" {
			with.hello = s.writeHello
		}
		s.answer(r.asked(), with)
		return
	}
	if why == nil {
		why = s.denied(r)
	}
	if why != nil {
		s.refuseFor(r.asked(), why)
		return
	}
	switch r.Type {
	case "publish":
		s.publish(r)
		r.recycle()
	case "subscribe":
		r.ownNames()
		if r.ofEvents() {
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
		r.ownNames()
		s.consume(r)
	case "cancel":
		s.cancelConsumer(r)
	case "begin", "ack", "nack", "extend":
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
		s.refuseFor(r.asked(), &problem{code: codeUnknownType, text: knownTypes()})
	}
}

// encodingOf returns the encoding of a client's message.
func (s *session) encodingOf(op websocket.Opcode) wire.Encoding {
	if op == websocket.OpBinary && s.conn.Subprotocol() == subprotocolCBOR {
		return wire.CBOR
	}
	return wire.JSON
}

var roomTypes = []string{"join", "chat", "leave", "ping", "pong"}

// ofRooms reports whether messages of a type are those of rooms.
func ofRooms(kind string) bool {
	return slices.Contains(roomTypes, kind)
}

// knownTypes says which types of messages there are.
var knownTypes = sync.OnceValue(func() string {
	kinds := append(slices.Collect(maps.Keys(wire.Requests)), roomTypes...)
	slices.Sort(kinds)
	return "type: want one of " + strings.Join(slices.Compact(kinds), ", ")
})

// unfit returns why a request is not one of its type.
func (s *session) unfit(r *request) *problem {
	if ofRooms(r.Type) { // a chat goes to all members as it was sent, so it has one encoding
		return &problem{code: codeMalformed, text: r.Type + ": want JSON, in a text message"}
	}
	fields, known := wire.Requests[r.Type]
	if !known || r.ID == nil { // without an ID nobody would learn of it
		return nil
	}
	return r.unknownField(fields, r.Type)
}

// credit grants credit to a subscription or a consumption.
func (s *session) credit(r *request) {
	switch {
	case (r.Queue == "") == (r.Subscription == ""):
		s.refuseFor(r.asked(), malformed("subscription", "either subscription or queue"))
	case r.Queue != "":
		s.creditConsumer(r)
	default:
		s.creditSubscriber(r)
	}
}

// inBackground calls f in a separate goroutine to answer a request. With
// maxRunning of them nothing is read until one has ended (back-pressure). It
// returns false if there will be no answer: the connection was evicted, or the
// server gave up.
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

// reserve counts the current request in the memory budget and returns the bytes
// counted. It waits while memory is short, and nothing is read meanwhile.
func (s *session) reserve() (held int64, ok bool) {
	if s.size < countedRequest {
		return 0, true
	}
	held = 2 * int64(s.size) // its text and its decoded form
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

// awaitSlot waits for a slot, unless the server gives up first. The requests
// that hold the slots must not wait for a pong, since nobody reads meanwhile.
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

// full reports whether the connection has the maximum number of subscriptions
// and consumptions. s.mu is held.
func (s *session) full() bool {
	return len(s.subscriptions)+len(s.consumers) >= s.server.cfg.MaxSubscriptions
}
