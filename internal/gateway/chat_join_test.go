package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// serveLongHistory serves a room with count messages of 10 KiB, and returns the
// server's address.
func serveLongHistory(t *testing.T, count int) (*memoryStore, string) {
	t.Helper()
	store, _, addr := serveStored(t)
	text := strings.Repeat("x", 10<<10)
	for range count {
		store.put("kept-1", fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"%s"}`, text))
	}
	talker := dial(t, "ws://"+addr+"/ws")
	send(t, talker, fmt.Sprintf(`{"type":"join","room":"kept-1","after":%d,"id":0}`, count))
	expect(t, talker, fmt.Sprintf(`{"history":0,"id":0,"position":%d,"type":"ok"}`, count))
	send(t, talker, `{"type":"chat","room":"kept-1","text":"last","id":1}`)
	expect(t, talker, fmt.Sprintf(`{"id":1,"position":%d,"type":"ok"}`, count+1))
	return store, addr
}

func TestJoin_LongHistoryAtThePeersPace(t *testing.T) {
	t.Parallel()
	const total = 1000 // 10 MiB: more than sockets and the credit hold
	_, addr := serveLongHistory(t, total)
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"join","room":"kept-1","after":0}`)
	time.Sleep(50 * time.Millisecond) // it does not read yet
	follow(t, c, 0, total+1)
}

// heard is a member's received messages in order: positions of chats, ids of
// answers, and "pong" for an answer to a ping.
func heard(t *testing.T, c *websocket.Conn, last string) (all []string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	for {
		messages, err := read(c)
		for _, m := range messages {
			var what struct {
				Type, Code string
				ID         any
				Position   int64
			}
			if err := json.Unmarshal(m.Payload, &what); err != nil {
				t.Fatal(err)
			}
			switch what.Type {
			case "chat":
				all = append(all, fmt.Sprint(what.Position))
			case "pong":
				all = append(all, "pong")
			default:
				all = append(all, fmt.Sprint(what.ID)+what.Code)
			}
			if all[len(all)-1] == last {
				return all
			}
		}
		if err != nil {
			t.Fatalf("after %d messages: %v", len(all), err)
		}
	}
}

// TestJoin_AnswersOvertakeTheHistory: answers overtake the history, but messages
// to the room that is being joined are handled after the join.
func TestJoin_AnswersOvertakeTheHistory(t *testing.T) {
	t.Parallel()
	const total = 1000
	_, addr := serveLongHistory(t, total)
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c,
		`{"type":"join","room":"kept-1","after":0,"id":"join"}`,
		`{"type":"chat","room":"kept-1","text":"me","id":"chat"}`,
		`{"type":"join","room":"kept-1","after":7,"id":"again"}`,
		`{"type":"join","room":"other","id":"other"}`,
		`{"type":"ping","ts":1}`)
	time.Sleep(50 * time.Millisecond)
	got := heard(t, c, "chat")
	if !slices.Contains(got, "again") { // the store may take its time, or not
		got = append(got, heard(t, c, "again")...)
	}
	at := make(map[string]int)
	for i, what := range got {
		at[what] = i
	}
	if at["pong"] > total/2 || at["other"] > total/2 {
		t.Errorf("the answers came after %d and %d messages", at["other"], at["pong"])
	}
	if at["join"] != total+3 || at["again"] < at["join"] || at["chat"] < at["join"] {
		t.Errorf("the joins were answered after %d and %d messages, and the chat after %d, want %d and more", at["join"], at["again"], at["chat"], total+3)
	}
	send(t, c, `{"type":"leave","room":"other","id":"left"}`)
	heard(t, c, "left")
}

