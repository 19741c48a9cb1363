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

// serveLongHistory serves a room with count messages of 10 KiB, and returns the server's address.
func serveLongHistory(t *testing.T, count int) (*memoryStore, string) {
	t.Helper()
	store, _, addr := serveStored(t)
	store.put("kept-1", slices.Repeat([]string{`{"type":"chat","room":"kept-1","text":"` + strings.Repeat("x", 10<<10) + `"}`}, count)...)
	joinStored(t, addr, fmt.Sprintf(`,"after":%d`, count), joined(0, count)) // the server has seen it
	return store, addr
}

// heard is a member's received messages in order: positions of chats, ids of answers, and "pong" for an answer to a ping.
func heard(t *testing.T, c socket, last string) (all []string) {
	t.Helper()
	w := &wire{socket: c, t: t}
	for len(all) == 0 || all[len(all)-1] != last {
		var what struct {
			Type, Code string
			ID         any
			Position   int64
		}
		text := w.next()
		if err := json.Unmarshal([]byte(text), &what); err != nil {
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
	}
	return all
}

// TestJoin_AnswersOvertakeTheHistory: a history comes at the pace of the peer. Answers overtake it, but messages to the room that is being
// joined are handled after the join.
func TestJoin_AnswersOvertakeTheHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const total = 800 // 8 MiB: more than the credit
		store, addr := serveLongHistory(t, total)
		c := dial(t, "ws://"+addr+"/ws")
		send(t, c,
			`{"type":"join","room":"kept-1","after":0,"id":"join"}`, `{"type":"chat","room":"kept-1","text":"me","id":"chat"}`, `{"type":"join","room":"kept-1","after":7,"id":"again"}`,
			`{"type":"join","room":"other","id":"other"}`, `{"type":"ping","ts":1}`)
		time.Sleep(5 * time.Second)
		if n := store.look(func() int { return store.widest }); n == 0 || n > 256<<10 {
			t.Errorf("a page may have %d bytes, want at most 256 KiB", n)
		}
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
		if at["join"] != total+2 || at["again"] < at["join"] || at["chat"] < at["join"] {
			t.Errorf("the joins were answered after %d and %d messages, and the chat after %d, want %d and more", at["join"], at["again"], at["chat"], total+2)
		}
	})
}

// TestJoin_TooMuchAfterIt: too many messages after a pending join are refused, and the others are handled in order.
func TestJoin_TooMuchAfterIt(t *testing.T) {
	t.Parallel()
	store, addr := serveLongHistory(t, 10)
	let := make(chan struct{})
	store.change(func() { store.let = let })
	c := connect(t, addr)
	send(t, c.socket, `{"type":"join","room":"kept-1","history":5,"id":"join"}`)
	send(t, c.socket, numbered(102, `{"type":"chat","room":"kept-1","text":"x","id":%d}`)...)
	for _, id := range []string{`"id":101`, `"id":102`} {
		if got := c.next(); !strings.Contains(got, id) || !strings.Contains(got, "join_pending") {
			t.Errorf("got %s", got)
		}
	}
	close(let)
	if got := heard(t, c, "100"); strings.Join(got, " ") != "6 7 8 9 10 join "+strings.Join(numbered(100, "%d"), " ") {
		t.Errorf("got %v", got)
	}
}

// TestJoin_LeaveAfterIt: leaving all rooms waits for a pending join.
func TestJoin_LeaveAfterIt(t *testing.T) {
	t.Parallel()
	_, addr := serveLongHistory(t, 50)
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"join","room":"kept-1","after":0,"id":"a"}`, `{"type":"join","room":"kept-2","after":0,"id":"b"}`, `{"type":"leave","id":"left"}`)
	if all, err := endOf(c); len(all) != 50+3 || !isClose(err, websocket.StatusNormal) {
		t.Errorf("got %d messages, and then %v, want a Close frame with 1000", len(all), err)
	}
}

// TestJoin_PagesOfHistoryAreBounded: few pages of history are read at a time, with any number of joins.
func TestJoin_PagesOfHistoryAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const total = 60
		store, addr := serveLongHistory(t, total)
		store.change(func() { store.slow = 5 * time.Millisecond })
		var reading sync.WaitGroup
		for n := range 20 {
			c := dial(t, "ws://"+addr+"/ws")
			send(t, c, `{"type":"join","room":"kept-1",`+[]string{`"after":0`, `"history":1000`}[n%2]+`}`)
			reading.Go(func() { follow(t, c, 0, total) })
		}
		reading.Wait()
		if most := store.look(func() int { return store.mostReads }); most != 8 {
			t.Errorf("%d pages were read at a time, want 8", most)
		}
	})
}
