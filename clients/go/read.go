package tidewire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/gorilla/websocket"
)

// incoming is a message of the server. Its texts are valid until the next one is read; payload and headers belong to who takes them.
type incoming struct {
	raw  []byte
	cbor bool

	kind, subscription, queue, room, delivery, key, time []byte
	id                                                   uint64
	position, count                                      int64
	has, duplicate                                       bool // has: position was there
	partition, attempt                                   int  // partition: -1 if it was not there
	headers                                              map[string]any
	payload                                              []byte
	wrong                                                error // a field with another type than those of the library have
}

// json returns the message as JSON, for what comes seldom.
func (in *incoming) json() ([]byte, error) {
	if !in.cbor {
		return in.raw, nil
	}
	return cborToJSON(in.raw)
}

// stored returns the time at which a message was stored.
func (in *incoming) stored() time.Time {
	t, _ := time.Parse(time.RFC3339Nano, string(in.time))
	return t
}

// asJSON returns what the server has sent as JSON.
func asJSON(kind int, data []byte) ([]byte, error) {
	if kind == websocket.TextMessage {
		return data, nil
	}
	return cborToJSON(data)
}

// parseHello takes the limits from the first message.
func parseHello(data []byte, l *limits) error {
	var hello struct {
		Type   string `json:"type"`
		Limits limits `json:"limits"`
	}
	if err := json.Unmarshal(data, &hello); err != nil {
		return fmt.Errorf("tidewire: connect: hello: %w", err)
	}
	if hello.Type != "hello" {
		return fmt.Errorf("tidewire: connect: the first message of the server is %q, not hello", hello.Type)
	}
	*l = hello.Limits
	return nil
}

// read takes what comes, until the connection ends. It returns why.
func (l *link) read() error {
	l.ws.SetPingHandler(l.ping)
	l.net.before = l.rest
	defer l.rest()
	for {
		kind, r, err := l.ws.NextReader()
		if err != nil {
			return l.tooLarge(err)
		}
		data, err := l.whole(r)
		if err != nil {
			return l.tooLarge(err)
		}
		in := &l.reader.in
		if kind == websocket.BinaryMessage {
			err = in.cborFields(data)
		} else {
			err = in.fields(data)
		}
		if err == nil {
			err = l.dispatch(in)
		}
		if err != nil {
			return err
		}
	}
}

// tooLarge says what a message of the server that is too large needs.
func (l *link) tooLarge(err error) error {
	if !errors.Is(err, websocket.ErrReadLimit) {
		return err
	}
	l.c.halvePages(l)
	return fmt.Errorf("tidewire: the server has sent a message of more than %d bytes: if that is right, raise Options.MaxFrame", l.c.maxFrame(l.limits))
}

