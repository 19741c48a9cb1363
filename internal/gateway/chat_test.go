package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// talk opens a connection to the chat and joins, and reads the answer.
func talk(t *testing.T, addr, room string) *websocket.Conn {
	t.Helper()
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, fmt.Sprintf(`{"type":"join","room":%q,"user":"u","id":1}`, room))
	expect(t, c, `{"id":1,"type":"ok"}`)
	return c
}

// expect reads messages and expects exactly these.
func expect(t *testing.T, c *websocket.Conn, want ...string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	var got []string
	for len(got) < len(want) {
		messages, err := read(c)
		for _, m := range messages {
			got = append(got, untimed(m.Payload))
		}
		if err != nil {
			t.Fatalf("got %q, then %v, want %q", got, err, want)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestChat_ReachesTheOthersAsItWasSent(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat})
	alice, bob, other := talk(t, addr, "public"), talk(t, addr, "public"), talk(t, addr, "elsewhere")
	odd := "{\"ts\": 1e3 ,  \"text\":\"h\u00e9\", \"extra\":[1,{}],\"type\":\"chat\"}"
	send(t, alice, odd)
	send(t, other, `{"type":"chat","room":"elsewhere","text":"unheard"}`)
	expect(t, bob, odd)
	send(t, bob, `{"type":"chat","text":"answer","id":"a"}`)
	expect(t, bob, `{"id":"a","type":"ok"}`) // and not its own message
	expect(t, alice, `{"type":"chat","text":"answer"}`)
	send(t, other, `{"type":"ping","ts":[7]}`)
	expect(t, other, `{"ts":[7],"type":"pong"}`) // and nothing of the other room
}

func TestChat_WithoutJoinGoesToPublic(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat})
	member, guest := talk(t, addr, "public"), dial(t, "ws://"+addr+"/ws")
	send(t, guest, `{"type":"chat","text":"hello"}`)
	expect(t, member, `{"type":"chat","text":"hello"}`)
}

func TestChat_RateLimitDropsAndRefills(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat, Chat: gateway.ChatConfig{RateLimit: 1, RateBurst: 3}})
	alice, bob := talk(t, addr, "public"), talk(t, addr, "public")
	var flood []string
	for i := range 50 {
		flood = append(flood, fmt.Sprintf(`{"type":"chat","text":"%d"}`, i))
	}
	send(t, alice, append(flood, `{"type":"chat","text":"x","id":9}`)...)
	expect(t, bob, flood[:3]...)
	messages, err := read(alice)
	if err != nil {
		t.Fatal(err)
	}
	var refused struct {
		Type, Code string
		ID         int
		Retry      int `json:"retry_after_ms"`
	}
	if err := json.Unmarshal(messages[0].Payload, &refused); err != nil || refused.Code != "rate_limited" || refused.ID != 9 || refused.Retry < 1 || refused.Retry > 1001 {
		t.Fatalf("got %s, want rate_limited and when to retry", messages[0].Payload)
	}
	time.Sleep(time.Duration(refused.Retry) * time.Millisecond)
	send(t, alice, `{"type":"chat","text":"again"}`)
	expect(t, bob, `{"type":"chat","text":"again"}`)
	for _, line := range []string{"tidewire_chat_messages_total 4", "tidewire_chat_dropped_total 48", "tidewire_chat_deliveries_total 4"} {
		waitMetric(t, addr, line)
	}
}

