package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

var wireCases = []wireCase{
	{"healthz", testHealthz},
	{"chat to the others, as it was sent", testChat},
	{"joining twice is once", testJoinTwice},
	{"default room", testDefaultRoom},
	{"chat without a join", testNoJoin},
	{"rooms are apart", testRooms},
	{"chat to a room of others", testNotMember},
	{"order", testOrder},
	{"large chat", testLarge},
	{"chat in fragments", testFragments},
	{"ping", testPing},
	{"websocket ping", testWebSocketPing},
	{"malformed", testMalformed},
	{"leave a room", testLeaveRoom},
	{"leave", testLeave},
	{"leave and close", testLeaveAndClose},
	{"close", testClose},
}

func testHealthz(t *testing.T, s *server) {
	if status, err := s.healthz(); status != http.StatusOK {
		t.Errorf("status %d, %v, want 200", status, err)
	}
}

// testChat: all fields arrive, also those that the server does not know.
func testChat(t *testing.T, s *server) {
	room := t.Name()
	a, b, c := member(t, s, room), member(t, s, room), member(t, s, room)
	chat := fmt.Sprintf(`{"user":"Zoë","mood":{"a":[1,-2.50,null,true,"\u00e9\n"]},"type":"chat","ts":1700000000123,"room":%q,"text":"grüße \"世界\" 🌊 </b>"}`, room)
	a.send("%s", chat)
	b.hears(chat)
	c.hears(chat)
	a.sync()
	b.say(room, "after it")
	a.hearsText("after it") // and not its own
	c.hearsText("after it")
}

func testJoinTwice(t *testing.T, s *server) {
	room := t.Name()
	a, b := member(t, s, room), member(t, s, room, room)
	a.say(room, "once")
	a.say(room, "the next")
	b.hearsText("once")
	b.hearsText("the next")
}

// testDefaultRoom: the public room may have other members, also of other tests.
func testDefaultRoom(t *testing.T, s *server) {
	named, plain := publicMember(t, s, `{"type":"join","room":"public"}`), publicMember(t, s, `{"type":"join"}`)
	text := t.Name()
	plain.send(`{"type":"chat","text":"%s without"}`, text)
	named.awaits(text + " without")
	named.say("public", text+" with")
	plain.awaits(text + " with")
}

func testNoJoin(t *testing.T, s *server) {
	a, b := dial(t, s), publicMember(t, s, `{"type":"join","room":"public"}`)
	a.send(`{"type":"chat","text":%q}`, t.Name())
	b.awaits(t.Name())
	b.say("public", t.Name()+" back")
	a.awaits(t.Name() + " back")
}

func testRooms(t *testing.T, s *server) {
	one, two := t.Name()+" 1", t.Name()+" 2"
	a, b, both := member(t, s, one), member(t, s, two), member(t, s, one, two)
	a.say(one, "in one")
	both.hearsText("in one")
	b.say(two, "in two")
	both.hearsText("in two")
	both.say(one, "one from both")
	both.say(two, "two from both")
	a.hearsText("one from both")
	b.hearsText("two from both")
}

func testNotMember(t *testing.T, s *server) {
	room := t.Name()
	a, b, stranger := member(t, s, room), member(t, s, room), member(t, s, room+" other")
	stranger.say(room, "from outside")
	stranger.sync()
	a.say(room, "from inside")
	b.hearsText("from inside")
	b.say(room, "back")
	a.hearsText("back")
}

func testOrder(t *testing.T, s *server) {
	room := t.Name()
	a, b := member(t, s, room), member(t, s, room)
	const n = 100
	for i := range n {
		a.queue(websocket.OpText, fmt.Appendf(nil, `{"type":"chat","room":%q,"text":"number %d"}`, room, i))
	}
	a.flush()
	for i := range n {
		b.hearsText(fmt.Sprint("number ", i))
	}
}

func testLarge(t *testing.T, s *server) {
	room := t.Name()
	a, b := member(t, s, room), member(t, s, room)
	for _, size := range []int{100, 1000, 5000, 16 << 10} {
		chat := fmt.Sprintf(`{"type":"chat","room":%q,"text":""}`, room)
		chat = strings.Replace(chat, `""`, `"`+strings.Repeat("x", size-len(chat))+`"`, 1)
		a.send("%s", chat)
		b.hears(chat)
	}
}

// testFragments sends one message as three frames, with a ping in between.
func testFragments(t *testing.T, s *server) {
	room := t.Name()
	b := member(t, s, room)
	raw := dialRaw(t, s)
	chat := fmt.Sprintf(`{"type":"chat","room":%q,"text":"in fragments"}`, room)
	raw.write(true, websocket.OpText, fmt.Sprintf(`{"type":"join","room":%q}`, room))
	raw.write(false, websocket.OpText, chat[:10])
	raw.write(true, websocket.OpPing, "between")
	raw.write(false, websocket.OpContinuation, chat[10:20])
	raw.write(true, websocket.OpContinuation, chat[20:])
	b.hears(chat)
}