// whole reads a message into the buffer of the reader.
func (l *link) whole(r io.Reader) ([]byte, error) {
	buffer := l.reader.buffer[:0]
	if cap(buffer) > 64<<10 {
		buffer = nil
	}
	for {
		if len(buffer) == cap(buffer) {
			buffer = append(buffer, 0)[:len(buffer)]
		}
		n, err := r.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if err == io.EOF {
			l.reader.buffer = buffer
			return buffer, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// dispatch gives a message to whom it is for.
func (l *link) dispatch(in *incoming) error {
	if in.wrong != nil && string(in.kind) != "chat" { // in a chat, it may be a field of the application
		return fmt.Errorf("tidewire: the server has sent a message that cannot be read: %w", in.wrong)
	}
	switch string(in.kind) {
	case "message", "position", "event", "assigned", "revoked", "parked":
		if s := l.subscriber(in.subscription); s != nil {
			return s.take(in)
		}
	case "ok":
		return l.ok(in)
	case "delivery":
		if w := l.worker(in.queue); w != nil {
			return w.take(l, in)
		}
	case "error":
		return l.failed(in)
	case "chat", "gap", "presence", "history_lost":
		l.c.mu.Lock()
		m, left := l.c.rooms[string(in.room)], l.left[string(in.room)] > 0
		l.c.mu.Unlock()
		if m != nil && !left {
			return m.take(in)
		}
	case "expiring":
		go l.renew()
	case "":
		if len(in.raw) > 0 && in.raw[0] == '[' {
			return nil // messages of a room as an array come only if they were asked for
		}
	}
	return nil
}

// subscriber finds a subscription: mostly it is that of the message before.
func (l *link) subscriber(name []byte) subscriber {
	if l.reader.last != nil && l.reader.name == string(name) {
		return l.reader.last
	}
	l.c.mu.Lock()
	s := l.c.subs[string(name)]
	l.c.mu.Unlock()
	if s != nil {
		l.reader.name, l.reader.last = string(name), s
	}
	return s
}

func (l *link) worker(queue []byte) *workerCore {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.workers[string(queue)]
}

// ok takes the answer to a request. One without a field that it must have comes from a broken server: its connection ends, and the request
// is repeated.
func (l *link) ok(in *incoming) error {
	c := l.c
	c.mu.Lock()
	r := c.sent[in.id]
	c.mu.Unlock()
	if r == nil {
		return nil
	}
	a, err := r.accept(in)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.unlock()
	if c.sent[in.id] != r {
		return nil
	}
	delete(c.sent, in.id)
	if r.finished {
		return nil
	}
	r.answer = a
	if len(r.members) > 0 {
		c.settle(r)
		return nil
	}
	c.finish(r, nil)
	return nil
}

// failed takes the error to a request, or one that ends something.
func (l *link) failed(in *incoming) error {
	text, err := in.json()
	if err != nil {
		return err
	}
	var w wireError
	if err := json.Unmarshal(text, &w); err != nil {
		return fmt.Errorf("tidewire: an error of the server: %w", err)
	}
	c := l.c
	c.mu.Lock()
	defer c.unlock()
	if r := c.sent[in.id]; r != nil && in.id != 0 {
		delete(c.sent, in.id)
		if r.finished {
			return nil
		}
		if w.Code == "token_expired" {
			go l.renew()
		}
		c.refuse(r, &w)
		return nil
	}
	failure := w.typed("")
	switch {
	case w.Subscription != "":
		if s := c.subs[w.Subscription]; s != nil {
			c.after = append(c.after, func() { s.failed(failure) })
		}
	case w.Queue != "":
		if s := c.workers[w.Queue]; s != nil {
			c.after = append(c.after, func() { s.failed(failure) })
		}
	case w.Room != "":
		if m := c.rooms[w.Room]; m != nil {
			c.after = append(c.after, func() { m.failed(failure) })
		}
	}
	return nil
}

// renew sends a new token, until the server takes one or the connection ends.
func (l *link) renew() {
	c := l.c
	if !l.renewing.CompareAndSwap(false, true) {
		return
	}
	defer l.renewing.Store(false)
	for n := 0; !l.ended.Load(); n++ {
		token, err := c.token(c.life)
		if final := endsClient(err); final != nil {
			c.shut(final)
			return
		}
		if err == nil && l.authenticate(token) {
			return
		}
		select {
		case <-time.After(pause(n)):
		case <-l.over:
		case <-c.life.Done():
		}
	}
}

// authenticate sends a token, and reports whether the server takes it.
func (l *link) authenticate(token string) bool {
	c := l.c
	r := &request{kind: "auth", repeat: own, encode: func(w *writer, _ *request) { w.text("token", token) }}
	c.mu.Lock()
	if c.link != l {
		c.unlock()
		return false
	}
	c.startOn(l, r)
	c.unlock()
	late := time.NewTimer(c.within)
	defer late.Stop()
	select {
	case <-r.done:
	case <-l.over:
		return false
	case <-late.C:
		return false
	}
	c.setRefused(r.err != nil)
	return r.err == nil
}

// requestID writes the id of a request as text.
func requestID(id uint64) string { return strconv.FormatUint(id, 10) }
