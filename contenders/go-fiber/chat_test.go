package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// room is a server on a real socket, for one test.
type room struct {
	t       *testing.T
	chat    *chat
	addr    string
	stopped bool
}

func open(t *testing.T, args ...string) *room {
	t.Helper()
	s, err := readSettings(args)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &room{t: t, chat: newChat(s), addr: ln.Addr().String()}
	app := r.chat.app()
	served := make(chan error)
	go func() { served <- app.Listener(ln) }()
	for { // Fiber cannot be shut down before it serves
		if status := r.get("/healthz"); status == http.StatusOK {
			break
		}
	}
	t.Cleanup(func() {
		if err := app.ShutdownWithTimeout(5 * time.Second); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if !r.stopped {
			r.chat.shutdown()
		}
	})
	return r
}

func (r *room) get(path string) (status int) {
	r.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + r.addr + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// guest is a client.
type guest struct {
	t    *testing.T
	conn *websocket.Conn
}

func (r *room) enter(rooms ...string) guest {
	r.t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws://"+r.addr+"/ws", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	g := guest{r.t, conn}
	for _, name := range rooms {
		g.send(`{"type":"join","room":%q}`, name)
	}
	g.handled()
	return g
}

func (g guest) send(format string, args ...any) {
	g.t.Helper()
	if err := g.conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)); err != nil {
		g.t.Fatal(err)
	}
}

func (g guest) gets(want string) {
	g.t.Helper()
	if _, got, err := g.conn.ReadMessage(); err != nil || string(got) != want {
		g.t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// handled returns when the server has handled what was sent.
func (g guest) handled() {
	g.t.Helper()
	g.send(`{"type":"ping","ts":17}`)
	g.gets(`{"type":"pong","ts":17}`)
}

func (g guest) closedWith(code int) {
	g.t.Helper()
	if _, text, err := g.conn.ReadMessage(); !websocket.IsCloseError(err, code) {
		g.t.Errorf("got %q, %v, want code %d", text, err, code)
	}
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	r := open(t)
	anna, ben, stranger := r.enter("a", "b"), r.enter("a"), r.enter()
	anna.send(`{"type":"chat","text":"hi","room":"a","x":{"y":1.50}}`)
	ben.gets(`{"type":"chat","text":"hi","room":"a","x":{"y":1.50}}`)
	anna.handled() // it has not got its own
	anna.send(`{"type":"chat","text":"nobody else is there","room":"b"}`)
	stranger.send(`{"type":"chat","text":"not a member","room":"a"}`)
	stranger.handled()
	ben.handled()
	stranger.send(`{"type":"chat","text":"joins public"}`)
	stranger.handled()
	anna.send(`{"type":"join"}`)
	anna.handled()
	stranger.send(`{"type":"chat","text":"in public","room":"public"}`)
	anna.gets(`{"type":"chat","text":"in public","room":"public"}`)
	anna.send(`{"type":"leave","room":"public"}`)
	anna.handled()
	stranger.send(`{"type":"chat","text":"alone again"}`)
	stranger.handled()
	anna.handled()
	f := &r.chat.figures
	if got := fmt.Sprint(f.messages.Load(), f.ignored.Load(), f.deliveries.Load(), f.connections.Load()); got != "5 1 2 3" {
		t.Errorf("messages, ignored, deliveries, connections: %s", got)
	}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	r := open(t)
	g := r.enter("a")
	bad := []string{"", "{", "[]", "null", "5", "{}", `{"type":"x"}`, `{"type":[]}`, `{"type":"chat"}`, `{"type":"chat","text":5}`,
		`{"type":"chat","room":5,"text":""}`, `{"type":"join","user":"` + strings.Repeat("u", nameMax+1) + `"}`}
	for _, text := range bad {
		g.send("%s", text)
	}
	if err := g.conn.WriteMessage(websocket.BinaryMessage, []byte(`{"type":"leave"}`)); err != nil {
		t.Fatal(err)
	}
	for i := range roomsMax + 2 {
		g.send(`{"type":"join","room":"%d"}`, i)
	}
	g.handled()
	if got, want := r.chat.figures.ignored.Load(), uint64(len(bad)+1+3); got != want {
		t.Errorf("%d are counted, want %d", got, want)
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	r := open(t, "--rate-limit", "0.001", "--rate-burst", "3")
	a, b := r.enter("r"), r.enter("r")
	for i := range 5 {
		a.send(`{"type":"chat","room":"r","text":"%d"}`, i)
	}
	a.handled()
	for i := range 3 {
		b.gets(fmt.Sprintf(`{"type":"chat","room":"r","text":"%d"}`, i))
	}
	if got := r.chat.figures.dropped.Load(); got != 2 {
		t.Errorf("%d dropped, want 2", got)
	}
}

func TestLeaveAndShutdown(t *testing.T) {
	t.Parallel()
	r := open(t)
	leaver, stayer := r.enter("r"), r.enter("r")
	leaver.send(`{"type":"leave"}`)
	leaver.closedWith(websocket.CloseNormalClosure)
	done := make(chan struct{})
	go func() {
		defer close(done)
		stayer.closedWith(websocket.CloseGoingAway)
	}()
	r.chat.shutdown()
	r.stopped = true
	<-done
	if now := r.chat.figures.current.Load(); now != 0 {
		t.Errorf("%d connections are left", now)
	}
	if status := r.get("/ws"); status != http.StatusUpgradeRequired {
		t.Errorf("GET /ws without an upgrade: %d, want 426", status)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	g := open(t, "--ping-interval", "0.05", "--pong-timeout", "0.4").enter()
	for pings := 0; ; pings++ {
		_, text, err := g.conn.ReadMessage()
		if websocket.IsCloseError(err, websocket.ClosePolicyViolation) && pings > 0 {
			return
		}
		var e event
		if err != nil || json.Unmarshal(text, &e) != nil || e.Type != "ping" {
			t.Fatalf("got %q, %v after %d pings, want pings, then code 1008", text, err, pings)
		}
	}
}

// TestHub_SlowMember misses the chats that its outbox has no room for; the others do not.
func TestHub_SlowMember(t *testing.T) {
	t.Parallel()
	var f figures
	h := newHub(&f)
	go h.run()
	slow, quick := &member{outbox: make(chan []byte, 2)}, &member{outbox: make(chan []byte, 9)}
	h.register <- entry{"r", slow}
	h.register <- entry{"r", quick}
	for range 7 {
		h.broadcast <- said{entry{room: "r"}, []byte("text")}
	}
	h.unregister <- entry{"r", slow}
	h.unregister <- entry{"r", quick}
	h.broadcast <- said{entry{room: "r"}, []byte("to nobody")}
	close(h.done)
	if len(slow.outbox) != 2 || len(quick.outbox) != 7 || f.missed.Load() != 5 {
		t.Errorf("slow %d, quick %d, missed %d, want 2, 7, 5", len(slow.outbox), len(quick.outbox), f.missed.Load())
	}
}