func testPing(t *testing.T, s *server) {
	c := dial(t, s)
	for _, ts := range []string{"1700000000123", "0", "1"} {
		c.send(`{"type":"ping","ts":%s}`, ts)
		if m := parse(t, c.next()); m.Type != "pong" || !sameJSON(t, m.TS, []byte(ts)) {
			t.Errorf("got a %s with ts %s, want a pong with ts %s", m.Type, m.TS, ts)
		}
	}
	c.send(`{"type":"pong","ts":5}`) // no answer
	c.sync()
}

func testWebSocketPing(t *testing.T, s *server) {
	c := dial(t, s)
	for _, payload := range []string{"", "a payload", strings.Repeat("x", websocket.MaxControl)} {
		c.queue(websocket.OpPing, []byte(payload))
		c.flush()
		select {
		case got := <-c.pongs:
			if string(got) != payload {
				t.Errorf("pong with %q, want %q", got, payload)
			}
		case <-time.After(patience):
			t.Fatal("no pong")
		}
	}
}

func malformed(room string) []string {
	in := func(format string) string { return fmt.Sprintf(format, room) }
	return []string{
		"", " ", "{", "}", "not json", "null", "true", "7", `"chat"`, "[]", "{}", "\x00", "\ufeff{}",
		`{"type":null}`, `{"type":5}`, `{"type":""}`, `{"type":["chat"]}`, `{"type":{"type":"chat"}}`, `{"type":"shout"}`,
		in(`{"room":%q,"text":"no type"}`),
		in(`{"type":"CHAT","room":%q,"text":"no such type"}`),
		in(`[{"type":"chat","room":%q,"text":"in an array"}]`),
		in(`{"message":{"type":"chat","room":%q,"text":"in an object"}}`),
		in(`{"type":"chat","room":%q,"text":"cut off`),
		in(`{"type":"chat","room":%q,"text":"followed"} by something`),
		in(`{"type":"chat","room":%q,"text":{"no":"text"}}`),
		in(`{"type":"chat","room":%q,"text":["no text"]}`),
		in(`{"type":"chat","room":%q,"text":7}`),
		in(`{"type":"chat","room":[%q],"text":"to a list"}`),
		`{"type":"chat","room":7,"text":"to a number"}`,
		`{"type":"join","room":{}}`, `{"type":"leave","room":5}`,
		strings.Repeat("[", 10_000), strings.Repeat(`{"type":`, 2_000),
		in(`{"type":"chat","room":%q,"text":`) + strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000) + "}",
	}
}

// testMalformed: malformed messages have no effect, and the connection stays open.
func testMalformed(t *testing.T, s *server) {
	room := t.Name()
	a, b := member(t, s, room), member(t, s, room)
	for _, payload := range malformed(room) {
		a.send("%s", payload)
		a.sync()
		a.say(room, "marker")
		if m := parse(t, b.next()); m.Text != "marker" {
			t.Fatalf("after %.100q the others got %q", payload, m.Text)
		}
	}
	for _, payload := range []string{"", "\x00\x01\xfe\xff", strings.Repeat("\xff", 300)} {
		a.queue(websocket.OpBinary, []byte(payload))
		a.sync()
	}
	a.say(room, "alive")
	b.hearsText("alive")
	b.say(room, "a member still")
	a.hearsText("a member still")
}

func testLeaveRoom(t *testing.T, s *server) {
	one, two := t.Name()+" 1", t.Name()+" 2"
	a, b := member(t, s, one, two), member(t, s, one, two)
	other := member(t, s, one)
	b.send(`{"type":"leave","room":%q}`, t.Name()+" never joined")
	b.send(`{"type":"leave","room":%q}`, one)
	b.sync()
	b.say(one, "from outside")
	b.sync()
	a.say(one, "in one")
	other.hearsText("in one")
	a.say(two, "in two")
	b.hearsText("in two")
	b.send(`{"type":"join","room":%q}`, one)
	b.sync()
	a.say(one, "again")
	b.hearsText("again")
	other.hearsText("again")
}

func testLeave(t *testing.T, s *server) {
	one, two := t.Name()+" 1", t.Name()+" 2"
	a, b, c := member(t, s, one, two), member(t, s, one, two), member(t, s, one, two)
	b.send(`{"type":"leave"}`)
	b.closedWith(websocket.StatusNormal)
	a.say(one, "they go on")
	c.hearsText("they go on")
	c.say(two, "and on")
	a.hearsText("and on")
}

// testLeaveAndClose leaves as the load generator does.
func testLeaveAndClose(t *testing.T, s *server) {
	room := t.Name()
	a, b, c := member(t, s, room), member(t, s, room), member(t, s, room)
	b.queue(websocket.OpText, fmt.Appendf(nil, `{"type":"leave","room":%q}`, room))
	b.conn.StartClose(websocket.StatusNormal, "")
	b.closedWith(websocket.StatusNormal)
	a.say(room, "they go on")
	c.hearsText("they go on")
}

func testClose(t *testing.T, s *server) {
	room := t.Name()
	a, b, c := member(t, s, room), member(t, s, room), member(t, s, room)
	b.conn.StartClose(websocket.StatusNormal, "bye")
	b.closedWith(websocket.StatusNormal)
	a.say(room, "they go on")
	c.hearsText("they go on")
}
