package tidewire

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

const (
	quiet    = 35 * time.Second // after so long without a byte the library asks for one
	answered = 10 * time.Second // which has to come in this time
)

// control is what has no answer.
type control struct {
	kind int
	text []byte
}

// link is one connection.
type link struct {
	c        *Client
	ws       *websocket.Conn
	net      *corked
	cbor     bool
	limits   limits
	wake     chan struct{} // holds one value if there is something to write
	over     chan struct{} // closed when the writer has ended, or never began
	ended    atomic.Bool
	alive    *time.Timer
	begun    bool
	renewing atomic.Bool

	first   []*request     // of the library, to be sent before all others; under the lock of the client
	control []control      // what has no answer; under the lock of the client
	pong    []byte         // to be sent, since the server has asked; only the last one counts; under the lock of the client
	begins  begins         // under the lock of the client
	left    map[string]int // rooms, with the answers to leave that are due; under the lock of the client

	reader struct { // of the goroutine that reads
		buffer []byte
		in     incoming
		name   string // of the subscription that had the last message
		last   subscriber
		woken  []*subCore // which have got something since the reader has last waited
		ping   string     // to be answered; only the last one counts
		pinged bool
	}
}

// rest is what the reader does before it waits: once for all that has come together, since each of it wakes a goroutine or the server.
func (l *link) rest() {
	for i, s := range l.reader.woken {
		s.signal()
		l.reader.woken[i] = nil
	}
	l.reader.woken = l.reader.woken[:0]
	if l.reader.pinged {
		l.reader.pinged = false
		l.c.mu.Lock()
		l.pong = []byte(l.reader.ping)
		l.c.mu.Unlock()
		l.signal()
	}
}

// woken notes that a subscription has got something. The reader calls it.
func (l *link) woken(s *subCore) {
	if n := len(l.reader.woken); n == 0 || l.reader.woken[n-1] != s {
		l.reader.woken = append(l.reader.woken, s)
	}
}

// ping notes a ping. The standard wants an answer to the last one alone.
func (l *link) ping(text string) error {
	l.reader.ping, l.reader.pinged = text, true
	return nil
}

// corked is a connection that writes when it is told to. It knows when it has last heard something.
type corked struct {
	net.Conn
	last   atomic.Int64
	before func() // what the reader does before it reads on, which may wait; nil until the connection is used

	mu      sync.Mutex
	corked  bool
	waiting []byte
}

func (c *corked) heard() { c.last.Store(time.Now().UnixNano()) }

func (c *corked) Read(p []byte) (int, error) {
	if c.before != nil {
		c.before()
	}
	n, err := c.Conn.Read(p)
	c.heard()
	return n, err
}

func (c *corked) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.corked {
		return c.Conn.Write(p)
	}
	c.waiting = append(c.waiting, p...)
	return len(p), nil
}

// cork keeps what is written, until uncork writes it at once.
func (c *corked) cork() {
	c.mu.Lock()
	c.corked = true
	c.waiting = takeBuffer()
	c.mu.Unlock()
}

func (c *corked) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	_, err := c.Conn.Write(c.waiting)
	c.waiting = giveBuffer(c.waiting)
	return err
}

// free has buffers for what is written, which all clients share: one that writes nothing has none.
var free sync.Pool

func takeBuffer() []byte {
	if b, ok := free.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return nil
}

// giveBuffer gives a buffer back, and returns what is there in its place.
func giveBuffer(b []byte) []byte {
	if cap(b) > 0 && cap(b) <= 4*batchBytes {
		free.Put(&b)
	}
	return nil
}

// hello waits for the first message of the server.
func (l *link) hello() error {
	if l.ws.Subprotocol() == "" {
		return fmt.Errorf("tidewire: connect: the server does not know the protocol %s", "tidewire.v1")
	}
	kind, data, err := l.ws.ReadMessage()
	if err != nil {
		return fmt.Errorf("tidewire: connect: no hello: %w", err)
	}
	if data, err = asJSON(kind, data); err != nil {
		return err
	}
	return parseHello(data, &l.limits)
}

// start starts the writer, and the timer of the keep-alive. The caller holds the lock of the client.
func (l *link) start() {
	l.begun = true
	l.alive = time.AfterFunc(quiet, l.check)
	go l.write()
	l.signal()
}

func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// check asks for a sign of life if nothing has come for long, and ends the connection if none has come then.
func (l *link) check() {
	since := time.Since(time.Unix(0, l.net.last.Load()))
	switch {
	case l.ended.Load():
	case since >= quiet+answered:
		l.close(0)
	case since >= quiet:
		l.c.mu.Lock()
		l.control = append(l.control, control{websocket.TextMessage, []byte(`{"type":"ping"}`)})
		l.c.mu.Unlock()
		l.signal()
		l.alive.Reset(quiet + answered - since)
	default:
		l.alive.Reset(quiet - since)
	}
}

