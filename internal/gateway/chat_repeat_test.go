package gateway_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// TestStored_Time: members get the time at which the server has taken a chat, the same while it comes and in the history.
func TestStored_Time(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	alice, bob := dial(t, "ws://"+addr+"/ws"), dial(t, "ws://"+addr+"/ws")
	send(t, alice, `{"type":"join","room":"kept-1","id":1}`)
	expect(t, alice, `{"history":0,"id":1,"position":0,"type":"ok"}`)
	before := time.Now().Truncate(time.Millisecond)
	send(t, alice, `{"id":2,"type":"chat","room":"kept-1","text":"x","sequence":null}`)
	expect(t, alice, `{"id":2,"position":1,"type":"ok"}`)
	store.mu.Lock()
	kept := string(store.stored[0])
	store.mu.Unlock()
	var chat struct{ Time time.Time }
	if err := json.Unmarshal([]byte(kept), &chat); err != nil || chat.Time.Before(before) || chat.Time.After(time.Now()) {
		t.Fatalf("%v: stored %s between %v and %v", err, kept, before, time.Now())
	}
	want := `{"type":"chat","room":"kept-1","text":"x","time":"` + chat.Time.Format("2006-01-02T15:04:05.000Z") + `"}`
	if kept != want {
		t.Errorf("stored %s, want %s", kept, want)
	}
	send(t, bob, `{"type":"join","room":"kept-1","after":0}`)
	bob.SetReadDeadline(time.Now().Add(patience))
	messages, err := read(bob)
	if err != nil || string(messages[0].Payload) != want[:len(want)-1]+`,"position":1}` {
		t.Errorf("%v: the history is %s, want %s with its position", err, messages[0].Payload, want)
	}
}

// TestStored_RepeatedChats: a chat with client and sequence is stored and published once, and members do not get these fields.
func TestStored_RepeatedChats(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	alice, bob := dial(t, "ws://"+addr+"/ws"), dial(t, "ws://"+addr+"/ws")
	for _, room := range []string{"kept-1", "kept-2"} {
		send(t, alice, fmt.Sprintf(`{"type":"join","room":%q,"id":1}`, room))
		expect(t, alice, `{"history":0,"id":1,"position":0,"type":"ok"}`)
		send(t, bob, fmt.Sprintf(`{"type":"join","room":%q,"id":1}`, room))
		expect(t, bob, `{"history":0,"id":1,"position":0,"type":"ok"}`)
	}
	for _, c := range []struct{ say, answer string }{
		{`"room":"kept-1","text":"one","client":"a","sequence":0`, `{"id":7,"position":1,"type":"ok"}`},
		{`"room":"kept-1","text":"two","client":"a","sequence":1`, `{"id":7,"position":2,"type":"ok"}`},
		{`"room":"kept-1","text":"one","client":"a","sequence":0`, `{"duplicate":true,"id":7,"position":1,"type":"ok"}`},
		{`"room":"kept-2","text":"one","client":"a","sequence":0`, `{"duplicate":true,"id":7,"position":1,"type":"ok"}`}, // in all rooms
		{`"room":"kept-1","text":"three","client":"\u0061","sequence":1`, `{"duplicate":true,"id":7,"position":2,"type":"ok"}`},
		{`"room":"kept-2","client":"b","sequence":1,"text":"four"`, `{"id":7,"position":3,"type":"ok"}`},
		{`"room":"kept-2","text":"five","client":"","sequence":null`, `{"id":7,"position":4,"type":"ok"}`}, // as if they were missing
	} {
		send(t, alice, `{"type":"chat","id":7,`+c.say+`}`)
		expect(t, alice, c.answer)
	}
	w := &wire{Conn: bob, t: t}
	heard := []string{w.next(), w.next(), w.next(), w.next()}
	const ofRoom = len(`{"type":"chat","room":"kept-1"`)
	slices.SortStableFunc(heard, func(a, b string) int { return strings.Compare(a[:ofRoom], b[:ofRoom]) }) // between rooms there is no order
	want := []string{`{"type":"chat","room":"kept-1","text":"one","position":1}`, `{"type":"chat","room":"kept-1","text":"two","position":2}`,
		`{"type":"chat","room":"kept-2","text":"four","position":3}`, `{"type":"chat","room":"kept-2","text":"five","position":4}`}
	if !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
	send(t, bob, `{"type":"ping","ts":1}`)
	expect(t, bob, `{"ts":1,"type":"pong"}`) // and nothing twice
	store.mu.Lock()
	defer store.mu.Unlock()
	if len(store.stored) != 4 {
		t.Errorf("%d chats are stored, want 4", len(store.stored))
	}
}

