package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// talk opens a connection to the chat and joins.
func talk(t *testing.T, addr, room string) *wire {
	t.Helper()
	w := connect(t, addr)
	w.ask(fmt.Sprintf(`{"type":"join","room":%q,"user":"u","id":1}`, room), `{"id":1,"type":"ok"}`)
	return w
}

func TestChat_ReachesTheOthersAsItWasSent(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat})
	alice, bob, other := talk(t, addr, "public"), talk(t, addr, "public"), talk(t, addr, "elsewhere")
	odd := "{\"ts\": 1e3 ,  \"text\":\"h\u00e9\", \"extra\":[1,{}],\"type\":\"chat\"}"
	send(t, alice.socket, odd)
	send(t, other.socket, `{"type":"chat","room":"elsewhere","text":"unheard"}`)
	bob.want(odd)
	bob.ask(`{"type":"chat","text":"answer","id":"a"}`, `{"id":"a","type":"ok"}`) // and not its own message
	alice.want(`{"type":"chat","text":"answer"}`)
	other.ask(`{"type":"ping","ts":[7]}`, `{"ts":[7],"type":"pong"}`)   // and nothing of the other room
	send(t, dial(t, "ws://"+addr+"/ws"), `{"type":"chat","text":"hi"}`) // without a join it goes to the public room
	bob.want(`{"type":"chat","text":"hi"}`)
}

// TestChat_RateLimit: chats over the limit are dropped, and answered if they have an id. Others are not harmed.
func TestChat_RateLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, addr := serve(t, gateway.Config{Only: gateway.Chat, Chat: gateway.ChatConfig{RateLimit: 1, RateBurst: 3}})
		alice, bob, carol := talk(t, addr, "public"), talk(t, addr, "public"), talk(t, addr, "public")
		flood := numbered(50, `{"type":"chat","text":"%d"}`)
		send(t, alice.socket, append(flood, `{"type":"chat","text":"x","id":9}`)...)
		bob.want(flood[:3]...)
		var refused struct {
			Code  string
			ID    int
			Retry int `json:"retry_after_ms"`
		}
		if text := alice.next(); json.Unmarshal([]byte(text), &refused) != nil || refused.Code != "rate_limited" || refused.ID != 9 || refused.Retry < 1 || refused.Retry > 1001 {
			t.Fatalf("got %s, want rate_limited and when to retry", text)
		}
		send(t, carol.socket, `{"type":"chat","text":"polite"}`)
		bob.want(`{"type":"chat","text":"polite"}`)
		time.Sleep(time.Duration(refused.Retry) * time.Millisecond)
		send(t, alice.socket, `{"type":"chat","text":"again"}`)
		bob.want(`{"type":"chat","text":"again"}`)
		carol.want(append(flood[:3:3], `{"type":"chat","text":"again"}`)...)
		for _, line := range []string{"tidewire_chat_messages_total 5", "tidewire_chat_dropped_total 48", "tidewire_chat_deliveries_total 10"} {
			waitMetric(t, addr, line)
		}
	})
}

func TestChat_Presence(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat})
	alice, bob, carol := connect(t, addr), connect(t, addr), connect(t, addr)
	alice.ask(`{"type":"join","room":"r","user":"alice","presence":true,"id":1}`, `{"id":1,"type":"ok"}`)
	alice.want(`{"type":"presence","room":"r","count":1,"members":["alice"]}`)
	bob.ask(`{"type":"join","room":"r","user":"bob","id":1}`, `{"id":1,"type":"ok"}`)
	alice.want(`{"type":"presence","room":"r","count":2,"joined":["bob"]}`)
	bob.ask(`{"type":"join","room":"r","user":"robert","presence":true,"id":2}`, `{"id":2,"type":"ok"}`)
	bob.want(`{"type":"presence","room":"r","count":2,"members":["alice","bob"]}`)
	send(t, carol.socket, `{"type":"join","room":"r"}`) // has no name
	alice.want(`{"type":"presence","room":"r","count":3}`)
	bob.want(`{"type":"presence","room":"r","count":3}`)
	send(t, alice.socket, `{"type":"join","room":"other","user":"alice"}`)
	alice.ask(`{"type":"leave","room":"r","id":2}`, `{"id":2,"type":"ok"}`)
	bob.want(`{"type":"presence","room":"r","count":2,"left":["alice"]}`)
	carol.Abort()
	bob.want(`{"type":"presence","room":"r","count":1}`)
	send(t, alice.socket, `{"type":"join","room":"r","user":"alice","presence":true}`)
	alice.want(`{"type":"presence","room":"r","count":2,"members":["alice","bob"]}`) // and nothing since it left
	bob.want(`{"type":"presence","room":"r","count":2,"joined":["alice"]}`)
	alice.Abort()
	bob.want(`{"type":"presence","room":"r","count":1,"left":["alice"]}`)
}

