package gateway_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestChat_NobodySpeaksAsAnother: members use type, room, user and position, with different JSON parsers. A chat that two parsers could read
// differently is refused.
func TestChat_NobodySpeaksAsAnother(t *testing.T) {
	t.Parallel()
	_, _, addr := serveStored(t)
	talker, member := joinStored(t, addr, "", joined(0, 0)), joinStored(t, addr, "", joined(0, 0))
	for _, w := range []*wire{talker, member} {
		w.ask(`{"type":"join","room":"a","id":1}`, `{"id":1,"type":"ok"}`)
	}
	const forged, added = "want this field once, spelled in no other way", "want none: the server adds it"
	for _, r := range []struct{ fields, field, want string }{
		{`"room":"a","Room":"b"`, "room", forged}, {`"room":"a","room":"b"`, "room", forged}, {`"room":"a","ro\u006fm":"b"`, "room", forged}, {`"room":"a","user":"eve","user":"bob"`, "user", forged},
		{`"room":"a","u\u017fer":"bob"`, "user", forged}, {`"room":"a","uſer":"bob"`, "user", forged}, {`"room":"a","Type":"presence"`, "type", forged}, {`"room":"a","t\u0079pe":"gap"`, "type", forged},
		{`"room":"a","position":1,"position":2`, "position", forged}, {`"room":"a","po\u017fition":2`, "position", forged}, {`"room":"a","Time":2`, "time", forged},
		{`"room":"a","user\u0000":"admin","user":"bob"`, "user", forged}, // a parser in C sees two of them
		{`"room":"kept-1","position":9`, "position", added}, {`"room":"kept-1","time":"2026-11-26T08:05:07.089Z"`, "time", added}, {`"room":"kept-1","time":null`, "time", added},
	} {
		talker.ask(`{"type":"chat","text":"forged","id":1,`+r.fields+`}`, fmt.Sprintf(`{"code":"malformed","id":1,"message":"%s: %s","retryable":false,"type":"error"}`, r.field, r.want))
	}
	send(t, talker.socket, `{"type":"chat","text":"forged","room":"a","id":1,"ID":2}`) // which answer would it be?
	for _, fields := range []string{
		`"room":"a","text":"first","text":"last"`, `"room":"a","position":{"x":1},"time":[],"client":7,"client":8,"sequence":{},"data":{"id":1,"room":"b","Room":"c","type":["type"]}`, `"room":"a","rooms":1,"use\u0072s":2`,
	} {
		talker.ask(`{"type":"chat","text":"plain","id":2,`+fields+`}`, `{"id":2,"type":"ok"}`)
		member.want(`{"type":"chat","text":"plain",` + fields + `}`)
	}
}

// TestStored_RowsThatAreNoChats: rows that are not chats are skipped and counted, since other programs can write to the table.
func TestStored_RowsThatAreNoChats(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	rows := []string{
		"", " ", "{}", "{", "[]", "null", `"x"`, "\xff", `{"type":"chat"}`, `{"type":"gap","room":"kept-1"}`,
		`{"type":"chat","room":"kept-1","text":"x","Room":"other"}`, `{"type":"chat","room":"kept-1","text":"x","position":7}`, "{\"type\":\"chat\",\"text\":\"\xff\"}", strings.Repeat("[", 20000),
	}
	store.put("kept-1", append(rows, `{"type":"chat","room":"kept-1","text":"15"}`)...)
	last := len(rows) + 1
	for _, join := range []string{`,"history":1000`, `,"after":0`} {
		joinStored(t, addr, join, chatAt(15, last), joined(1, last))
	}
	waitMetric(t, addr, fmt.Sprintf("tidewire_chat_rows_skipped_total %d", 2*len(rows)))
}
