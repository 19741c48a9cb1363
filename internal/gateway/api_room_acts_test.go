package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// kicked is what the connection of a user who was removed from a room gets.
func kicked(room string) string {
	return fmt.Sprintf(`{"type":"error","code":"kicked","message":"an administrator has removed this user from the room: a program does not join again by itself","retryable":false,"room":%q}`, room)
}

// TestKick: the connections of the user leave the room, on all servers and both endpoints, and are told so. They may come back by a join.
func TestKick(t *testing.T) {
	t.Parallel()
	_, there, elsewhere := serveRooms(t, nil)
	_, _, c := serveRooms(t, others{map[string]*gateway.Server{"there": there, "deaf": nil}})
	bob := connect(t, c.addr)
	bob.ask(`{"type":"join","room":"a","user":"bob","presence":true,"id":1}`, `{"id":1,"type":"ok"}`)
	ann := []*wire{connect(t, c.addr), {socket: dial(t, "ws://"+c.addr+"/ws/chat"), t: t}, connect(t, elsewhere.addr)}
	for _, w := range ann {
		w.ask(`{"type":"join","room":"a","user":"ann","id":1}`, `{"id":1,"type":"ok"}`)
		w.ask(`{"type":"join","room":"b","user":"ann","id":2}`, `{"id":2,"type":"ok"}`)
	}
	bob.until(`"count":3`)
	c.want("GET", "/v1/rooms/a/members", "", 200, `{"room":"a","count":4,"members":["ann","bob"],"stored":false,"silent":["deaf"]}`)
	elsewhere.want("GET", "/v1/rooms/a/members", "", 200, `{"room":"a","count":1,"members":["ann"],"stored":false}`)
	c.want("POST", "/v1/rooms/a/kick", `{"user":"ann"}`, 200, `{"connections":3,"silent":["deaf"]}`)
	c.want("POST", "/v1/rooms/a/kick", `{"user":"ann"}`, 200, `{"connections":0,"silent":["deaf"]}`)
	for _, w := range ann {
		w.want(kicked("a"))
		w.ask(`{"type":"chat","room":"a","text":"x","id":3}`, `{"code":"not_joined","id":3,"message":"join the room first","retryable":false,"type":"error"}`)
	}
	bob.until(`"count":1`)
	c.want("GET", "/v1/rooms/a/members", "", 200, `{"room":"a","count":1,"members":["bob"],"stored":false,"silent":["deaf"]}`)
	ann[0].ask(`{"type":"join","room":"a","user":"ann","id":4}`, `{"id":4,"type":"ok"}`)
	ann[0].ask(`{"type":"chat","room":"a","text":"back","id":5}`, `{"id":5,"type":"ok"}`)
	bob.until(`"text":"back"`)
	for body, want := range map[string]string{`{}`: "malformed", `{"user":""}`: "malformed", `{"user":7}`: "malformed", `{"who":"ann"}`: "unknown_field", `{"user":"` + strings.Repeat("x", 129) + `"}`: "malformed"} {
		if status, text := c.do("POST", "/v1/rooms/a/kick", body); status != 400 || !strings.Contains(text, `"`+want+`"`) {
			t.Errorf("%s: %d %s, want %s", body, status, text, want)
		}
	}
}

// TestKick_DefaultRoom: a chat without a room does not bring a user back who was removed from the default room; a join does.
func TestKick_DefaultRoom(t *testing.T) {
	t.Parallel()
	_, _, c := serveRooms(t, nil)
	w := &wire{socket: dial(t, "ws://"+c.addr+"/ws/chat"), t: t}
	w.ask(`{"type":"chat","user":"ann","text":"1","id":1}`, `{"id":1,"type":"ok"}`)
	c.want("POST", "/v1/rooms/public/kick", `{"user":"ann"}`, 200, `{"connections":1}`)
	w.want(kicked("public"))
	w.ask(`{"type":"chat","user":"ann","text":"2","id":2}`, `{"code":"not_joined","id":2,"message":"join the room first","retryable":false,"type":"error"}`)
	w.ask(`{"type":"join","user":"ann","id":3}`, `{"id":3,"type":"ok"}`)
	w.ask(`{"type":"chat","text":"3","id":4}`, `{"id":4,"type":"ok"}`)
}

