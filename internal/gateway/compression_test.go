package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// compressing returns a configuration with compression, and without limits of rate that matter.
func compressing() gateway.Config {
	return gateway.Config{Compression: &websocket.Compression{}, Chat: gateway.ChatConfig{RateLimit: 1e6, RateBurst: 1e6}}
}

// browser connects as Chrome does: it offers compression, and compresses every message.
func browser(t *testing.T, url string) socket {
	t.Helper()
	c := dialAs(t, url, websocket.Config{Compression: &websocket.Compression{Threshold: 1}, MaxMessage: 8 << 20})
	c.(*websocket.Conn).AllowCompression()
	return c
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

// TestCompression_SameChats: members with compression, with batches, and with neither get the same chats of the others, in one order. Two
// of those with batches also send, and do not get their own.
func TestCompression_SameChats(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ws", "/ws/chat"} {
		_, addr := serve(t, compressing())
		to := "ws://" + addr + path
		listeners := []socket{dial(t, to), dial(t, to), browser(t, to), browser(t, to), browser(t, to), browser(t, to)}
		for i, c := range listeners {
			asks := i%2 == 1
			send(t, c, fmt.Sprintf(`{"type":"join","room":"a","id":1,"batch":%t}`, asks))
			switch {
			case asks && i > 1:
				expect(t, c, `{"batch":true,"id":1,"type":"ok"}`)
			case asks: // without compression
				expect(t, c, `{"batch":false,"id":1,"type":"ok"}`)
			default:
				expect(t, c, `{"id":1,"type":"ok"}`)
			}
		}
		const each = 100
		talkers := map[string]socket{"plain": dial(t, to), "three": listeners[3], "five": listeners[5]}
		send(t, talkers["plain"], `{"type":"join","room":"a","id":1}`)
		expect(t, talkers["plain"], `{"id":1,"type":"ok"}`)
		var talking sync.WaitGroup
		for name, c := range talkers {
			talking.Go(func() {
				for n := range each {
					size := 10
					if n%50 == 0 {
						size = 3000
					}
					text := fmt.Sprintf(`{"type":"chat","room":"a","user":%q,"text":"%d %s"}`, name, n, strings.Repeat("x", size))
					if c.Queue(websocket.OpText, []byte(text)) != nil || c.Flush() != nil {
						t.Error("cannot send")
					}
				}
			})
		}
		heard, batches := make([][]string, len(listeners)), make([]int, len(listeners))
		for i, c := range listeners {
			n := 3 * each
			if i == 3 || i == 5 {
				n = 2 * each
			}
			talking.Go(func() { heard[i], batches[i] = chats(t, c, n) })
		}
		talking.Wait()
		for i := range listeners {
			want := heard[0]
			for at, name := range map[int]string{3: "three", 5: "five"} {
				if i == at {
					want = slices.DeleteFunc(slices.Clone(want), func(chat string) bool { return strings.Contains(chat, fmt.Sprintf("%q", name)) })
				}
			}
			if !slices.Equal(heard[i], want) {
				t.Errorf("%s: member %d heard %d chats, and others than member 0", path, i, len(heard[i]))
			}
			if i != 3 && i != 5 && batches[i] > 0 {
				t.Errorf("%s: member %d got batches", path, i)
			}
		}
	}
}

// TestCompression_AfterAuthentication: before the token nothing is compressed by the server, and a compressed message of the client is
// bounded; the one with the token is accepted.
func TestCompression_AfterAuthentication(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Compression = &websocket.Compression{Threshold: 1} })
	w := dialRaw(t, c.addr)
	w.send(`{"type":"join","room":"a","id":"` + strings.Repeat("i", 100) + `"}`)
	if text, compressed, _ := w.next(); compressed || !strings.Contains(text, "unauthenticated") {
		t.Errorf("before the token: %s, compressed %t", text, compressed)
	}
	w.send(fmt.Sprintf(`{"type":"auth","id":1,"token":%q}`, tokenOf(t, "ada", time.Hour, "join,chat room:*")))
	if text, _, _ := w.next(); !strings.Contains(text, `"type":"ok"`) {
		t.Fatalf("the token: %s", text)
	}
	w.send(`{"type":"join","room":"a","id":"` + strings.Repeat("i", 100) + `"}`)
	if text, compressed, _ := w.next(); !compressed || !strings.Contains(text, `"type":"ok"`) {
		t.Errorf("after the token: %s, compressed %t", text, compressed)
	}
	large := dialRaw(t, c.addr)
	large.send(`{"type":"join","room":"` + strings.Repeat("x", 17<<10) + `"}`)
	if got := large.closeCode(); got != 1008 {
		t.Errorf("a large compressed message before the token: closed with %d, want 1008", got)
	}
}

// TestCompression_Off: without the setting an offer is not accepted, and batch has no effect.
func TestCompression_Off(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{})
	w := &wire{socket: browser(t, "ws://"+addr+"/ws"), t: t}
	w.ask(`{"type":"join","room":"a","id":1,"batch":true}`, `{"batch":false,"id":1,"type":"ok"}`)
	w.ask(`{"type":"join","room":"b","id":2,"batch":1}`, `{"code":"malformed","id":2,"message":"batch: want true or false","retryable":false,"type":"error"}`)
}

// TestCompression_Streams: subscriptions with and without compression get the same messages; large ones are compressed.
func TestCompression_Streams(t *testing.T) {
	t.Parallel()
	cfg := compressing()
	cfg.Engine = engine.Engine{Streams: newFakeStreams(t, "orders"), Ingest: (&memory{}).source}
	_, addr := serve(t, cfg)
	plain, writer := connect(t, addr), connect(t, addr)
	raw := []*rawClient{dialRaw(t, addr), dialRaw(t, addr)}
	plain.ask(`{"type":"subscribe","stream":"orders","id":1,"after":0}`, `{"type":"ok","id":1,"position":0}`)
	for _, c := range raw {
		c.send(`{"type":"subscribe","stream":"orders","id":1,"after":0}`)
		if got, _, _ := c.next(); got != `{"type":"ok","id":1,"position":0}` {
			t.Fatalf("got %s", got)
		}
	}
	const each = 30
	for n := range each {
		size := 1 + n%2*2000
		send(t, writer.socket, fmt.Sprintf(`{"type":"publish","stream":"orders","payload":"%d %s"}`, n, strings.Repeat("x", size)))
	}
	for n := range each {
		want := plain.next()
		for i, c := range raw {
			if text, compressed, _ := c.next(); untimed([]byte(text)) != want || compressed != (n%2 == 1) {
				t.Fatalf("message %d: subscription %d got %.100s, compressed %t, want %.100s", n, i, text, compressed, want)
			}
		}
	}
}