// TestChat_FloodHarmsNobody: one connection sends a thousand chats a second,
// and another a few. All members get exactly the chats within the rate limit,
// in order.
func TestChat_FloodHarmsNobody(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat, Chat: gateway.ChatConfig{RateLimit: 50, RateBurst: 10}})
	flooder, polite, listener := talk(t, addr, "public"), talk(t, addr, "public"), talk(t, addr, "public")
	const total, every = 1000, 125
	chat := func(from string, n int) string {
		return fmt.Sprintf(`{"type":"chat","id":%d,"user":%q,"text":"%d"}`, n, from, n)
	}
	heardAs := func(from string, n int) string {
		return strings.Replace(chat(from, n), fmt.Sprintf(`"id":%d,`, n), "", 1)
	}
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	said, start := 0, time.Now()
	for n := range total {
		<-pace.C
		send(t, flooder, chat("flooder", n))
		if n%every == 0 {
			send(t, polite, chat("polite", said))
			said++
		}
	}
	var flood, spoken []string // what was let through
	for n, answer := range answers(t, flooder, total, "flooder") {
		switch answer {
		case "":
			flood = append(flood, heardAs("flooder", n))
		case "rate_limited":
		default:
			t.Fatalf("chat %d got %q", n, answer)
		}
	}
	took := time.Since(start)
	for n := range answers(t, polite, said, "polite") {
		spoken = append(spoken, heardAs("polite", n))
	}
	if most := 10 + int(50*took.Seconds()) + 1; len(flood) < 10 || len(flood) > most {
		t.Errorf("%d of %d let through, want at most %d in %v", len(flood), total, most, took)
	}
	var heardFlood, heardTalk []string
	listener.SetReadDeadline(time.Now().Add(patience))
	for len(heardFlood) < len(flood) || len(heardTalk) < len(spoken) {
		messages, err := read(listener)
		for _, m := range messages {
			if text := string(m.Payload); strings.Contains(text, `"flooder"`) {
				heardFlood = append(heardFlood, text)
			} else {
				heardTalk = append(heardTalk, text)
			}
		}
		if err != nil {
			t.Fatalf("after %d and %d: %v", len(heardFlood), len(heardTalk), err)
		}
	}
	if !slices.Equal(heardFlood, flood) || !slices.Equal(heardTalk, spoken) {
		t.Errorf("heard %q and %q, want %q and %q", heardFlood, heardTalk, flood, spoken)
	}
	send(t, listener, `{"type":"ping","ts":1}`)
	expect(t, listener, `{"ts":1,"type":"pong"}`) // and no more
	waitMetric(t, addr, fmt.Sprintf("tidewire_chat_messages_total %d", len(flood)+said))
	waitMetric(t, addr, fmt.Sprintf("tidewire_chat_dropped_total %d", total-len(flood)))
}

// answers reads the answers to requests 0 to n-1, among messages of others, and
// returns their error codes.
func answers(t *testing.T, c *websocket.Conn, n int, user string) (codes []string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	for len(codes) < n {
		messages, err := read(c)
		for _, m := range messages {
			var answer struct {
				Type, Code, User string
				ID               int
			}
			if err := json.Unmarshal(m.Payload, &answer); err != nil || answer.User == user {
				t.Fatalf("%s got %s", user, m.Payload)
			}
			if answer.Type == "chat" {
				continue
			}
			if answer.ID != len(codes) {
				t.Fatalf("%s got %s, want the answer to %d", user, m.Payload, len(codes))
			}
			codes = append(codes, answer.Code)
		}
		if err != nil {
			t.Fatalf("%s after %d of %d answers: %v", user, len(codes), n, err)
		}
	}
	return codes
}

func TestChat_Presence(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat})
	alice, bob, carol := dial(t, "ws://"+addr+"/ws"), dial(t, "ws://"+addr+"/ws"), dial(t, "ws://"+addr+"/ws")
	send(t, alice, `{"type":"join","room":"r","user":"alice","presence":true,"id":1}`)
	expect(t, alice, `{"id":1,"type":"ok"}`, `{"type":"presence","room":"r","count":1,"members":["alice"]}`)
	send(t, bob, `{"type":"join","room":"r","user":"bob","id":1}`)
	expect(t, bob, `{"id":1,"type":"ok"}`)
	expect(t, alice, `{"type":"presence","room":"r","count":2,"joined":["bob"]}`)
	send(t, bob, `{"type":"join","room":"r","user":"robert","presence":true,"id":2}`)
	expect(t, bob, `{"id":2,"type":"ok"}`, `{"type":"presence","room":"r","count":2,"members":["alice","bob"]}`)
	send(t, carol, `{"type":"join","room":"r"}`) // has no name
	for _, c := range []*websocket.Conn{alice, bob} {
		expect(t, c, `{"type":"presence","room":"r","count":3}`)
	}
	send(t, alice, `{"type":"join","room":"other","user":"alice"}`, `{"type":"leave","room":"r","id":2}`)
	expect(t, alice, `{"id":2,"type":"ok"}`)
	expect(t, bob, `{"type":"presence","room":"r","count":2,"left":["alice"]}`)
	carol.Abort()
	expect(t, bob, `{"type":"presence","room":"r","count":1}`)
	send(t, alice, `{"type":"join","room":"r","user":"alice","presence":true}`)
	expect(t, alice, `{"type":"presence","room":"r","count":2,"members":["alice","bob"]}`) // and nothing since it left
	expect(t, bob, `{"type":"presence","room":"r","count":2,"joined":["alice"]}`)
	alice.Abort()
	expect(t, bob, `{"type":"presence","room":"r","count":1,"left":["alice"]}`)
}

