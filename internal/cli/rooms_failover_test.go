package cli_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// chatMember is a connection that is read one message at a time.
type chatMember struct {
	*websocket.Conn
	unread []websocket.Message
}

// until returns the next message of one of these types, and the texts of the chats before it.
func (c *chatMember) until(t *testing.T, kinds ...string) (a chatAnswer, texts string) {
	t.Helper()
	for {
		for len(c.unread) == 0 {
			var err error
			if c.unread, err = c.Read(); err != nil {
				t.Fatal(err)
			}
		}
		var a chatAnswer
		if err := json.Unmarshal(c.unread[0].Payload, &a); err != nil {
			t.Fatal(err)
		}
		c.unread = c.unread[1:]
		switch {
		case slices.Contains(kinds, a.Type):
			return a, strings.TrimSpace(texts)
		case a.Type == "chat":
			texts += " " + a.Text
		case a.Type != "ping":
			t.Fatalf("%+v, want %v", a, kinds)
		}
	}
}

// TestStoredRooms_AFailoverLosesChats: members that received lost chats are told so by the server that had stored them,
// and later members get positions that are not lost.
func TestStoredRooms_AFailoverLosesChats(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t, pgxpool.New)
	pair.Unsynchronised(t)
	flags := []string{"--database-url", pair.Both(t), "--only", "chat", "--stored-rooms", "kept", "--rate-limit", "1e6", "--rate-burst", "1e6"}
	one, other := serve(t, flags...), serve(t, flags...)
	member := &chatMember{Conn: chatDial(t, one.addr)}
	say(member.Conn, `{"type":"join","room":"kept","id":1}`)
	member.until(t, "ok")
	chats := func(text string, n int) (last int64) {
		t.Helper()
		for i := range n {
			say(member.Conn, `{"type":"chat","room":"kept","text":"%s%d","id":2}`, text, i)
			a, _ := member.until(t, "ok")
			last = a.Position
		}
		return last
	}
	kept := chats("old", 8)
	pair.CatchUp(t)
	pair.Detach(t)
	lost := chats("lost", 5)
	pair.Promote(t)
	if a, _ := member.until(t, "history_lost"); a.Last != kept || a.Room != "kept" {
		t.Errorf("the member is told %+v, want last %d", a, kept)
	}
	joins := func(what string, p *program, after int64, kind, wantTexts string) (a chatAnswer) {
		t.Helper()
		c := &chatMember{Conn: chatDial(t, p.addr)}
		texts := ""
		for answered := false; !answered; answered = a.Code != "unavailable" { // on connections to the former primary
			say(c.Conn, `{"type":"join","room":"kept","after":%d,"id":3}`, after)
			a, texts = c.until(t, kind, "error")
		}
		if a.Type != kind {
			t.Errorf("%s: a join after %d: %+v, want %s", what, after, a, kind)
		}
		if texts != wantTexts {
			t.Errorf("%s: a join after %d gets %q, want %q", what, after, texts, wantTexts)
		}
		return a
	}
	check := func(what string, texts string, position int64) {
		t.Helper()
		for name, p := range map[string]*program{"the one": one, "the other": other} {
			what := fmt.Sprintf("%s, %s", what, name)
			if a := joins(what, p, kept, "ok", texts); a.Position != position {
				t.Errorf("%s: a join is at %d, want %d", what, a.Position, position)
			}
			for _, after := range []int64{kept + 1, lost, lost + 1} {
				if a := joins(what, p, after, "error", ""); a.Code != "history_lost" || a.Last != kept {
					t.Errorf("%s: a join after %d: %+v, want history_lost with %d", what, after, a, kept)
				}
			}
		}
	}
	check("before new chats", "", kept)
	check("after a new chat", "new0", chats("new", 1))
}
