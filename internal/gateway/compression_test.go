package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// browser connects as Chrome does: it offers compression, and compresses every message.
func browser(t *testing.T, url string) *wire {
	t.Helper()
	c := dialAs(t, url, websocket.Config{Compression: &websocket.Compression{Threshold: 1}, MaxMessage: 8 << 20})
	c.(*websocket.Conn).AllowCompression()
	return &wire{socket: c, t: t}
}

// asks sends a request, and returns its answer and whether that came compressed.
func (w *wire) asks(text string) (answer string, compressed bool) {
	w.t.Helper()
	c := w.socket.(*websocket.Conn)
	before := c.Received()
	send(w.t, c, text)
	answer = w.next()
	return answer, c.Received()-before < int64(len(answer))
}

// chats reads n chats, those of batches one by one, and returns them with the number of batches.
func chats(t *testing.T, c socket, n int) (all []string, batches int) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	for len(all) < n {
		messages, err := c.Read()
		for _, m := range messages {
			one := []json.RawMessage{m.Payload}
			if m.Payload[0] == '[' {
				batches++
				if err := json.Unmarshal(m.Payload, &one); err != nil || len(one) < 2 {
					t.Fatalf("a batch of %d: %v", len(one), err)
				}
			}
			for _, chat := range one {
				all = append(all, string(chat))
			}
		}
		if err != nil {
			t.Fatalf("after %d of %d chats: %v", len(all), n, err)
		}
	}
	return all, batches
}

// TestCompression_SameChats: members with compression, with batches, and with neither get the same chats of another, in one order.
func TestCompression_SameChats(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ws", "/ws/chat"} {
		_, addr := serve(t, gateway.Config{Compression: &websocket.Compression{}, Chat: gateway.ChatConfig{RateLimit: 1e6, RateBurst: 1e6}})
		to := "ws://" + addr + path
		talker, plain, packed, batched := &wire{socket: dial(t, to), t: t}, &wire{socket: dial(t, to), t: t}, browser(t, to), browser(t, to)
		for _, c := range []*wire{talker, plain, packed} {
			c.ask(`{"type":"join","room":"a","id":1}`, `{"id":1,"type":"ok"}`)
		}
		batched.ask(`{"type":"join","room":"a","id":1,"batch":true}`, `{"batch":true,"id":1,"type":"ok"}`)
		send(t, talker.socket, numbered(100, `{"type":"chat","room":"a","text":"%d `+strings.Repeat("x", 1000)+`"}`)...)
		want, _ := chats(t, plain.socket, 100)
		for _, c := range []*wire{packed, batched} {
			got, batches := chats(t, c.socket, 100)
			if !slices.Equal(got, want) || batches > 0 && c == packed {
				t.Errorf("%s: got %d chats, and others than with neither, or %d batches", path, len(got), batches)
			}
			if received := c.socket.(*websocket.Conn).Received(); received > int64(len(strings.Join(got, "")))/2 {
				t.Errorf("%s: %d bytes came for what could be compressed well", path, received)
			}
		}
	}
}

// TestCompression_AfterAuthentication: before the token nothing is compressed by the server, and a compressed message of the client is bounded; the
// one with the token is accepted. Without the setting an offer is not accepted, and batch has no effect.
func TestCompression_AfterAuthentication(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Compression = &websocket.Compression{Threshold: 1} })
	w := browser(t, "ws://"+c.addr+"/ws")
	join := `{"type":"join","room":"a","id":"` + strings.Repeat("i", 100) + `"}`
	if text, compressed := w.asks(join); compressed || !strings.Contains(text, "unauthenticated") {
		t.Errorf("before the token: %s, compressed %t", text, compressed)
	}
	if text, _ := w.asks(fmt.Sprintf(`{"type":"auth","id":1,"token":%q}`, tokenOf(t, "ada", time.Hour, "join,chat room:*"))); !strings.Contains(text, `"type":"ok"`) {
		t.Fatalf("the token: %s", text)
	}
	if text, compressed := w.asks(join); !compressed || !strings.Contains(text, `"type":"ok"`) {
		t.Errorf("after the token: %s, compressed %t", text, compressed)
	}
	large := browser(t, "ws://"+c.addr+"/ws")
	send(t, large.socket, `{"type":"join","room":"`+strings.Repeat("x", 17<<10)+`"}`)
	if got := closeOf(t, large); got != websocket.StatusPolicyViolation {
		t.Errorf("a large compressed message before the token: closed with %d, want 1008", got)
	}
	_, addr := serve(t, gateway.Config{})
	off := browser(t, "ws://"+addr+"/ws")
	off.ask(`{"type":"join","room":"a","id":1,"batch":true}`, `{"batch":false,"id":1,"type":"ok"}`)
	off.ask(`{"type":"join","room":"b","id":2,"batch":1}`, `{"code":"malformed","id":2,"message":"batch: want true or false","retryable":false,"type":"error"}`)
}

// TestCompression_Streams: subscriptions with and without compression get the same messages; large ones are compressed.
func TestCompression_Streams(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Compression: &websocket.Compression{}, Engine: engine.Engine{Streams: newFakeStreams(t, "orders")}})
	plain, writer := connect(t, addr), connect(t, addr)
	packed := []*wire{browser(t, "ws://"+addr+"/ws"), browser(t, "ws://"+addr+"/ws")} // these share their frames
	for _, c := range append(packed, plain) {
		c.ask(`{"type":"subscribe","stream":"orders","id":1,"after":0}`, `{"type":"ok","id":1,"position":0}`)
	}
	for n := range 20 {
		before := []int64{packed[0].socket.(*websocket.Conn).Received(), packed[1].socket.(*websocket.Conn).Received()}
		send(t, writer.socket, fmt.Sprintf(`{"type":"publish","stream":"orders","payload":"%d %s"}`, n, strings.Repeat("x", 1+n%2*2000)))
		want := plain.next()
		for i, c := range packed {
			text := c.next()
			if small := c.socket.(*websocket.Conn).Received()-before[i] < int64(len(text)); text != want || small != (n%2 == 1) {
				t.Fatalf("message %d: subscription %d got %.100s, compressed %t, want %.100s", n, i, text, small, want)
			}
		}
	}
}
