package gateway_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestStored_Time: members get the time at which the server has taken a chat, the same while it comes and in the history.
func TestStored_Time(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store, _, addr := serveStored(t)
		alice := joinStored(t, addr, "", joined(0, 0))
		alice.ask(`{"id":2,"type":"chat","room":"kept-1","text":"x","sequence":null}`, `{"id":2,"position":1,"type":"ok"}`)
		want := `{"type":"chat","room":"kept-1","text":"x","time":"` + time.Now().UTC().Format("2006-01-02T15:04:05.000Z") + `"}`
		if kept := string(store.stored[0]); kept != want {
			t.Errorf("stored %s, want %s", kept, want)
		}
		bob := joinStored(t, addr, `,"after":0`)
		if messages, err := read(bob.socket); err != nil || string(messages[0].Payload) != want[:len(want)-1]+`,"position":1}` {
			t.Errorf("%v: the history is %s, want %s with its position", err, messages[0].Payload, want)
		}
	})
}

// TestStored_RepeatedChats: a chat with client and sequence is stored and published once, and members do not get these fields.
func TestStored_RepeatedChats(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	alice, bob := joinStored(t, addr, "", joined(0, 0)), joinStored(t, addr, "", joined(0, 0))
	alice.ask(`{"type":"join","room":"kept-2","id":9}`, joined(0, 0))
	for _, c := range []struct{ say, answer string }{
		{`"room":"kept-1","text":"one","client":"a","sequence":0`, `{"id":7,"position":1,"type":"ok"}`},
		{`"room":"kept-1","text":"two","client":"a","sequence":1`, `{"id":7,"position":2,"type":"ok"}`},
		{`"room":"kept-1","text":"one","client":"a","sequence":0`, `{"duplicate":true,"id":7,"position":1,"type":"ok"}`},
		{`"room":"kept-2","text":"one","client":"a","sequence":0`, `{"duplicate":true,"id":7,"position":1,"type":"ok"}`}, // in all rooms
		{`"room":"kept-1","text":"three","client":"\u0061","sequence":1`, `{"duplicate":true,"id":7,"position":2,"type":"ok"}`},
		{`"room":"kept-1","client":"b","sequence":1,"text":"four"`, `{"id":7,"position":3,"type":"ok"}`},
		{`"room":"kept-1","text":"five","client":"","sequence":null`, `{"id":7,"position":4,"type":"ok"}`}, // as if they were missing
	} {
		alice.ask(`{"type":"chat","id":7,`+c.say+`}`, c.answer)
	}
	for n, text := range []string{"one", "two", "four", "five"} {
		bob.want(fmt.Sprintf(`{"type":"chat","room":"kept-1","text":%q,"position":%d}`, text, n+1))
	}
	bob.pong() // and nothing twice
	if n := store.count(); n != 4 {
		t.Errorf("%d chats are stored, want 4", n)
	}
}

// TestStored_RepeatsAreChecked: what names a chat is checked in stored rooms, and belongs to the application in others.
func TestStored_RepeatsAreChecked(t *testing.T) {
	t.Parallel()
	_, _, addr := serveStored(t)
	alice, bob := joinStored(t, addr, "", joined(0, 0)), talk(t, addr, "loose")
	send(t, alice.socket, `{"type":"join","room":"loose"}`)
	for fields, code := range map[string]string{
		`"client":"a"`: "invalid", `"sequence":1`: "invalid", `"client":"","sequence":1`: "invalid", `"client":"a\u0000","sequence":1`: "invalid", `"client":"` + strings.Repeat("x", 129) + `","sequence":1`: "invalid",
		`"client":"a","sequence":-1`: "invalid", `"client":7,"sequence":1`: "malformed", `"client":"a","sequence":1.5`: "malformed", `"client":"a","sequence":"1"`: "malformed",
		`"client":"a","client":"b","sequence":1`: "malformed", `"cl\u0069ent":"a","sequence":1`: "malformed", `"client":"a","sequence":1,"position":1`: "malformed",
	} {
		if got := alice.code(`{"type":"chat","room":"kept-1","text":"x","id":"x",` + fields + `}`); got != code {
			t.Errorf("%s: %q, want %s", fields, got, code)
		}
		loose := `{"type":"chat","room":"loose","text":"x",` + fields + `}`
		send(t, alice.socket, loose)
		bob.want(loose)
	}
}

var storedTime = regexp.MustCompile(`,"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"(,"position":\d+})$`)

// untimed returns a message without the time that a stored room adds.
func untimed(message []byte) string { return string(storedTime.ReplaceAll(message, []byte("$1"))) }