func TestChat_BadMessagesAreIgnoredOrAnswered(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat, Chat: gateway.ChatConfig{MaxRooms: 2}})
	c := talk(t, addr, "public")
	deep, long := strings.Repeat(`[`, 20_000)+strings.Repeat(`]`, 20_000), strings.Repeat("x", 200)
	send(t, c.socket, `nonsense`, ``, `null`, `[]`, `"text"`, `7`, `{}`, `{"type":7}`, `{"type":"chat"}`, `{"type":"chat","text":7}`,
		`{"type":"fly"}`, `{"type":"chat","text":"x","room":"never joined"}`, `{"type":"join","room":"`+long+`"}`,
		`{"type":"join","user":"`+long+`"}`, `{"type":"chat","text":`+deep+`}`, deep, `{"type":"join","id":{"no":"scalar"}}`)
	for _, q := range []struct{ request, code string }{
		{`"type":"chat"`, "malformed"}, {`"type":"fly"`, "unknown_type"}, {`"type":"chat","text":"x","room":"never joined"`, "not_joined"}, {`"type":"join","room":"` + long + `"`, "name_too_long"},
		{`"type":"join","room":"second"`, "ok"}, {`"type":"join","room":"third"`, "too_many_rooms"}, {`"type":"join","room":"second"`, "ok"}, {`"type":"join","presence":[true]`, "malformed"},
		{`"type":"join","presence":null`, "ok"},
	} {
		if got := c.code(`{"id":"x",` + q.request + `}`); got != q.code {
			t.Errorf("%s: %s, want %s", q.request, got, q.code)
		}
	}
	many := dial(t, "ws://"+addr+"/ws")
	many.Queue(websocket.OpText, []byte("{\"type\":\"chat\",\"text\":\"\xff\"}")) // invalid UTF-8 in a text frame ends the connection
	many.Flush()
	if got := closeOf(t, many); got != websocket.StatusInvalidPayload {
		t.Errorf("closed with %d, want 1007", got)
	}
}

// TestHeartbeat: who answers the pings of the endpoint or of WebSocket, or sends anything, stays. Who is silent for too long is closed.
func TestHeartbeat(t *testing.T) {
	const timeout = 5 * time.Second
	for path, pings := range map[string]bool{"/ws": false, "/ws/chat": true} {
		t.Run(path, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				_, addr := serve(t, gateway.Config{Chat: gateway.ChatConfig{PingInterval: timeout / 10, PongTimeout: timeout}})
				dialed := func() socket { return dial(t, "ws://"+addr+path) }
				clients := map[string]socket{"answers Pings": dialed(), "sends Pings": dialed(), "sends pongs": dialed()}
				heard := make(map[string]*atomic.Int64)
				for name, c := range clients {
					n := new(atomic.Int64)
					heard[name] = n
					go func() { // reads, which answers the Pings of WebSocket
						for _, err := read(c); err == nil; _, err = read(c) {
							n.Add(1)
						}
						n.Store(-1)
					}()
				}
				for began := time.Now(); time.Since(began) < 3*timeout; time.Sleep(timeout / 10) {
					clients["sends Pings"].Queue(websocket.OpPing, nil)
					clients["sends Pings"].Flush()
					send(t, clients["sends pongs"], `{"type":"pong"}`)
				}
				for name, n := range heard {
					if got := n.Load(); got < 0 || (got > 20) != pings {
						t.Errorf("a client that %s has ended, or got %d messages", name, got)
					}
				}
				silent := dialed()
				silent.(*pipeConn).mute = true
				if got := closeOf(t, silent); got != websocket.StatusPolicyViolation {
					t.Errorf("the silent client was closed with %d, want 1008", got)
				}
			})
		})
	}
}

