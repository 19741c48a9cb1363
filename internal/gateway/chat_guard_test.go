package gateway_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestChat_NobodySpeaksAsAnother: members use type, room, user and position, with
// different JSON parsers. A chat that two parsers could read differently is
// refused.
func TestChat_NobodySpeaksAsAnother(t *testing.T) {
	t.Parallel()
	_, _, addr := serveStored(t)
	talker, member := dial(t, "ws://"+addr+"/ws"), dial(t, "ws://"+addr+"/ws")
	for _, room := range []string{"a", "kept-1"} {
		send(t, talker, fmt.Sprintf(`{"type":"join","room":%q}`, room))
		send(t, member, fmt.Sprintf(`{"type":"join","room":%q,"id":"in"}`, room))
		heard(t, member, "in")
	}
	refused := []string{
		`"room":"a","Room":"b"`, `"room":"a","room":"b"`, `"room":"a","ROOM":"b"`, `"room":"a","ro\u006fm":"b"`, `"room":"a","\u0052oom":"b"`,
		`"room":"a","user":"eve","user":"bob"`, `"room":"a","User":"bob"`, `"room":"a","u\u017fer":"bob"`, `"room":"a","uſer":"bob"`,
		`"room":"a","Type":"presence"`, `"room":"a","type":"gap"`, `"room":"a","t\u0079pe":"gap"`,
		`"room":"a","position":1,"position":2`, `"room":"a","Position":2`, `"room":"a","po\u017fition":2`,
		`"room":"a","user\u0000":"admin","user":"bob"`, // a parser in C sees two of them
		`"room":"a","time":1,"time":2`, `"room":"a","Time":2`, `"room":"a","t\u0069me":2`,
		`"room":"kept-1","position":9`, `"room":"kept-1","time":"2026-11-26T08:05:07.089Z"`, `"room":"kept-1","time":null`, // the server adds them
	}
	forged := strings.Fields("room room room room room user user user user type type type position position position user time time time position time time")
	for i, fields := range refused {
		send(t, talker, fmt.Sprintf(`{"type":"chat","text":"forged","id":%d,%s}`, i, fields))
		field := forged[i]
		want := "this field once, spelled in no other way"
		if i >= len(refused)-3 {
			want = "none: the server adds it"
		}
		expect(t, talker, fmt.Sprintf(`{"code":"malformed","id":%d,"message":"%s: want %s","retryable":false,"type":"error"}`, i, field, want))
	}
	send(t, talker, `{"type":"chat","text":"forged","room":"a","id":1,"ID":2}`) // which answer would it be?
	for i, fields := range []string{
		`"room":"a","text":"first","text":"last"`, `"room":"a","position":{"x":1},"time":[],"client":7,"client":8,"sequence":{},"data":{"id":1,"room":"b","Room":"c","type":["type"]}`, `"room":"a","rooms":1,"use\u0072s":2`,
	} {
		chat := fmt.Sprintf(`{"type":"chat","text":"plain","id":"%d",%s}`, i, fields)
		send(t, talker, chat)
		expect(t, talker, fmt.Sprintf(`{"id":"%d","type":"ok"}`, i))
		expect(t, member, strings.Replace(chat, fmt.Sprintf(`"id":"%d",`, i), "", 1))
	}
}

// TestStored_RowsThatAreNoChats: rows that are not chats are skipped and counted,
// since other programs can write to the table.
func TestStored_RowsThatAreNoChats(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	rows := []string{
		"", " ", "{}", "{", "[]", "null", `"x"`, "\xff", `{"type":"chat"}`, `{"type":"gap","room":"kept-1"}`,
		`{"type":"chat","room":"kept-1","text":"x","Room":"other"}`, `{"type":"chat","room":"kept-1","text":"x","position":7}`, "{\"type\":\"chat\",\"text\":\"\xff\"}", strings.Repeat("[", 20000),
	}
	store.mu.Lock()
	for _, row := range rows {
		store.rooms, store.stored = append(store.rooms, "kept-1"), append(store.stored, []byte(row))
	}
	store.mu.Unlock()
	c := dial(t, "ws://"+addr+"/ws")
	chat := `{"type":"chat","room":"kept-1","text":"real"}`
	send(t, c, `{"type":"join","room":"kept-2","after":0,"id":0}`) // answered when all rows have been seen
	expect(t, c, fmt.Sprintf(`{"history":0,"id":0,"position":%d,"type":"ok"}`, len(rows)))
	send(t, c, `{"type":"join","room":"kept-1"}`, chat, `{"type":"leave","room":"kept-1","id":"left"}`)
	last := len(rows) + 1
	for _, join := range []string{`"history":1000`, `"after":0`} {
		member := dial(t, "ws://"+addr+"/ws")
		waitFor(t, func() bool { store.mu.Lock(); defer store.mu.Unlock(); return len(store.stored) == last }, "the chat is not stored")
		send(t, member, `{"type":"join","room":"kept-1","id":1,`+join+`}`)
		expect(t, member, strings.Replace(chat, "}", fmt.Sprintf(`,"position":%d}`, last), 1), fmt.Sprintf(`{"history":1,"id":1,"position":%d,"type":"ok"}`, last))
	}
	waitMetric(t, addr, fmt.Sprintf("tidewire_chat_rows_skipped_total %d", 2*len(rows)))
}
