package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// patience is how long a test waits for something that must come. It is long,
// for busy machines; a passing test never waits that long.
const patience = 15 * time.Second

// client is a connection to the server. It reads messages continuously.
type client struct {
	t     *testing.T
	conn  *websocket.Conn
	began time.Time   // before the connection
	inbox chan []byte // closed at the end
	pongs chan []byte
	err   error     // why the connection ended, once inbox is closed
	ended time.Time // when the connection ended
	pings int64     // the last ts of sync
}

func dial(t *testing.T, s *server) *client {
	t.Helper()
	c := &client{t: t, began: time.Now(), inbox: make(chan []byte, 10_000), pongs: make(chan []byte, 100)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	c.conn, err = websocket.Dial(ctx, s.url, websocket.Config{
		OnPong: func(payload []byte) { c.pongs <- bytes.Clone(payload) },
	})
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() { c.read(); close(read) }()
	t.Cleanup(func() {
		c.conn.Abort()
		<-read
	})
	return c
}

// member returns a client that has joined rooms.
func member(t *testing.T, s *server, rooms ...string) *client {
	t.Helper()
	c := dial(t, s)
	for _, room := range rooms {
		c.send(`{"type":"join","room":%q,"user":"somebody"}`, room)
	}
	c.sync()
	return c
}

// publicMember is a member of the public room, where other tests may send chats.
func publicMember(t *testing.T, s *server, join string) *client {
	t.Helper()
	c := dial(t, s)
	c.send("%s", join)
	c.syncAmongOthers()
	return c
}

func (c *client) read() {
	for {
		messages, err := c.conn.Read()
		for _, m := range messages {
			c.inbox <- bytes.Clone(m.Payload)
		}
		if err != nil {
			c.err, c.ended = err, time.Now()
			close(c.inbox)
			if _, closed := errors.AsType[*websocket.CloseError](err); closed {
				c.conn.Close(websocket.StatusNormal, "")
			}
			return
		}
	}
}

func (c *client) send(format string, args ...any) {
	c.t.Helper()
	c.queue(websocket.OpText, fmt.Appendf(nil, format, args...))
	c.flush()
}

func (c *client) queue(op websocket.Opcode, payload []byte) {
	c.t.Helper()
	if err := c.conn.Queue(op, payload); err != nil {
		c.t.Fatalf("send %.100q: %v", payload, err)
	}
}

func (c *client) flush() {
	c.t.Helper()
	if err := c.conn.Flush(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) say(room, text string) {
	c.t.Helper()
	c.send(`{"type":"chat","room":%q,"text":%q}`, room, text)
}

// next returns the next message.
func (c *client) next() []byte {
	c.t.Helper()
	select {
	case m, open := <-c.inbox:
		if !open {
			c.t.Fatalf("the connection ended: %v", c.err)
		}
		return m
	case <-time.After(patience):
		c.t.Fatal("nothing arrives")
	}
	return nil
}

// message is what any message may have.
type message struct {
	Type string          `json:"type"`
	Text string          `json:"text"`
	TS   json.RawMessage `json:"ts"`
}

func parse(t *testing.T, payload []byte) message {
	t.Helper()
	var m message
	if err := json.Unmarshal(payload, &m); err != nil {
		t.Fatalf("the server sent %.200q: %v", payload, err)
	}
	return m
}

// hears expects a chat as the next message: unchanged, or as equivalent JSON.
func (c *client) hears(want string) {
	c.t.Helper()
	got := c.next()
	for parse(c.t, got).Type == "ping" {
		got = c.next()
	}
	if string(got) != want && !sameJSON(c.t, got, []byte(want)) {
		c.t.Errorf("got  %.200q\nwant %.200q", got, want)
	}
}

// hearsText expects a chat with that text as the next message.
func (c *client) hearsText(want string) {
	c.t.Helper()
	if m := c.nextButPings(); m.Type != "chat" || m.Text != want {
		c.t.Errorf("got a %s %q, want a chat %q", m.Type, m.Text, want)
	}
}

// awaits skips other chats in a room that tests share.
func (c *client) awaits(text string) {
	c.t.Helper()
	for parse(c.t, c.next()).Text != text {
	}
}

// sync returns when the server has handled what was sent before: a connection's
// messages are handled in their order. No chat may be on its way.
func (c *client) sync() {
	c.t.Helper()
	c.ping()
	if m := c.nextButPings(); !c.answersPing(m) {
		c.t.Fatalf("got a %s with ts %s, want a pong with ts %d", m.Type, m.TS, c.pings)
	}
}

// syncAmongOthers is sync in a room that tests share: it skips other chats.
func (c *client) syncAmongOthers() {
	c.t.Helper()
	c.ping()
	for !c.answersPing(c.nextButPings()) {
	}
}

func (c *client) ping() {
	c.t.Helper()
	c.pings++
	c.send(`{"type":"ping","ts":%d}`, c.pings)
}

func (c *client) answersPing(m message) bool {
	return m.Type == "pong" && sameJSON(c.t, m.TS, fmt.Append(nil, c.pings))
}

// nextButPings returns the next message that is not a ping of the server.
func (c *client) nextButPings() message {
	c.t.Helper()
	for {
		if m := parse(c.t, c.next()); m.Type != "ping" {
			return m
		}
	}
}

// closedWith waits for the end and checks the code of the Close frame.
func (c *client) closedWith(want websocket.StatusCode) {
	c.t.Helper()
	err := c.end()
	if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != want {
		c.t.Errorf("the connection ended with %v, want a Close frame with code %d", err, want)
	}
}

// end waits for the server to end the connection.
func (c *client) end() error {
	c.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case _, open := <-c.inbox:
			if !open {
				return c.err
			}
		case <-deadline:
			c.t.Fatal("the server does not close the connection")
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	return reflect.DeepEqual(decode(t, a), decode(t, b))
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // or a large number would be equal to another
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%.200q is no JSON: %v", text, err)
	}
	return v
}
