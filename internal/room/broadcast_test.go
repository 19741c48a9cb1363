package room_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// TestHub_Broadcast: a message without a sender reaches all members on two hubs, in order, also from the hub on which nobody is, where no room is left.
func TestHub_Broadcast(t *testing.T) {
	t.Parallel()
	joined := newLinks()
	here, dial := setup(t, joined.node(0), room.JoinOptions{})
	there := room.NewHub(joined.node(1))
	a, b := dial(), dial()
	var want []string
	for n := range 300 {
		text := fmt.Sprint(n)
		want = append(want, text)
		if n < 200 {
			there.Broadcast("public", websocket.OpText, []byte(text))
			continue
		}
		if n == 200 {
			there.Wait() // its room has ended: all is on its way
		}
		here.Broadcast("public", websocket.OpText, []byte(text))
	}
	for _, c := range []*websocket.Conn{a, b} {
		if got := read(t, c, len(want)); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
	}
	if n := there.Stats().Rooms; n != 0 {
		t.Errorf("%d rooms are left where nobody is", n)
	}
}

// TestHub_Members counts all connections, and names each user once, up to 1,000.
func TestHub_Members(t *testing.T) {
	t.Parallel()
	hub := room.NewHub(room.Config{})
	var members []*room.Member
	for n := range 2100 {
		user := ""
		if n%2 == 0 {
			user = fmt.Sprint(n % 2002)
		}
		members = append(members, hub.Join(new(websocket.Conn), "r", room.JoinOptions{User: user, Hold: true}))
	}
	names, more, count := hub.Members("r")
	slices.Sort(names)
	if len(slices.Compact(names)) != 1000 || !more || count != 2100 {
		t.Errorf("%d names, more %v, %d connections", len(names), more, count)
	}
	for _, m := range members {
		m.Leave()
	}
	hub.Wait()
}

// TestHub_PublishHere: a message for this node alone reaches its members, with or without other nodes, and does not go out.
func TestHub_PublishHere(t *testing.T) {
	t.Parallel()
	joined := newLinks()
	for _, cfg := range []room.Config{joined.node(0), {}} {
		hub, dial := setup(t, cfg, room.JoinOptions{})
		hub.PublishHere("public", websocket.OpText, []byte("nobody is there"))
		c := dial()
		hub.Broadcast("public", websocket.OpText, []byte("1"))
		hub.PublishHere("public", websocket.OpText, []byte("2"))
		hub.Broadcast("public", websocket.OpText, []byte("3"))
		if got := read(t, c, 3); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("got %q", got)
		}
		c.Close(websocket.StatusNormal, "")
		hub.Wait()
	}
	joined.mu.Lock()
	defer joined.mu.Unlock()
	frames := uint64(0)
	for i := 0; i < len(joined.sent[0]); i += 2 {
		frames += joined.sent[0][i+1] - joined.sent[0][i]
	}
	if frames != 2 {
		t.Errorf("%d frames went out, want 2", frames)
	}
}
