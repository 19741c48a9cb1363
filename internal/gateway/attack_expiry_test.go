package gateway_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// lastRequest is something to be stored that is asked for just before a token ends.
type lastRequest struct {
	closed
	path, right string
	requests    []string // before the end; the last one has the id "early"
	late        string   // after the end, with the id "late"; "" for none
	hold        func(bool)
	count       func() int
}

// TestAttack_TokenEndsWhilePublishing: what waits for its commit when the token ends has one answer, ok if it is stored, and what is sent
// after that is not stored.
func TestAttack_TokenEndsWhilePublishing(t *testing.T) {
	t.Parallel()
	const publish = `"type":"publish","stream":"orders","payload":"x"}`
	for name, d := range map[string]struct {
		path  string
		grace time.Duration
	}{"publish": {"/ws", 0}, "publish with a grace": {"/ws", time.Hour}, "chat on /ws": {"/ws", 0}, "chat": {"/ws/chat", 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rooms := newMemoryStore(t)
			c := serveClosed(t, func(cfg *gateway.Config) {
				cfg.Auth.Grace, cfg.Engine.Rooms, cfg.Chat.StoredRooms = d.grace, rooms, []string{"kept"}
			})
			l := lastRequest{c, d.path, "publish stream:orders", []string{`{"id":"early",` + publish}, "", c.streams.hold, func() int { n, _ := c.streams.stored("orders"); return n }}
			switch {
			case d.grace > 0:
				l.late = `{"id":"late",` + publish
			case name != "publish":
				l.right, l.requests = "join,chat room:kept", []string{`{"id":"join","type":"join","room":"kept"}`, `{"id":"early","type":"chat","room":"kept","text":"x"}`}
				l.hold, l.count = rooms.hold, func() int { n, _ := rooms.Head(t.Context()); return int(n) }
			}
			for range 20 {
				if l.send() {
					return
				}
			}
			t.Fatal("the machine is too slow")
		})
	}
}

// send returns false if the token had ended before the server took the requests.
func (l *lastRequest) send() bool {
	l.t.Helper()
	before := l.count()
	w := l.connect()
	if w == nil {
		return false
	}
	defer w.Abort()
	defer l.hold(false)
	if l.late != "" {
		send(l.t, w.Conn, l.late)
	}
	l.hold(false)
	answers := make(map[string]string)
	for {
		w.SetReadDeadline(time.Now().Add(patience))
		messages, err := read(w.Conn)
		for _, m := range messages {
			var got struct{ ID, Type, Code string }
			json.Unmarshal(m.Payload, &got)
			if answers[got.ID] != "" && got.ID != "" {
				l.t.Errorf("%s is answered twice", got.ID)
			}
			answers[got.ID] = got.Type + got.Code
		}
		if err != nil || l.late != "" && answers["late"] != "" && answers["early"] != "" {
			break
		}
	}
	if answers["early"] == "errortoken_expired" || answers["join"] == "errortoken_expired" {
		return false
	}
	if n := l.count() - before; answers["early"] != "ok" || n != 1 || l.late != "" && answers["late"] != "errortoken_expired" {
		l.t.Errorf("answers %v, and %d are stored", answers, n)
	}
	return true
}

// connect connects with a token that is about to end, sends the requests, none of which is committed, and waits for the end of the token.
// It returns nil if the token had ended before the handshake.
func (l *lastRequest) connect() *wire {
	l.t.Helper()
	token := tokenOf(l.t, "ann", shortLife, l.right)
	conn, err := websocket.Dial(l.t.Context(), "ws://"+l.addr+l.path, websocket.Config{Header: bearer(token)})
	if err != nil {
		return nil
	}
	l.hold(true)
	send(l.t, conn, l.requests...)
	for l.status("GET", "/v1/streams", "", token) != "401 token_expired" {
	}
	return &wire{Conn: conn, t: l.t}
}

// TestAttack_TokenEndsWithoutACommit: a commit that does not come does not keep a connection open after the end of its token.
func TestAttack_TokenEndsWithoutACommit(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	l := lastRequest{c, "/ws", "publish stream:orders", []string{`{"id":"early","type":"publish","stream":"orders","payload":"x"}`}, "", c.streams.hold, nil}
	for range 20 {
		w := l.connect()
		if w == nil {
			continue
		}
		got := closeOf(w)
		w.Abort()
		c.streams.hold(false)
		if got != 4401 {
			t.Errorf("closed with %d", got)
		}
		return
	}
	t.Fatal("the machine is too slow")
}
