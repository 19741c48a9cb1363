package gateway_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/room"
)

// unread sends a request on a connection that is never read and has small buffers.
func unread(t *testing.T, addr, request string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\n\r\n", request)
	return conn
}

// TestAttack_FollowersOfStreams: followers that do not read are ended when memory is short, and one that reads gets everything.
func TestAttack_FollowersOfStreams(t *testing.T) {
	t.Parallel()
	const limit, total, size = 8 << 20, 200, 100_000
	streams := newFakeStreams(t, "orders")
	fill(streams, "orders", total, size)
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams}, Budget: account})
	var greedy []net.Conn
	for range 30 {
		greedy = append(greedy, unread(t, addr, "GET /v1/streams/orders/follow?after=0"))
	}
	waitFor(t, func() bool { return account.Stats().Evictions > 0 }, "nobody was ended")
	good := followRoom(t, addr, "/v1/streams/orders/follow?after=0")
	for n := range total {
		good.wantPart("event: message", fmt.Sprintf("id: %d", n+1), "data: ", "")
	}
	for _, conn := range greedy {
		conn.Close()
	}
	good.resp.Body.Close()
	waitFor(t, func() bool { return account.Stats().Held == 0 }, "what nobody holds is still counted")
	if s := account.Stats(); s.Excess != 0 {
		t.Errorf("%d bytes were released that nobody held", s.Excess)
	}
}

// wantPart expects lines that contain these texts.
func (e *roomEvents) wantPart(parts ...string) {
	e.t.Helper()
	for _, part := range parts {
		if line, err := e.lines.ReadString('\n'); err != nil || !strings.Contains(line, part) {
			e.t.Fatalf("got %.200s and %v, want %s", line, err, part)
		}
	}
}

// TestAttack_FollowersOfRooms: the messages that a room keeps for followers that do not read are bounded, and one that reads gets every message.
func TestAttack_FollowersOfRooms(t *testing.T) {
	t.Parallel()
	const lag, followers, chats = 100_000, 20, 300
	account := budget.New(1 << 30)
	_, addr := serve(t, gateway.Config{
		Engine: engine.Engine{Rooms: newMemoryStore(t)}, Budget: account,
		Chat: gateway.ChatConfig{StoredRooms: []string{"kept-*"}, Room: room.Config{MaxLagBytes: lag}}, MaxMessage: 20_000,
	})
	c := client{t, addr}
	text := strings.Repeat("x", 9000)
	for _, name := range []string{"r", "kept-1"} {
		for range followers {
			conn := unread(t, addr, "GET /v1/rooms/"+name+"/follow")
			if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 200"))); err != nil { // it follows
				t.Fatal(err)
			}
		}
		good := followRoom(t, addr, "/v1/rooms/"+name+"/follow")
		before := account.Stats().Held
		for n := range chats {
			if status, answer := c.do("POST", "/v1/rooms/"+name+"/chats", fmt.Sprintf(`{"text":"%d-%s"}`, n, text)); status != http.StatusOK {
				t.Fatal(status, answer)
			}
			good.wantPart("event: chat")
			if name != "r" {
				good.wantPart("id: ")
			}
			good.wantPart(fmt.Sprintf(`"text":"%d-`, n), "")
			// Each may have taken a page for its socket, besides what the room keeps for all.
			if held := account.Stats().Held - before; held > lag+followers*(lag+256<<10) {
				t.Fatalf("%d bytes are held after %d chats", held, n)
			}
		}
		good.resp.Body.Close()
	}
}