// TestSilence_StoreIsBusy: nothing is read while the store is at its limit. That time does not count as silence of the client.
func TestSilence_StoreIsBusy(t *testing.T) {
	for path, c := range map[string]struct{ request, answer string }{
		"/ws":      {`{"type":"publish","id":%d,"stream":"orders","payload":"a"}`, `{"type":"ok","id":%d,"position":%[1]d}`},
		"/ws/chat": {`{"type":"chat","id":%d,"text":"a"}`, `{"id":%d,"position":%[1]d,"type":"ok"}`},
	} {
		t.Run(path, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				let := make(chan struct{})
				streams, rooms := busyStreams{newFakeStreams(t, "orders"), let}, busyRooms{newMemoryStore(t), let}
				_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams, Rooms: rooms}, Chat: gateway.ChatConfig{PongTimeout: time.Second, StoredRooms: []string{"*"}}})
				w := &wire{socket: dial(t, "ws://"+addr+path), t: t}
				send(t, w.socket, fmt.Sprintf(c.request, 1))
				time.Sleep(5 * time.Second)
				send(t, w.socket, fmt.Sprintf(c.request, 2))
				close(let)
				w.want(fmt.Sprintf(c.answer, 1), fmt.Sprintf(c.answer, 2))
			})
		})
	}
}

func TestChat_LeaveAndShutdownCodes(t *testing.T) {
	t.Parallel()
	server, addr := serve(t, gateway.Config{Only: gateway.Chat})
	leaver, member := talk(t, addr, "public"), talk(t, addr, "public")
	send(t, leaver.socket, `{"type":"leave"}`)
	if got := closeOf(t, leaver); got != websocket.StatusNormal {
		t.Errorf("leave closed with %d, want 1000", got)
	}
	leaver.Close(websocket.StatusNormal, "")
	stopped := shutdown(t, server)
	if got := closeOf(t, member); got != websocket.StatusGoingAway {
		t.Errorf("the stop closed with %d, want 1001", got)
	}
	member.Close(websocket.StatusGoingAway, "")
	stopped()
	var stats strings.Builder
	server.WriteChatStats(&stats)
	for _, line := range []string{"--- Statistics ---", "Total messages: 0", "Total connections: 2", "Peak connections: 2",
		"Messages dropped: 0", "Message drop rate: 0.00%", "Throughput: ", "Processing time: ", "Average latency: ", "Deliveries: 0"} {
		if !strings.Contains(stats.String(), line) {
			t.Errorf("statistics lack %q:\n%s", line, stats.String())
		}
	}
}

// TestChat_WithFieldsOfAJoin joins the public room by a chat with a field of the application: the field does not request history.
func TestChat_WithFieldsOfAJoin(t *testing.T) {
	t.Parallel()
	store := newMemoryStore(t)
	for range 10 {
		store.put("public", `{"type":"chat","text":"`+strings.Repeat("x", 50<<10)+`"}`)
	}
	cfg := storedConfig(store)
	cfg.Engine.RoomsHead, cfg.Chat.StoredRooms = 10, []string{"*"}
	_, addr := serve(t, cfg)
	connect(t, addr).ask(`{"type":"chat","id":1,"text":"hello","history":10}`, `{"id":1,"position":11,"type":"ok"}`)
}
