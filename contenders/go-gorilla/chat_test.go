package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// start serves on a real socket.
func start(t *testing.T, args ...string) (s *server, addr string) {
	t.Helper()
	cfg, err := parseFlags(args)
	if err != nil {
		t.Fatal(err)
	}
	s = newServer(cfg)
	ts := httptest.NewServer(s.handler())
	t.Cleanup(func() {
		ts.Close()
		s.stop()
	})
	return s, strings.TrimPrefix(ts.URL, "http://")
}

func dial(t *testing.T, addr string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws://"+addr+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn *websocket.Conn, text string) {
	t.Helper()
	if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, conn *websocket.Conn, want string) {
	t.Helper()
	_, got, err := conn.ReadMessage()
	if err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// member returns a connection that is in the room.
func member(t *testing.T, addr, room string) *websocket.Conn {
	t.Helper()
	conn := dial(t, addr)
	send(t, conn, fmt.Sprintf(`{"type":"join","room":%q}`, room))
	send(t, conn, `{"type":"ping","ts":1}`)
	expect(t, conn, `{"type":"pong","ts":1}`)
	return conn
}

func TestChat_ReachesTheOthersOfItsRoom(t *testing.T) {
	t.Parallel()
	s, addr := start(t)
	a, b, other := member(t, addr, "r"), member(t, addr, "r"), member(t, addr, "other")
	chat := `{"type":"chat", "room":"r","text":"é","more":[1]}`
	send(t, a, chat)
	expect(t, b, chat)
	send(t, b, `{"type":"chat","room":"r","text":"back"}`)
	expect(t, a, `{"type":"chat","room":"r","text":"back"}`)
	send(t, a, `{"type":"chat","room":"other","text":"from outside"}`)
	send(t, a, `{"type":"chat","text":"to public, which it joins"}`)
	send(t, a, `{"type":"ping"}`)
	expect(t, a, `{"type":"pong"}`)
	send(t, other, `{"type":"ping"}`)
	expect(t, other, `{"type":"pong"}`)
	if messages, ignored := s.stats.messages.Load(), s.stats.ignored.Load(); messages != 3 || ignored != 1 {
		t.Errorf("%d messages and %d ignored, want 3 and 1", messages, ignored)
	}
}

func TestChat_IgnoresWhatIsMalformed(t *testing.T) {
	t.Parallel()
	s, addr := start(t)
	a := member(t, addr, "r")
	malformed := []string{"", "x", "null", "[]", "{}", `{"type":7}`, `{"type":"shout"}`, `{"type":"chat"}`, `{"type":"chat","room":"r","text":[]}`,
		`{"type":"join","room":"` + strings.Repeat("x", maxName+1) + `"}`}
	for _, text := range malformed {
		send(t, a, text)
	}
	if err := a.WriteMessage(websocket.BinaryMessage, []byte(`{"type":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	send(t, a, `{"type":"ping","ts":2}`)
	expect(t, a, `{"type":"pong","ts":2}`)
	if got, want := s.stats.ignored.Load(), int64(len(malformed)+1); got != want {
		t.Errorf("%d are counted, want %d", got, want)
	}
}

func TestChat_RoomsOfAConnection(t *testing.T) {
	t.Parallel()
	s, addr := start(t)
	a := dial(t, addr)
	for i := range maxRooms + 5 {
		send(t, a, fmt.Sprintf(`{"type":"join","room":"%d"}`, i))
	}
	send(t, a, `{"type":"ping"}`)
	expect(t, a, `{"type":"pong"}`)
	if got := s.stats.ignored.Load(); got != 5 {
		t.Errorf("%d joins refused, want 5", got)
	}
}

func TestChat_RateLimit(t *testing.T) {
	t.Parallel()
	s, addr := start(t, "--rate-limit", "0.001", "--rate-burst", "2")
	a, b := member(t, addr, "r"), member(t, addr, "r")
	for i := range 5 {
		send(t, a, fmt.Sprintf(`{"type":"chat","room":"r","text":"%d"}`, i))
	}
	send(t, a, `{"type":"ping"}`)
	expect(t, a, `{"type":"pong"}`)
	expect(t, b, `{"type":"chat","room":"r","text":"0"}`)
	expect(t, b, `{"type":"chat","room":"r","text":"1"}`)
	if messages, dropped := s.stats.messages.Load(), s.stats.dropped.Load(); messages != 2 || dropped != 3 {
		t.Errorf("%d messages and %d dropped, want 2 and 3", messages, dropped)
	}
}

func TestChat_LeaveAndStop(t *testing.T) {
	t.Parallel()
	cfg, err := parseFlags(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(cfg)
	ts := httptest.NewServer(s.handler())
	defer ts.Close()
	addr := strings.TrimPrefix(ts.URL, "http://")
	a, b := member(t, addr, "r"), member(t, addr, "r")
	send(t, a, `{"type":"leave"}`)
	if _, _, err := a.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("after leave: %v, want code 1000", err)
	}
	closed := make(chan error)
	go func() {
		_, _, err := b.ReadMessage()
		closed <- err
	}()
	s.stop()
	if err := <-closed; !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Errorf("after the stop: %v, want code 1001", err)
	}
	if s.stats.connections != 2 || s.stats.peak != 2 || s.stats.open != 0 {
		t.Errorf("connections %d, peak %d, open %d, want 2, 2, 0", s.stats.connections, s.stats.peak, s.stats.open)
	}
	r, err := http.Get(ts.URL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if body, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusOK || string(body) != "ok\n" {
		t.Errorf("healthz: %d %q", r.StatusCode, body)
	}
}

func TestChat_Heartbeat(t *testing.T) {
	t.Parallel()
	_, addr := start(t, "--ping-interval", "0.05", "--pong-timeout", "0.3")
	silent := dial(t, addr)
	began := time.Now()
	pings := 0
	for {
		_, text, err := silent.ReadMessage()
		if websocket.IsCloseError(err, websocket.ClosePolicyViolation) {
			break
		}
		if err != nil || !strings.HasPrefix(string(text), `{"type":"ping","ts":1`) {
			t.Fatalf("got %q, %v, want a ping or code 1008", text, err)
		}
		pings++
	}
	if pings == 0 || time.Since(began) > 8*time.Second {
		t.Errorf("%d pings in %v", pings, time.Since(began))
	}
}

// TestHub_FullBuffer: a client that does not read misses messages, and delays
// nobody.
func TestHub_FullBuffer(t *testing.T) {
	t.Parallel()
	var s stats
	h := newHub(&s)
	go h.run()
	defer h.stop()
	slow := &client{send: make(chan outgoing, 1)}
	quick := &client{send: make(chan outgoing, 10)}
	h.joins <- membership{slow, "r"}
	h.joins <- membership{quick, "r"}
	for range 5 {
		h.broadcast <- chat{room: "r", payload: []byte("x")}
	}
	h.leaves <- membership{slow, "r"} // so that all before is done
	if len(slow.send) != 1 || len(quick.send) != 5 || s.missed.Load() != 4 {
		t.Errorf("slow has %d, quick %d, %d missed, want 1, 5, 4", len(slow.send), len(quick.send), s.missed.Load())
	}
}
