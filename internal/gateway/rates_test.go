package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/websocket"
)

// oneRequest is a rate at which a connection may send one message, and then none for hours.
const oneRequest = 0.0001

// TestRates_Requests: a message over the rate has no effect, is answered if it has an id, and does not keep what it ends.
func TestRates_Requests(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{true, false} {
		l := serveLimited(t, "", limits.Config{RequestRate: oneRequest}, open, nil)
		c, _, _ := l.dial("/ws", bearer(tokenOf(t, "ann", time.Hour)))
		c.ask(`{"type":"publish","stream":"orders","payload":"1","id":1}`, `{"type":"ok","id":1,"position":1}`)
		a := c.refusedWith(`{"type":"publish","stream":"orders","payload":"2","id":"x"}`)
		if a.Code != "rate_limited" || a.ID != "x" {
			t.Errorf("open %v: %+v", open, a)
		}
		send(t, c.Conn, `{"type":"publish","stream":"orders","payload":"3"}`) // no answer
		if a := c.refusedWith(`{"type":"unsubscribe","subscription":"none","id":"x"}`); a.Code != "not_subscribed" {
			t.Errorf("open %v: what ends something is refused: %+v", open, a)
		}
		if n := l.registry.Limited(); n != 2 {
			t.Errorf("open %v: %d messages are counted, want 2", open, n)
		}
		other, _, _ := l.dial("/ws/chat", bearer(tokenOf(t, "ann", time.Hour))) // the bucket of the user is empty too
		if a := other.refusedWith(`{"type":"join","room":"a","id":"x"}`); a.Code != "rate_limited" {
			t.Errorf("open %v: another connection of the user: %+v", open, a)
		}
		if got := l.once("GET", "/v1/streams/orders", tokenOf(t, "ann", time.Hour)); got != "429 rate_limited" {
			t.Errorf("open %v: HTTP got %s", open, got)
		}
		for _, path := range []string{"/nothing", "/v1/nothing", "/v1/streams?a=%zz", "/ws", "/v1/streams/ack", "/v1/queues/jobs/ack", "/nothing/ack"} {
			if got := l.once("GET", path, tokenOf(t, "ann", time.Hour)); got != "429 rate_limited" {
				t.Errorf("open %v: %s got %s", open, path, got)
			}
		}
		if !open {
			bob, _, _ := l.dial("/ws", bearer(tokenOf(t, "bob", time.Hour)))
			bob.ask(`{"type":"publish","stream":"orders","payload":"4","id":1}`, `{"type":"ok","id":1,"position":2}`)
		}
	}
}

// TestRates_Bytes: a message over the rate of bytes is refused without being decoded.
func TestRates_Bytes(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{ByteRate: 1, MaxMessage: 1000}, true, nil)
	c, _, _ := l.dial("/ws", nil)
	pad := strings.Repeat("x", 900)
	c.ask(`{"type":"publish","stream":"orders","payload":"`+pad+`","id":1}`, `{"type":"ok","id":1,"position":1}`)
	if a := c.refusedWith(`{"id":"x","type":"publish","stream":"orders","payload":"` + pad + `"}`); a.Code != "rate_limited" {
		t.Errorf("%+v", a)
	}
}

// TestRates_Closed: a client that goes on for too long is closed with 4429, on each endpoint with answers, and by Pings alone.
func TestRates_Closed(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{RequestRate: oneRequest}, true, nil)
	for _, path := range []string{"/ws", "/ws/chat", "ping"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			op, text := websocket.OpText, `{"type":"leave-not"}`
			if path == "ping" {
				path, op, text = "/ws", websocket.OpPing, ""
			}
			w, _, _ := l.dial(path, nil)
			stop := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				for errors.Join(w.Queue(op, []byte(text)), w.Flush()) == nil {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
				}
			}()
			w.t = t
			if got := closeOf(w); got != 4429 {
				t.Errorf("closed with %d, want 4429", got)
			}
			close(stop)
			<-done
		})
	}
}

// TestRates_AcksWhileItWaits: a client that waits as long as it is told, each time, is not closed, although it settles messages and answers Pings
// meanwhile.
func TestRates_AcksWhileItWaits(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{RequestRate: 2}, true, nil)
	for path, texts := range map[string][2]string{
		"/ws":      {`{"type":"publish","stream":"orders","payload":"x","id":"x"}`, `{"type":"ack","queue":"jobs","delivery":"1"}`},
		"/ws/chat": {`{"type":"leave-not","id":"x"}`, `{"type":"pong"}`},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w, _, _ := l.dial(path, nil)
			w.t = t
			for waits := 0; waits < 9; { // four seconds at least
				var told struct {
					Code  string
					After int `json:"retry_after_ms"`
				}
				send(t, w.Conn, texts[0])
				if answer := w.next(); json.Unmarshal([]byte(answer), &told) != nil {
					t.Fatalf("answered with %s", answer)
				}
				if told.Code != "rate_limited" {
					continue
				}
				waits++
				if err := errors.Join(w.Queue(websocket.OpPong, nil), w.Flush()); err != nil {
					t.Fatal(err)
				}
				for range 4 {
					send(t, w.Conn, texts[1])
					<-time.After(time.Duration(told.After)*time.Millisecond/4 + time.Millisecond)
				}
			}
		})
	}
}