// close ends the connection, with a close frame if there is a code.
func (l *link) close(code int) {
	if l.ended.Swap(true) {
		return
	}
	if code != 0 {
		l.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(time.Second))
	}
	l.ws.Close()
	l.signal()
	l.c.mu.Lock()
	if !l.begun {
		l.begun = true
		close(l.over)
	}
	if l.alive != nil {
		l.alive.Stop()
	}
	l.c.mu.Unlock()
}

// send sends JSON that has no answer. The caller holds the lock of the client.
func (l *link) send(text []byte) {
	l.control = append(l.control, control{websocket.TextMessage, text})
	l.signal()
}

// write sends what there is to send, until the connection ends.
func (l *link) write() {
	defer close(l.over)
	var out writer
	var todo []*request
	for range l.wake {
		if l.ended.Load() {
			return
		}
		for {
			var unasked []control
			var begun chan struct{}
			todo, unasked, begun = l.c.next(l, todo[:0])
			if len(todo) == 0 && len(unasked) == 0 {
				break
			}
			out.buf = takeBuffer()
			err := l.writeAll(&out, todo, unasked)
			out.buf = giveBuffer(out.buf)
			if err != nil {
				l.close(0)
				return
			}
			if begun != nil {
				close(begun)
			}
		}
	}
}

// writeAll writes many messages with one call of the system.
func (l *link) writeAll(out *writer, todo []*request, unasked []control) error {
	l.net.cork()
	for _, u := range unasked {
		if err := l.ws.WriteMessage(u.kind, u.text); err != nil {
			return err
		}
	}
	for _, r := range todo {
		if err := l.writeOne(out, r); err != nil {
			return err
		}
	}
	return l.net.uncork()
}

// writeOne writes a request: in several parts, if it is a batch that is larger in its encoding than the server takes.
func (l *link) writeOne(out *writer, r *request) error {
	kind := websocket.TextMessage
	if out.cbor = l.cbor && !r.asText; out.cbor {
		kind = websocket.BinaryMessage
	}
	l.c.writeRequest(out, r)
	if l.limits.MessageBytes <= 0 || len(out.buf) <= l.limits.MessageBytes {
		r.written = true
		return l.ws.WriteMessage(kind, out.buf)
	}
	for _, part := range l.c.oversize(r, len(out.buf)) {
		if err := l.writeOne(out, part); err != nil {
			return err
		}
	}
	return nil
}

const (
	writeBytes    = 256 << 10 // in one call of the system, roughly
	batchBytes    = 256 << 10
	batchMessages = 1000
)

// next takes what l sends next.
func (c *Client) next(l *link, todo []*request) ([]*request, []control, chan struct{}) {
	c.mu.Lock()
	defer c.unlock()
	if c.link != l {
		return nil, nil, nil
	}
	unasked, begun := l.begins.take(l.control)
	l.control = nil
	if l.pong != nil {
		unasked = append(unasked, control{websocket.PongMessage, l.pong})
		l.pong = nil
	}
	for _, r := range l.first {
		todo = c.number(todo, r)
	}
	l.first = nil
	var held []*request
	bytes, i := 0, 0
	for i < len(c.ready) && bytes < writeBytes {
		r := c.ready[i]
		i++
		switch {
		case r.finished:
			continue
		case r.link != nil && r.link != l:
			c.finish(r, lostLink(r))
			continue
		case r.members == nil && c.tooBig(r):
			continue
		case r.room != "" && c.joining[r.room]:
			held = append(held, r)
			continue
		}
		if c.batches(r) {
			var n int
			r, n = c.gather(r, c.ready[i:])
			i += n
		}
		bytes += r.size + 64
		todo = c.number(todo, r)
	}
	i -= len(held)
	copy(c.ready[i:], held)
	if i == len(c.ready) {
		clear(c.ready)
		c.ready = c.ready[:0]
	} else {
		c.ready = append(c.ready[:0], c.ready[i:]...)
	}
	return todo, unasked, begun
}

// number gives a request what it needs on the wire. The caller holds the lock.
func (c *Client) number(todo []*request, r *request) []*request {
	if r.finished {
		return todo
	}
	if r.id == 0 {
		c.ids++
		r.id = c.ids
	}
	if r.numbered && r.sequence < 0 {
		r.sequence = c.sequence
		c.sequence++
	}
	r.sent, r.asked = true, r.limit
	for _, m := range r.members {
		m.sent = true
	}
	c.sent[r.id] = r
	return append(todo, r)
}
