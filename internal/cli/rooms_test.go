package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// chatAnswer is any message of a chat server.
type chatAnswer struct {
	Type     string
	ID       int
	Text     string
	Room     string
	Code     string
	Position int64
	Last     int64
	Oldest   int64
	History  int
}

func chatDial(t *testing.T, addr string) *websocket.Conn {
	t.Helper()
	c, err := websocket.Dial(t.Context(), "ws://"+addr+"/ws/chat", websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	c.SetReadDeadline(time.Now().Add(time.Minute))
	return c
}

func say(c *websocket.Conn, format string, args ...any) {
	c.Queue(websocket.OpText, fmt.Appendf(nil, format, args...))
	c.Flush()
}

// talk keeps a few chats in flight until the connection breaks, and records the
// acknowledged ones by position. Texts are unique: the sender and a number.
func talk(c *websocket.Conn, who string, acked *sync.Map, count *atomic.Int64) {
	say(c, `{"type":"join","room":"kept","id":0}`)
	sent := 0
	for {
		messages, err := c.Read()
		for _, m := range messages {
			var a chatAnswer
			if json.Unmarshal(m.Payload, &a) != nil || a.Type != "ok" {
				continue
			}
			if a.ID > 0 {
				acked.Store(a.Position, fmt.Sprintf("%s %d", who, a.ID))
				count.Add(1)
			}
			for inFlight := 4; sent < a.ID+inFlight; {
				sent++
				say(c, `{"type":"chat","room":"kept","text":"%s %d","id":%d}`, who, sent, sent)
			}
		}
		if err != nil {
			return
		}
	}
}

// history reads the whole room.
func history(t *testing.T, addr string) (texts map[int64]string) {
	t.Helper()
	c := chatDial(t, addr)
	say(c, `{"type":"join","room":"kept","after":0,"id":1}`)
	texts = make(map[int64]string)
	last := int64(0)
	for {
		messages, err := c.Read()
		for _, m := range messages {
			var a chatAnswer
			if err := json.Unmarshal(m.Payload, &a); err != nil {
				t.Fatal(err)
			}
			if a.Type == "ok" {
				if a.History != len(texts) || a.Position < last {
					t.Errorf("%d messages up to %d, and the answer says %+v", len(texts), last, a)
				}
				return texts
			}
			if a.Position <= last {
				t.Errorf("position %d after %d", a.Position, last)
			}
			last = a.Position
			texts[last] = a.Text
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoredRooms_AnAnsweredChatIsThere after the server or its PostgreSQL was
// killed under load: once, and at the acknowledged position.
func TestStoredRooms_AnAnsweredChatIsThere(t *testing.T) {
	t.Parallel()
	for range pgtest.Seeds() {
		db := migrated(t)
		flags := []string{"--database-url", db.URL, "--only", "chat", "--stored-rooms", "kept,other-*", "--rate-limit", "1e6", "--rate-burst", "1e6"}
		p := serve(t, flags...)
		var acked sync.Map
		var count atomic.Int64
		var talking sync.WaitGroup
		for i := range 4 {
			c := chatDial(t, p.addr)
			talking.Go(func() { talk(c, fmt.Sprintf("talker%d", i), &acked, &count) })
		}
		for deadline := time.Now().Add(30 * time.Second); count.Load() < 500 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		p.cmd.Process.Kill()
		talking.Wait()
		p = serve(t, flags...)
		stored := history(t, p.addr)
		if n := count.Load(); n < 500 || int64(len(stored)) < n {
			t.Errorf("%d chats answered, %d stored", n, len(stored))
		}
		times := make(map[string]int)
		for _, text := range stored {
			if times[text]++; times[text] > 1 {
				t.Errorf("%q is stored twice", text)
			}
		}
		acked.Range(func(position, text any) bool {
			if stored[position.(int64)] != text {
				t.Errorf("answered %q at %d, where %q is stored", text, position, stored[position.(int64)])
			}
			return true
		})
		if code := p.stop(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// TestStoredRooms_PostgreSQLAway delays chats until PostgreSQL is reachable again.
func TestStoredRooms_PostgreSQLAway(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	p := serve(t, "--database-url", server.URL(), "--stored-rooms", "kept", "--only", "chat")
	c := chatDial(t, p.addr)
	say(c, `{"type":"join","room":"kept","id":1}`)
	wantAnswer(t, c, chatAnswer{Type: "ok", ID: 1})
	pgtest.Crash(t, server)
	say(c, `{"type":"chat","room":"kept","text":"held","id":2}`)
	wantAnswer(t, c, chatAnswer{Type: "ok", ID: 2, Position: 1})
	if got := history(t, p.addr); len(got) != 1 || got[1] != "held" {
		t.Errorf("stored %v", got)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.done
	if log := p.log(); !strings.Contains(log, "Total messages: 1") {
		t.Errorf("statistics are not in\n%s", log)
	}
}

func wantAnswer(t *testing.T, c *websocket.Conn, want chatAnswer) {
	t.Helper()
	messages, err := c.Read()
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	var got chatAnswer
	if json.Unmarshal(messages[0].Payload, &got); got != want {
		t.Fatalf("got %s, want %+v", messages[0].Payload, want)
	}
}