// TestJoin_TooMuchAfterIt: too many messages after a pending join are refused,
// and the others are handled in order.
func TestJoin_TooMuchAfterIt(t *testing.T) {
	t.Parallel()
	store, addr := serveLongHistory(t, 10)
	store.mu.Lock()
	store.let = make(chan struct{})
	store.mu.Unlock()
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"join","room":"kept-1","history":5,"id":"join"}`)
	for n := range 102 {
		send(t, c, fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"x","id":"%d."}`, n))
	}
	if got := heard(t, c, "101.join_pending"); len(got) != 2 || got[0] != "100.join_pending" {
		t.Errorf("got %v", got)
	}
	close(store.let)
	want := []string{"7", "8", "9", "10", "11", "join"}
	for n := range 100 {
		want = append(want, fmt.Sprintf("%d.", n))
	}
	if got := heard(t, c, "99."); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %v", got)
	}
}

// TestJoin_LeaveAfterIt: leaving all rooms waits for a pending join.
func TestJoin_LeaveAfterIt(t *testing.T) {
	t.Parallel()
	_, addr := serveLongHistory(t, 100)
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"join","room":"kept-1","after":0,"id":"a"}`, `{"type":"join","room":"kept-2","after":0,"id":"b"}`, `{"type":"leave","id":"left"}`)
	got := heard(t, c, "left")
	if len(got) != 101+3 {
		t.Errorf("got %v", got)
	}
	if _, err := read(c); !isClose(err, websocket.StatusNormal) {
		t.Errorf("ended with %v, want a Close frame with 1000", err)
	}
}

// TestJoin_StopInTheMiddle: the server stops in the middle of a history that the
// peer does not read. The join is still answered, and the connection is closed
// with a closing handshake.
func TestJoin_StopInTheMiddle(t *testing.T) {
	t.Parallel()
	store, server, addr := serveStored(t)
	text := strings.Repeat("x", 100<<10)
	for range 400 {
		store.put("kept-1", fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"%s"}`, text))
	}
	talker := dial(t, "ws://"+addr+"/ws")
	send(t, talker, fmt.Sprintf(`{"type":"join","room":"kept-1","after":%d,"id":0}`, 400))
	expect(t, talker, fmt.Sprintf(`{"history":0,"id":0,"position":%d,"type":"ok"}`, 400))
	send(t, talker, `{"type":"chat","room":"kept-1","text":"last","id":1}`)
	expect(t, talker, `{"id":1,"position":401,"type":"ok"}`)
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"join","room":"kept-1","after":0,"id":"join"}`)
	if _, err := read(c); err != nil { // the history has begun
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(t.Context()) }()
	heard(t, c, "joinunavailable")
	if _, err := read(c); !isClose(err, websocket.StatusGoingAway) {
		t.Errorf("ended with %v, want a Close frame with 1001", err)
	}
	c.Close(websocket.StatusGoingAway, "")
	talker.Abort()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestJoin_PagesOfHistoryAreBounded: pages of history are bounded in bytes and
// number, with any number of joins.
func TestJoin_PagesOfHistoryAreBounded(t *testing.T) {
	t.Parallel()
	const total, joiners = 60, 20
	store, addr := serveLongHistory(t, total)
	store.mu.Lock()
	store.slow = 5 * time.Millisecond
	store.mu.Unlock()
	var all []*websocket.Conn
	for n := range joiners {
		c := dial(t, "ws://"+addr+"/ws")
		join := `"after":0`
		if n%2 == 0 {
			join = `"history":1000`
		}
		send(t, c, `{"type":"join","room":"kept-1",`+join+`}`)
		all = append(all, c)
	}
	var reading sync.WaitGroup
	for _, c := range all { // at once: one that waits for its turn reads too slowly
		reading.Go(func() { follow(t, c, 0, total+1) })
	}
	reading.Wait()
	store.mu.Lock()
	defer store.mu.Unlock()
	if store.widest > 256<<10 || store.mostReads > 8 {
		t.Errorf("a page may have %d bytes, and %d were read at a time: want at most 256 KiB, and 8", store.widest, store.mostReads)
	}
}
