package gateway_test

import (
	"fmt"
	"io"
	"net/http"
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
		l := serveLimited(t, limits.Config{RequestRate: oneRequest}, open, nil)
		c, _, _ := l.dial("/ws", bearer(tokenOf(t, "ann", time.Hour)))
		c.ask(`{"type":"publish","stream":"orders","payload":"1","id":1}`, `{"type":"ok","id":1,"position":1}`)
		a := c.refusedWith(`{"type":"publish","stream":"orders","payload":"2","id":"x"}`)
		if a.Code != "rate_limited" || a.ID != "x" {
			t.Errorf("open %v: %+v", open, a)
		}
		send(t, c.socket, `{"type":"publish","stream":"orders","payload":"3"}`) // no answer
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
	l := serveLimited(t, limits.Config{ByteRate: 1, MaxMessage: 1000}, true, nil)
	c, _, _ := l.dial("/ws", nil)
	pad := strings.Repeat("x", 900)
	c.ask(`{"type":"publish","stream":"orders","payload":"`+pad+`","id":1}`, `{"type":"ok","id":1,"position":1}`)
	if a := c.refusedWith(`{"id":"x","type":"publish","stream":"orders","payload":"` + pad + `"}`); a.Code != "rate_limited" {
		t.Errorf("%+v", a)
	}
}

// TestRates_Closed: a client that goes on for too long is closed with 4429, on each endpoint with answers, and by Pings alone.
func TestRates_Closed(t *testing.T) {
	for _, path := range []string{"/ws", "/ws/chat", "/ws?ping"} {
		t.Run(path, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				l := serveLimited(t, limits.Config{RequestRate: 2}, true, nil)
				op, text := websocket.OpText, `{"type":"leave-not"}`
				if path == "/ws?ping" {
					op, text = websocket.OpPing, ""
				}
				w, _, _ := l.dial(path, nil)
				for range 5000 {
					if w.Queue(op, []byte(text)); w.Flush() != nil {
						break
					}
					time.Sleep(time.Millisecond)
				}
				if got := closeOf(t, w); got != 4429 {
					t.Errorf("closed with %d, want 4429", got)
				}
			})
		})
	}
}

// TestRates_Ingest: what comes over the rate is not read, and is not lost; a stop does not wait for the time to pass.
func TestRates_Ingest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &memory{}
		l := serveLimited(t, limits.Config{RequestRate: 1}, true, func(cfg *gateway.Config) { cfg.Engine = engine.Engine{Ingest: store.source} })
		w, _, _ := l.dial("/ws/ingest", nil)
		for range 20 {
			send(t, w.socket, "x")
		}
		time.Sleep(5 * time.Second)
		if n := len(store.content()); n == 0 || n > 12 {
			t.Errorf("%d messages of 20 are stored after 5 seconds", n)
		}
		time.Sleep(30 * time.Second)
		if n := len(store.content()); n != 20 {
			t.Errorf("%d messages of 20 are stored", n)
		}
		for range 20 {
			send(t, w.socket, "x")
		}
		stopped, began := shutdown(t, l.server), time.Now()
		w.Close(websocket.StatusNormal, "")
		if stopped(); time.Since(began) > 15*time.Second {
			t.Errorf("the stop took %v", time.Since(began))
		}
	})
}

// TestRates_EarlyPings: Pings count before a token, too.
func TestRates_EarlyPings(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	w := dial(t, "ws://"+c.addr+"/ws")
	go func() {
		for w.Queue(websocket.OpPing, nil) == nil && w.Flush() == nil {
		}
	}()
	if got := closeOf(t, w); got != 4401 {
		t.Errorf("closed with %d", got)
	}
}

// TestRates_Tokens: a client that sends one token after the other is told to wait.
func TestRates_Tokens(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, limits.Config{Pending: 100}, false, nil)
	token := tokenOf(t, "ann", time.Hour)
	for _, path := range []string{"/ws", "/ws/chat"} {
		c, _, _ := l.dial(path, bearer(token))
		limited := 0
		for range 30 {
			if got := c.code(fmt.Sprintf(`{"type":"auth","id":"x","token":%q}`, token)); got == "rate_limited" {
				limited++
			}
		}
		if limited == 0 {
			t.Errorf("%s: 30 tokens were taken", path)
		}
	}
}

// TestRates_Handshakes: only handshakes have no rate.
func TestRates_Handshakes(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, limits.Config{RequestRate: oneRequest}, true, nil)
	l.once("GET", "/v1/streams", "")
	for _, r := range [][]string{{"GET", "/ws/nothing", "websocket"}, {"GET", "/ws/../v1/streams", "websocket"}, {"POST", "/ws", "websocket"}, {"GET", "/ws/chat", "x"}} {
		if got := l.once(r[0], r[1], "", "Connection", "Upgrade", "Upgrade", r[2]); got != "429 rate_limited" {
			t.Errorf("%s: got %s", r, got)
		}
	}
	if w, status, _ := l.dial("/ws", nil); w == nil {
		t.Errorf("a handshake was answered with %d", status)
	}
	for _, at := range []string{"//v1/queues/jobs/ack", "/v1/queues/./jobs/ack"} {
		if got := l.once("POST", at, ""); got != "429 rate_limited" {
			t.Errorf("%s: got %s", at, got)
		}
	}
}

// TestRates_Chunked: bodies of unknown length are refused while the user owes bytes.
func TestRates_Chunked(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, limits.Config{Pending: 100, RequestRate: 1000, ByteRate: 1 << 10, MaxMessage: 1 << 20}, false, nil)
	for n := 0; ; n++ {
		if n > 200 {
			t.Fatal("200 bodies of 64 KiB at 4 KiB a second are taken")
		}
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+l.addr+"/v1/streams/orders/messages",
			io.MultiReader(strings.NewReader(`{"messages":[{"payload":"`+strings.Repeat("x", 64<<10)+`"}]}`)))
		r.ContentLength, r.Header = -1, bearer(tokenOf(t, "ann", time.Hour), "Content-Type", "application/json")
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil { // the server answers 429 and closes the connection before it has read the body
			return
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests {
			return
		}
	}
}

// TestRates_ContentLength: a request that announces a large body, and does not send it, is no debt of the others of its address.
func TestRates_ContentLength(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, limits.Config{RequestRate: 1000, ByteRate: 8 << 20, MaxMessage: 1 << 20}, true, nil)
	victim, _, _ := l.dial("/ws", nil)
	conn := unread(t, l.addr, "POST /v1/queues/jobs/ack", "Content-Type: application/json\r\nContent-Length: 4611686018427387904\r\n")
	conn.SetReadDeadline(time.Now().Add(patience))
	conn.Read(make([]byte, 1)) // it is answered
	conn.Close()
	victim.ask(`{"type":"publish","stream":"orders","payload":"x","id":1}`, `{"type":"ok","id":1,"position":1}`)
}
