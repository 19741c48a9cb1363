package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// roomEvents are the server-sent events of a room.
type roomEvents struct {
	t     *testing.T
	lines *bufio.Reader
	resp  *http.Response
}

// followRoom follows a room, which works.
func followRoom(t *testing.T, addr, path string, headers ...string) *roomEvents {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("%s: %s %s", path, resp.Status, kind)
	}
	time.AfterFunc(patience, func() { resp.Body.Close() }) // a read that waits for too long fails
	e := &roomEvents{t, bufio.NewReader(resp.Body), resp}
	if line, err := e.lines.ReadString('\n'); err != nil || strings.HasPrefix(line, "id: ") == (strings.HasPrefix(path, "/v1/rooms/") && !strings.HasPrefix(path, "/v1/rooms/kept")) {
		t.Fatalf("%s begins with %q, %v, want an id unless it is a room that is not stored", path, line, err)
	} else if !strings.HasPrefix(line, "retry: ") {
		e.want("retry: 2000")
	} else {
		e.want("")
	}
	return e
}

// want expects these events, whose lines are joined with a bar.
func (e *roomEvents) want(events ...string) {
	e.t.Helper()
	for _, want := range events {
		var lines []string
		for {
			line, err := e.lines.ReadString('\n')
			if err != nil {
				e.t.Fatalf("got %v and %v, want %s", lines, err, want)
			}
			if line = strings.TrimSuffix(line, "\n"); line == "" {
				break
			}
			lines = append(lines, line)
		}
		if got := strings.Join(lines, "|"); got != want {
			e.t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// TestFollowRoom: a follower gets what comes, and is not among the members.
func TestFollowRoom(t *testing.T) {
	t.Parallel()
	_, _, c := serveRooms(t, nil)
	c.want("POST", "/v1/rooms/r/chats", `{"text":"before"}`, 200, `{}`)
	one, two := followRoom(t, c.addr, "/v1/rooms/r/follow"), followRoom(t, c.addr, "/v1/rooms/r/follow")
	c.want("GET", "/v1/rooms/r/members", "", 200, `{"room":"r","count":0,"members":[],"stored":false}`)
	c.want("POST", "/v1/rooms/r/chats", "{\"text\":\"a\",\r\n\"x\":1}", 200, `{}`)
	member := connect(t, c.addr)
	member.ask(`{"type":"join","room":"r","id":1}`, `{"id":1,"type":"ok"}`)
	member.ask(`{"type":"chat","room":"r","text":"{\"type\":\"gap\",","user":"Ann","ts":1,"id":2}`, `{"id":2,"type":"ok"}`)
	for _, e := range []*roomEvents{one, two} {
		e.want(`event: chat|data: {"type":"chat","room":"r","text":"a",  "x":1}`, `event: chat|data: {"type":"chat","room":"r","text":"{\"type\":\"gap\",","user":"Ann","ts":1}`)
	}
}

// TestFollowRoom_Stored: a follower of a stored room resumes after a position, and gets each chat once, in order, also those that come meanwhile.
// What it has got is not counted as memory any more.
func TestFollowRoom_Stored(t *testing.T) {
	t.Parallel()
	account := budget.New(1 << 30)
	store, _, c := serveRoomsIn(t, nil, account)
	const before, all = 210, 420 // several pages
	say := func(n int) {
		c.want("POST", "/v1/rooms/kept-1/chats", fmt.Sprintf(`{"text":"%d"}`, n), 200, fmt.Sprintf(`{"position":%d}`, n))
	}
	early := followRoom(t, c.addr, "/v1/rooms/kept-1/follow")
	store.put("kept-1", numbered(before, `{"type":"chat","text":"%d"}`)...)
	for n := range before { // the server has published them
		early.wantStored(n + 1)
	}
	live := followRoom(t, c.addr, "/v1/rooms/kept-1/follow")
	first, resumed := followRoom(t, c.addr, "/v1/rooms/kept-1/follow?after=0"), followRoom(t, c.addr, "/v1/rooms/kept-1/follow?after=3", "Last-Event-ID", "200")
	for n := before; n < all; n++ {
		say(n + 1)
	}
	for _, f := range []struct {
		events *roomEvents
		after  int
	}{{early, before}, {live, before}, {first, 0}, {resumed, 200}} {
		for n := f.after + 1; n <= all; n++ {
			f.events.wantStored(n)
		}
	}
	testkit.Eventually(t, "the pages of history are not counted", func() bool { return account.Held(budget.CatchUp) == 0 })
}

// unreadable is a store of rooms that knows where they end, and cannot read them.
type unreadable struct{ *memoryStore }

func (unreadable) After(context.Context, string, int64, int64, int, int) ([]engine.RoomMessage, error) {
	return nil, errors.New("disk full")
}

// TestFollowRoom_Unread: what cannot be read from the store ends the follower with an error: it does not go on after it.
func TestFollowRoom_Unread(t *testing.T) {
	t.Parallel()
	store := unreadable{newMemoryStore(t)}
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Rooms: store}, Chat: gateway.ChatConfig{StoredRooms: []string{"kept-*"}}})
	store.put("kept-1", numbered(5, `{"type":"chat","text":"%d"}`)...)
	f := followRoom(t, addr, "/v1/rooms/kept-1/follow?after=0")
	for _, part := range []string{"event: error", `"code":"unavailable"`} {
		if line, err := f.lines.ReadString('\n'); err != nil || !strings.Contains(line, part) {
			t.Fatalf("got %s and %v, want %s", line, err, part)
		}
	}
}

