package cli_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// presenceView is what a client knows of who is in a room.
type presenceView struct {
	conn  *websocket.Conn
	names map[string]bool
	count int
}

// watchRoom joins the room "lobby" and watches who is in it.
func watchRoom(t *testing.T, addr, user string) *presenceView {
	t.Helper()
	v := &presenceView{conn: chatDial(t, addr), names: make(map[string]bool)}
	say(v.conn, `{"type":"join","room":"lobby","user":"%s","presence":true}`, user)
	return v
}

// await reads until the client knows of these users, and that many connections.
func (v *presenceView) await(t *testing.T, count int, users ...string) {
	t.Helper()
	want := slices.Sorted(slices.Values(users))
	for deadline := time.Now().Add(time.Minute); v.count != count || !slices.Equal(slices.Sorted(maps.Keys(v.names)), want); {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections of %v, want %d of %v", v.count, v.names, count, want)
		}
		v.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		messages, err := v.conn.Read()
		for _, m := range messages {
			v.take(m.Payload)
		}
		if err != nil && !os.IsTimeout(err) {
			t.Fatal(err)
		}
	}
}

func (v *presenceView) take(payload []byte) {
	var p struct {
		Type                  string
		Count                 int
		Members, Joined, Left []string
	}
	if json.Unmarshal(payload, &p) != nil || p.Type != "presence" {
		return
	}
	if p.Members != nil {
		clear(v.names)
	}
	for _, user := range append(p.Members, p.Joined...) {
		v.names[user] = true
	}
	for _, user := range p.Left {
		delete(v.names, user)
	}
	v.count = p.Count
}

// TestCluster_Presence: who watches a room learns who comes and leaves on all servers, and that a server has died.
func TestCluster_Presence(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	flags := []string{"--database-url", db.URL, "--cluster", "tides", "--cluster-listen", "127.0.0.1:0"}
	one, two := serve(t, flags...), serve(t, flags...)
	ann, bob := watchRoom(t, one.addr, "ann"), watchRoom(t, two.addr, "bob")
	ann.await(t, 2, "ann", "bob")
	bob.await(t, 2, "ann", "bob")
	third := enterAs(t, two.addr, "carol")
	also := enterAs(t, one.addr, "carol")
	unnamed := enterAs(t, two.addr, "")
	ann.await(t, 5, "ann", "bob", "carol")
	bob.await(t, 5, "ann", "bob", "carol")
	third.Abort()
	ann.await(t, 4, "ann", "bob", "carol")
	also.Abort()
	unnamed.Abort()
	ann.await(t, 2, "ann", "bob")
	bob.await(t, 2, "ann", "bob")
	ann.conn.Abort()
	bob.await(t, 1, "bob")
	late := watchRoom(t, one.addr, strings.Repeat("x", 128))
	late.await(t, 2, "bob", strings.Repeat("x", 128))
	two.cmd.Process.Kill()
	late.await(t, 1, strings.Repeat("x", 128))
	three := serve(t, flags...)
	enterAs(t, three.addr, "dora")
	late.await(t, 2, "dora", strings.Repeat("x", 128))
}

// enterAs joins the room without watching it.
func enterAs(t *testing.T, addr, user string) *websocket.Conn {
	t.Helper()
	c := chatDial(t, addr)
	say(c, `{"type":"join","room":"lobby","user":"%s","id":1}`, user)
	wantAnswer(t, c, chatAnswer{Type: "ok", ID: 1})
	return c
}
