package gateway_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/room"
)

// unread sends a request on a connection that is never read.
func unread(t *testing.T, addr, request string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\n\r\n", request)
	return conn
}

// TestAttack_FollowersOfStreams: followers that do not read are ended when memory is short, and one that reads, and comes
// again when it is ended, gets everything.
func TestAttack_FollowersOfStreams(t *testing.T) {
	t.Parallel()
	const limit, total, size = 8 << 20, 200, 100_000
	streams := newFakeStreams(t, "orders")
	fill(streams, "orders", total, size)
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams}, Budget: account})
	var greedy []net.Conn
	for range 12 {
		greedy = append(greedy, unread(t, addr, "GET /v1/streams/orders/follow?after=0"))
	}
	waitFor(t, func() bool { return account.Stats().Evictions > 0 }, "nobody was ended")
	for got := 0; got < total; {
		good := followRoom(t, addr, "/v1/streams/orders/follow", "Last-Event-ID", fmt.Sprint(got))
		got = good.untilEnded(got, total)
		good.resp.Body.Close()
	}
	for _, conn := range greedy {
		conn.Close()
	}
	waitFor(t, func() bool { return account.Stats().Held == 0 }, "what nobody holds is still counted")
	if s := account.Stats(); s.Excess != 0 {
		t.Errorf("%d bytes were released that nobody held", s.Excess)
	}
}

// untilEnded reads the messages after a position, in their order, up to a position or until the server ends this follower, which holds as much memory as each
// of the others. It returns the position of the last one.
func (e *roomEvents) untilEnded(after, upTo int) int {
	e.t.Helper()
	for ; after < upTo; after++ {
		for i, part := range []string{"event: message\n", fmt.Sprintf("id: %d\n", after+1), "data: ", "\n"} {
			line, err := e.lines.ReadString('\n')
			if err != nil || i == 0 && line != part { // an event that is not whole does not count
				return after
			}
			if !strings.Contains(line, part) {
				e.t.Fatalf("got %.200s, want %s", line, part)
			}
		}
	}
	return after
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

// TestAttack_FollowersOfRooms: what a room keeps for followers that do not read is bounded, and one that reads gets every message. Those that read again are told
// of a gap, and in a stored room they get everything.
func TestAttack_FollowersOfRooms(t *testing.T) {
	t.Parallel()
	const lag, followers, chats, size = 300_000, 3, 130, 90_000
	account := budget.New(1 << 30)
	_, addr := serve(t, gateway.Config{
		Engine: engine.Engine{Rooms: newMemoryStore(t)}, Budget: account,
		Chat: gateway.ChatConfig{StoredRooms: []string{"kept-*"}, Room: room.Config{MaxLagBytes: lag}}, MaxMessage: 100_000,
	})
	c := client{t, addr}
	text := strings.Repeat("x", size)
	for name, told := range map[string]string{"r": "event: gap\n", "kept-1": fmt.Sprintf(`"text":"%d-`, chats-1)} {
		var slow []net.Conn
		for range followers {
			conn := unread(t, addr, "GET /v1/rooms/"+name+"/follow")
			readUntil(t, conn, "retry: ")
			slow = append(slow, conn)
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
			// Each may have a page for its socket, besides what the room keeps for all.
			if held := account.Stats().Held - before; held > lag+followers*2<<20 {
				t.Fatalf("%d bytes are held after %d chats", held, n)
			}
		}
		for _, conn := range slow {
			readUntil(t, conn, told)
			conn.Close()
		}
		good.resp.Body.Close()
	}
}

// readUntil reads until a text has come.
func readUntil(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(patience))
	buf, kept := make([]byte, 64<<10), 0
	for {
		n, err := conn.Read(buf[kept:])
		if bytes.Contains(buf[:kept+n], []byte(text)) {
			return
		}
		if err != nil {
			t.Fatalf("%v before %q", err, text)
		}
		kept = copy(buf, buf[max(0, kept+n-len(text)):kept+n])
	}
}