// TestChat_StuckMemberIsCutOff: a member that does not read is disconnected
// before the WriteTimeout of 30 s, though the heartbeat continues to set
// deadlines.
func TestChat_StuckMemberIsCutOff(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat, Chat: gateway.ChatConfig{
		RateLimit: 1e9, RateBurst: 1e9, PingInterval: 20 * time.Millisecond,
		Room: room.Config{MaxLagBytes: 256 << 10, LagCloseTimeout: 100 * time.Millisecond},
	}})
	stuck, talker := dial(t, "ws://"+addr+"/ws"), dial(t, "ws://"+addr+"/ws")
	for _, c := range []*websocket.Conn{stuck, talker} {
		send(t, c, `{"type":"join","on_lag":"disconnect","id":1}`)
		heard(t, c, "1") // after pings, perhaps
	}
	text := `{"type":"chat","text":"` + strings.Repeat("x", 16<<10) + `"}`
	for range 2000 { // 32 MiB: more than the kernel keeps
		for talker.Unsent() > 1<<20 {
			time.Sleep(time.Millisecond)
		}
		send(t, talker, text)
	}
	waitMetric(t, addr, "tidewire_connections 1")
	waitMetric(t, addr, "tidewire_chat_messages_total 2000")
	send(t, talker, `{"type":"leave"}`)
}

// waitMetric waits until /metrics has the line: a delivery is counted just
// after it was made.
func waitMetric(t *testing.T, addr, line string) {
	t.Helper()
	var body []byte
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
		if strings.Contains(string(body), line+"\n") {
			return
		}
	}
	t.Errorf("/metrics lacks %q:\n%s", line, body)
}

func TestChat_BadMessagesAreIgnoredOrAnswered(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat, Chat: gateway.ChatConfig{MaxRooms: 2}})
	c := talk(t, addr, "public")
	deep := strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000)
	long := strings.Repeat("x", 200)
	send(t, c, `nonsense`, ``, `null`, `[]`, `"text"`, `7`, `{}`, `{"type":7}`, `{"type":"chat"}`, `{"type":"chat","text":7}`,
		`{"type":"fly"}`, `{"type":"chat","text":"x","room":"never joined"}`, `{"type":"join","room":"`+long+`"}`,
		`{"type":"join","user":"`+long+`"}`, `{"type":"chat","text":`+deep+`}`, deep, `{"type":"join","id":{"no":"scalar"}}`)
	for _, q := range []struct{ request, code string }{
		{`{"type":"chat","id":1}`, "malformed"},
		{`{"type":7,"id":2}`, "malformed"},
		{`{"type":"fly","id":3}`, "unknown_type"},
		{`{"type":"chat","text":"x","room":"never joined","id":4}`, "not_joined"},
		{`{"type":"join","room":"` + long + `","id":5}`, "name_too_long"},
		{`{"type":"join","room":"second","id":6}`, ""},
		{`{"type":"join","room":"third","id":7}`, "too_many_rooms"},
		{`{"type":"join","room":"second","id":"8"}`, ""},
		{`{"type":"join","presence":1,"id":9}`, "malformed"},
		{`{"type":"join","presence":"true","id":10}`, "malformed"},
		{`{"type":"join","presence":[true],"id":11}`, "malformed"},
		{`{"type":"join","presence":null,"id":12}`, ""},
	} {
		send(t, c, q.request)
		messages, err := read(c)
		if err != nil {
			t.Fatalf("%s: %v", q.request, err)
		}
		var answer, request struct {
			Type, Code, Message string
			ID                  any
		}
		if err := json.Unmarshal(messages[0].Payload, &answer); err != nil || len(messages) != 1 {
			t.Fatalf("%s: %d answers, %s", q.request, len(messages), messages[0].Payload)
		}
		json.Unmarshal([]byte(q.request), &request)
		if answer.Code != q.code || answer.ID != request.ID || (answer.Type == "ok") != (q.code == "") {
			t.Errorf("%s: got %s, want %q", q.request, messages[0].Payload, q.code)
		}
	}
}