// TestRates_Ingest: what comes over the rate is not read, and is not lost; a stop does not wait for the time to pass.
func TestRates_Ingest(t *testing.T) {
	t.Parallel()
	store := &memory{}
	l := serveLimited(t, "", limits.Config{RequestRate: oneRequest}, true, func(cfg *gateway.Config) {
		cfg.Engine = engine.Engine{Ingest: store.source}
	})
	w, _, _ := l.dial("/ws/ingest", nil)
	send(t, w.Conn, "1", "2")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- l.server.Shutdown(ctx) }()
	go w.Close(websocket.StatusNormal, "")
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestRates_Tokens: a client that sends one token after the other is told to wait.
func TestRates_Tokens(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{Pending: 100}, false, nil)
	token := tokenOf(t, "ann", time.Hour)
	for _, path := range []string{"/ws", "/ws/chat"} {
		c, _, _ := l.dial(path, bearer(token))
		limited := 0
		for range 30 {
			if got := c.code(fmt.Sprintf(`{"type":"auth","id":"x","token":%q}`, token)); got == "errorrate_limited" {
				limited++
			}
		}
		if limited == 0 {
			t.Errorf("%s: 30 tokens were taken", path)
		}
	}
}

// raw is a WebSocket whose frames the test writes itself.
func raw(t *testing.T, addr, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := websocket.ClientHandshake(conn, &url.URL{Scheme: "ws", Host: addr, Path: path}); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestLimits_Pings: a million Pings on each endpoint leave the server as it was.
func TestLimits_Pings(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{RequestRate: 1000}, true, nil)
	ping := websocket.AppendMaskedFrame(nil, websocket.OpPing, [4]byte{1, 2, 3, 4}, nil)
	burst := bytes.Repeat(ping, 10_000)
	for _, path := range []string{"/ws", "/ws/chat", "/ws/ingest"} {
		conn := raw(t, l.addr, path)
		go io.Copy(io.Discard, conn)
		for range 1_000_000 / 10_000 / 3 {
			if _, err := conn.Write(burst); err != nil {
				break // closed, because it has taken too long
			}
		}
		conn.Close()
	}
	w, _, _ := l.dial("/ws/lanes", nil)
	w.Abort()
}

// TestLimits_Fragments: a message of too many frames ends the connection, with and without content.
func TestLimits_Fragments(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{}, true, nil)
	for _, payload := range []string{"", "x"} {
		conn := raw(t, l.addr, "/ws")
		frames := websocket.AppendMaskedFrame(nil, websocket.OpText, [4]byte{}, []byte(payload))
		frames[0] &^= 0x80 // not the last
		more := websocket.AppendMaskedFrame(nil, websocket.OpContinuation, [4]byte{}, []byte(payload))
		more[0] &^= 0x80
		go conn.Write(append(frames, bytes.Repeat(more, 2000)...))
		conn.SetReadDeadline(time.Now().Add(patience))
		got, _ := io.ReadAll(conn)
		if !bytes.Contains(got, []byte("too many fragments")) {
			t.Errorf("%q: got %q", payload, got)
		}
	}
}

// TestLimits_JSONBombs: JSON that is nested too deeply is refused, wherever it is, on both doors.
func TestLimits_JSONBombs(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{}, true, nil)
	const depth = 100_000
	for _, bomb := range []string{strings.Repeat("[", depth) + strings.Repeat("]", depth), strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth), strings.Repeat("[", 64) + strings.Repeat("]", 64)} {
		ws, chat := connect(t, l.addr), &wire{Conn: dial(t, "ws://"+l.addr+"/ws/chat"), t: t}
		for _, kind := range []string{"publish", "subscribe", "commit", "enqueue", "consume", "ack", "append", "query", "project", "credit", "auth", "join", "chat", "leave", "pong", "nonsense"} {
			for _, field := range []string{"headers", "data", "payload", "events", "query", "text", "token", "other"} {
				text := fmt.Sprintf(`{"id":"x","type":%q,%q:%s}`, kind, field, bomb)
				for _, c := range []*wire{ws, chat} {
					a := c.refusedWith(text)
					// A field of another type is refused as that, and not looked into.
					if a.Code != "malformed" || !strings.Contains(a.Message, "nested too deeply") && !(c == ws && strings.HasPrefix(a.Message, field) && strings.Contains(a.Message, ": want a")) {
						t.Errorf("%s with %s: %+v", kind, field, a)
					}
				}
				if len(bomb) > 1000 {
					break // one field is enough of the large ones
				}
			}
		}
		for _, path := range []string{"streams/orders/messages", "queues/jobs/messages", "queues/jobs/ack", "events", "events/query", "events/project"} {
			resp, err := http.Post("http://"+l.addr+"/v1/"+path, "application/json", strings.NewReader(`{"headers":`+bomb+`}`))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "nested too deeply") {
				t.Errorf("%s: %d %s", path, resp.StatusCode, body)
			}
		}
	}
	deep := strings.Repeat("[", 60) + strings.Repeat("]", 60)
	c := connect(t, l.addr)
	c.ask(`{"type":"publish","stream":"orders","payload":"1","headers":{"a":`+deep+`},"id":1}`, `{"type":"ok","id":1,"position":1}`)
}

// TestLimits_Headers: a request with many header lines is refused.
func TestLimits_Headers(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{}, true, nil)
	if resp, _ := l.refusedHandshake(strings.Repeat("X: y\r\n", 101)); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d, want 431", resp.StatusCode)
	}
}