// wantStored expects the chat at a position.
func (e *roomEvents) wantStored(position int) {
	e.t.Helper()
	for _, part := range []string{"event: chat", fmt.Sprintf("id: %d", position), fmt.Sprintf(`"text":"%d"`, position), ""} {
		line, err := e.lines.ReadString('\n')
		if err != nil || !strings.Contains(line, part) {
			e.t.Fatalf("position %d: got %s and %v, want %s", position, line, err, part)
		}
	}
}

// TestFollowRoom_Refused: a position is for stored rooms, and one that there is.
func TestFollowRoom_Refused(t *testing.T) {
	t.Parallel()
	_, _, c := serveRooms(t, nil)
	c.refused("GET", "/v1/rooms/r/follow?after=1", "", 400, "room_not_stored")
	c.refused("GET", "/v1/rooms/r/follow", "", 400, "room_not_stored", "Last-Event-ID", "1")
	c.refused("GET", "/v1/rooms/kept-1/follow", "", 400, "invalid_start", "Last-Event-ID", "-1")
	c.refused("GET", "/v1/rooms/kept-1/follow?after=x", "", 400, "invalid_parameter")
	c.refused("GET", "/v1/rooms/kept-1/follow?after=7", "", 410, "history_lost")
	if resp, err := http.Head("http://" + c.addr + "/v1/rooms/r/follow"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("HEAD: %v, %v", resp, err)
	}
	waitMetric(t, c.addr, "tidewire_chat_followers 0")
}

// TestFollowRoom_Ends: followers hear that the server stops, and rooms without them end.
func TestFollowRoom_Ends(t *testing.T) {
	t.Parallel()
	_, server, c := serveRooms(t, nil)
	gone := followRoom(t, c.addr, "/v1/rooms/left/follow")
	stays := followRoom(t, c.addr, "/v1/rooms/r/follow")
	waitMetric(t, c.addr, "tidewire_chat_rooms 2")
	gone.resp.Body.Close()
	waitMetric(t, c.addr, "tidewire_chat_rooms 1")
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(t.Context()) }()
	for _, part := range []string{"event: error", `"code":"stopping"`} {
		if line, err := stays.lines.ReadString('\n'); err != nil || !strings.Contains(line, part) {
			t.Errorf("got %s and %v, want %s", line, err, part)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestFollowRoom_Rights: a follower needs the right to join, and for a position the right to the history.
func TestFollowRoom_Rights(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, one := range []struct{ rights, path, status string }{
		{"join room:r", "/v1/rooms/r/follow", "200"},
		{"join room:r", "/v1/rooms/other/follow", "403"},
		{"chat,history,presence room:r", "/v1/rooms/r/follow", "403"},
	} {
		if got := c.status("HEAD", one.path, "", tokenOf(t, "ann", time.Hour, one.rights)); !strings.HasPrefix(got, one.status) {
			t.Errorf("%s with %q: %s, want %s", one.path, one.rights, got, one.status)
		}
	}
}

// TestFollowRoom_ComesBack: a browser sends the id with which an answer began, so nothing is missed before the first chat; without the right to the history it
// goes on with what comes.
func TestFollowRoom_ComesBack(t *testing.T) {
	t.Parallel()
	store := newMemoryStore(t)
	c := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Engine.Rooms, cfg.Chat.StoredRooms = store, []string{"kept-*"}
	})
	reader, outsider := "Bearer "+tokenOf(t, "ann", time.Hour, "join,history room:kept-1"), "Bearer "+tokenOf(t, "bob", time.Hour, "join room:kept-1")
	followRoom(t, c.addr, "/v1/rooms/kept-1/follow", "Authorization", outsider).resp.Body.Close()
	store.put("kept-1", `{"type":"chat","text":"missed","inner":{"position":9}}`)
	e := followRoom(t, c.addr, "/v1/rooms/kept-1/follow", "Authorization", reader, "Last-Event-ID", "0")
	e.want(`event: chat|id: 1|data: {"type":"chat","text":"missed","inner":{"position":9},"position":1}`)
	late := followRoom(t, c.addr, "/v1/rooms/kept-1/follow", "Authorization", outsider, "Last-Event-ID", "0")
	store.put("kept-1", `{"type":"chat","text":"next"}`)
	late.want(`event: chat|id: 2|data: {"type":"chat","text":"next","position":2}`)
	if got := c.status("GET", "/v1/rooms/kept-1/follow?after=0", "", strings.TrimPrefix(outsider, "Bearer ")); !strings.HasPrefix(got, "403") {
		t.Errorf("a position without the right: %s", got)
	}
}

// TestFollowRoom_HistoryLost: a follower hears that a failover has lost chats, with the position to resume after as the id.
func TestFollowRoom_HistoryLost(t *testing.T) {
	t.Parallel()
	store, _, c := serveRooms(t, nil)
	e := followRoom(t, c.addr, "/v1/rooms/kept-1/follow")
	for n := range 3 {
		c.want("POST", "/v1/rooms/kept-1/chats", fmt.Sprintf(`{"text":"%d"}`, n+1), 200, fmt.Sprintf(`{"position":%d}`, n+1))
		e.wantStored(n + 1)
	}
	store.awaitFollower(t, 3)
	store.lose(3)
	e.want(`event: history_lost|id: 2|data: {"type":"history_lost","room":"kept-1","last":2,"up_to":3}`)
}