func TestChat_HeartbeatAndSilence(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat, Chat: gateway.ChatConfig{
		PingInterval: 30 * time.Millisecond, PongTimeout: 1500 * time.Millisecond}})
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"join"}`)
	pings := 0
	var err error
	for start := time.Now(); err == nil; {
		var messages []websocket.Message
		messages, err = read(c)
		for _, m := range messages {
			var ping struct {
				Type string
				TS   int64
			}
			if json.Unmarshal(m.Payload, &ping) != nil || ping.Type != "ping" || ping.TS == 0 {
				t.Fatalf("got %s, want a ping", m.Payload)
			}
			pings++
			if time.Since(start) < 2*time.Second { // answers for longer than the timeout
				send(t, c, `{"type":"pong"}`)
			}
		}
		if pings >= 10 && time.Since(start) >= 2*time.Second {
			time.Sleep(2 * time.Second) // Read would answer WebSocket's own pings
		}
	}
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation || pings < 10 {
		t.Errorf("%d pings, then %v, want many and Close 1008", pings, err)
	}
}

// TestChat_ControlFramesAreSignsOfLife: one client sends only WebSocket pings,
// and one only pongs, for longer than the timeout. A busy machine may stop the
// test itself for that long: then it tries again.
func TestChat_ControlFramesAreSignsOfLife(t *testing.T) {
	t.Parallel()
	const timeout = 1500 * time.Millisecond
	_, addr := serve(t, gateway.Config{Only: gateway.Chat, Chat: gateway.ChatConfig{PongTimeout: timeout}})
	alive := func(t *testing.T, op websocket.Opcode) error {
		c := talk(t, addr, "public")
		defer c.Abort()
		for start := time.Now(); time.Since(start) < 2*timeout; time.Sleep(timeout / 30) {
			c.Queue(op, []byte("alive")) // the next Read has the error of a connection that was closed
			c.Flush()
		}
		c.Queue(websocket.OpText, []byte(`{"type":"ping","ts":1}`))
		c.Flush()
		c.SetReadDeadline(time.Now().Add(patience))
		_, err := read(c)
		return err
	}
	for _, op := range []websocket.Opcode{websocket.OpPing, websocket.OpPong} {
		t.Run(fmt.Sprint(op), func(t *testing.T) {
			t.Parallel()
			var err error
			for range 10 {
				if err = alive(t, op); err == nil {
					return
				}
			}
			t.Error(err)
		})
	}
}

func TestChat_LeaveAndShutdownCodes(t *testing.T) {
	t.Parallel()
	server, addr := serve(t, gateway.Config{Only: gateway.Chat})
	leaver, member := talk(t, addr, "public"), talk(t, addr, "public")
	send(t, leaver, `{"type":"leave"}`)
	code := func(c *websocket.Conn) websocket.StatusCode {
		var closed *websocket.CloseError
		for {
			if _, err := read(c); errors.As(err, &closed) {
				c.Close(closed.Code, "")
				return closed.Code
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := code(leaver); got != websocket.StatusNormal {
		t.Errorf("leave closed with %d, want 1000", got)
	}
	stopped := make(chan error)
	go func() { stopped <- server.Shutdown(t.Context()) }()
	if got := code(member); got != websocket.StatusGoingAway {
		t.Errorf("the stop closed with %d, want 1001", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	var stats strings.Builder
	server.WriteChatStats(&stats)
	for _, line := range []string{"--- Statistics ---", "Total messages: 0", "Total connections: 2", "Peak connections: 2",
		"Messages dropped: 0", "Message drop rate: 0.00%", "Throughput: ", "Processing time: ", "Average latency: ", "Deliveries: 0"} {
		if !strings.Contains(stats.String(), line) {
			t.Errorf("statistics lack %q:\n%s", line, stats.String())
		}
	}
}

// TestChat_ThousandsOfRoomsOfOneConnection: a connection that joins thousands
// of rooms gets a hundred.
func TestChat_ThousandsOfRoomsOfOneConnection(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Chat, Chat: gateway.ChatConfig{RateLimit: 0.001}})
	c := talk(t, addr, "public")
	for n := range 5000 {
		c.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"join","room":"room %d"}`, n))
		c.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"chat","room":"room %d","text":"x"}`, n))
	}
	send(t, c, `{"type":"join","room":"one more","id":2}`)
	expect(t, c, `{"code":"too_many_rooms","id":2,"message":"this connection is in too many rooms; leave one first","retryable":false,"type":"error"}`)
	waitMetric(t, addr, "tidewire_chat_rooms 100")
	waitMetric(t, addr, "tidewire_chat_messages_total 10") // the rate limit
	waitMetric(t, addr, "tidewire_chat_dropped_total 89")
	waitMetric(t, addr, "tidewire_chat_ignored_total 9803") // 4,901 joins, and chats in 4,901 rooms not joined, and the last
}

// TestChat_InvalidUTF8: invalid UTF-8 in a text frame ends the connection.
func TestChat_InvalidUTF8(t *testing.T) {
	t.Parallel()
	_, _, addr := serveStored(t)
	c := talk(t, addr, "public")
	c.Queue(websocket.OpText, []byte("{\"type\":\"chat\",\"text\":\"\xff\"}"))
	c.Flush()
	c.SetReadDeadline(time.Now().Add(patience))
	_, err := read(c)
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.StatusInvalidPayload {
		t.Errorf("got %v, want code 1007", err)
	}
}