// TestStored_RepeatsAreChecked: what names a chat is checked in stored rooms, and belongs to the application in others.
func TestStored_RepeatsAreChecked(t *testing.T) {
	t.Parallel()
	_, _, addr := serveStored(t)
	alice, bob := dial(t, "ws://"+addr+"/ws"), talk(t, addr, "loose")
	send(t, alice, `{"type":"join","room":"loose"}`, `{"type":"join","room":"kept-1","id":1}`)
	expect(t, alice, `{"history":0,"id":1,"position":0,"type":"ok"}`)
	for fields, code := range map[string]string{
		`"client":"a"`:                    "invalid",
		`"sequence":1`:                    "invalid",
		`"client":"","sequence":1`:        "invalid",
		`"client":"a\u0000","sequence":1`: "invalid",
		`"client":"` + strings.Repeat("x", 129) + `","sequence":1`: "invalid",
		`"client":"a","sequence":-1`:                               "invalid",
		`"client":7,"sequence":1`:                                  "malformed",
		`"client":["a"],"sequence":1`:                              "malformed",
		`"client":"a","sequence":1.5`:                              "malformed",
		`"client":"a","sequence":"1"`:                              "malformed",
		`"client":"a","sequence":1e30`:                             "malformed",
		`"client":"a","client":"b","sequence":1`:                   "malformed",
		`"client":"a","sequence":1,"sequence":1`:                   "malformed",
		`"cl\u0069ent":"a","sequence":1`:                           "malformed",
		`"client":"a","sequence":1,"position":1`:                   "malformed",
	} {
		send(t, alice, `{"type":"chat","room":"kept-1","text":"x","id":2,`+fields+`}`)
		if got := nextCode(t, alice); got != code {
			t.Errorf("%s: %q, want %s", fields, got, code)
		}
		loose := `{"type":"chat","room":"loose","text":"x",` + fields + `}`
		send(t, alice, loose)
		expect(t, bob, loose)
	}
}

// TestStored_RepeatsBelongToTheUser: in closed mode, two users may use the same client name.
func TestStored_RepeatsBelongToTheUser(t *testing.T) {
	t.Parallel()
	store := newMemoryStore(t)
	c := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Engine.Rooms, cfg.Chat = store, gateway.ChatConfig{StoredRooms: []string{"kept"}}
	})
	for n, user := range []string{"ann", "bob"} {
		w := c.as("/ws", tokenOf(t, user, time.Hour, "join,chat room:kept"))
		w.ask(`{"type":"join","room":"kept","id":1}`, fmt.Sprintf(`{"history":0,"id":1,"position":%d,"type":"ok"}`, n))
		chat := `{"type":"chat","room":"kept","text":"x","client":"till","sequence":1,"id":2}`
		w.ask(chat, fmt.Sprintf(`{"id":2,"position":%d,"type":"ok"}`, n+1))
		w.ask(chat, fmt.Sprintf(`{"duplicate":true,"id":2,"position":%d,"type":"ok"}`, n+1))
	}
}

var storedTime = regexp.MustCompile(`,"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"(,"position":\d+})$`)

// untimed returns a message without the time that a stored room adds.
func untimed(message []byte) string { return string(storedTime.ReplaceAll(message, []byte("$1"))) }

// nextCode reads one message and returns its code.
func nextCode(t *testing.T, c *websocket.Conn) string {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	messages, err := read(c)
	var answer struct{ Code string }
	if len(messages) != 1 || json.Unmarshal(messages[0].Payload, &answer) != nil {
		t.Fatalf("%q, %v", messages, err)
	}
	return answer.Code
}