// TestKick_DuringHistory: a user who is removed while its join is sending the history is no member afterwards.
func TestKick_DuringHistory(t *testing.T) {
	t.Parallel()
	store, _, c := serveRooms(t, nil)
	store.put("kept-1", `{"type":"chat","text":"old"}`, `{"type":"chat","text":"old"}`)
	let := make(chan struct{})
	store.change(func() { store.let = let })
	w := connect(t, c.addr)
	send(t, w.socket, `{"id":1,"type":"join","room":"kept-1","user":"ann","after":0}`)
	testkit.Eventually(t, "the history is read", func() bool { return store.reading() == 1 })
	c.want("POST", "/v1/rooms/kept-1/chats", `{"text":"new"}`, 200, `{"position":3}`)
	let <- struct{}{} // it becomes a member, and reads the new chat
	testkit.Eventually(t, "it is a member", func() bool {
		_, text := c.do("GET", "/v1/rooms/kept-1/members", "")
		return store.reading() == 1 && strings.Contains(text, `"count":1`)
	})
	c.want("POST", "/v1/rooms/kept-1/kick", `{"user":"ann"}`, 200, `{"connections":1}`)
	close(let)
	w.until(`"code":"kicked"`)
	if got := w.code(`{"type":"chat","room":"kept-1","text":"x","id":"x"}`); got != "not_joined" {
		t.Error(got)
	}
}

// TestAPI_Rooms: the rooms on all servers, the largest first, and not too many of them.
func TestAPI_Rooms(t *testing.T) {
	t.Parallel()
	_, there, elsewhere := serveRooms(t, nil)
	_, _, c := serveRooms(t, others{map[string]*gateway.Server{"there": there, "deaf": nil}})
	elsewhere.want("GET", "/v1/rooms", "", 200, `{"rooms":[]}`)
	for n, name := range []string{"a", "kept-1", "a", "b", "a", "b"} {
		at := c.addr
		if n > 2 {
			at = elsewhere.addr
		}
		w := connect(t, at)
		send(t, w.socket, `{"type":"join","room":"`+name+`","id":1}`)
		w.until(`"ok"`)
	}
	c.do("POST", "/v1/rooms/a/chats", `{"text":"x"}`)
	c.do("POST", "/v1/rooms/a/chats", `{"text":"y"}`)
	c.want("GET", "/v1/rooms", "", 200, `{"rooms":[{"room":"a","count":3,"chats":2,"stored":false},{"room":"b","count":2,"chats":0,"stored":false},{"room":"kept-1","count":1,"chats":0,"stored":true}],"silent":["deaf"]}`)
	c.want("GET", "/v1/rooms?find=ept", "", 200, `{"rooms":[{"room":"kept-1","count":1,"chats":0,"stored":true}],"silent":["deaf"]}`)
	w := connect(t, elsewhere.addr)
	for n := range 100 {
		w.ask(fmt.Sprintf(`{"type":"join","room":"m%d","id":1}`, n), `{"id":1,"type":"ok"}`)
	}
	_, text := c.do("GET", "/v1/rooms?find=m", "")
	if n := strings.Count(text, `"room":"m`); n != 100 || strings.Contains(text, "truncated") {
		t.Errorf("%d rooms of 100: %.200s", n, text)
	}
	for n := range 450 {
		if n%50 == 0 {
			w = connect(t, c.addr)
		}
		w.ask(fmt.Sprintf(`{"type":"join","room":"n%d","id":1}`, n), `{"id":1,"type":"ok"}`)
	}
	_, text = c.do("GET", "/v1/rooms", "")
	if n := strings.Count(text, `"room":`); n != 500 || !strings.Contains(text, `"truncated":true`) || !strings.HasPrefix(text, `{"rooms":[{"room":"a","count":3`) {
		t.Errorf("%d rooms of more than 500: %.200s", n, text)
	}
}
