package room_test

import (
	"fmt"
	"testing"

	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// TestKick: all memberships of the user in that room end, and no others.
func TestKick(t *testing.T) {
	t.Parallel()
	hub := room.NewHub(room.Config{})
	told := 0
	join := func(name, user string) *room.Member {
		return hub.Join(nil, name, room.JoinOptions{User: user, Hold: true, Kicked: func() { told++ }})
	}
	out := []*room.Member{join("a", "ann"), join("a", "ann")}
	stay := []*room.Member{join("a", "bob"), join("a", ""), join("b", "ann")}
	for _, again := range []int{2, 0} {
		if n := hub.Kick("a", "ann"); n != again || told != 2 {
			t.Fatalf("%d were kicked, and %d told, want %d and 2", n, told, again)
		}
	}
	if n := hub.Kick("nowhere", "ann"); n != 0 {
		t.Fatalf("%d were in a room that is not there", n)
	}
	for _, m := range out {
		if !m.Left() {
			t.Error("a kicked member is in the room")
		}
	}
	for _, m := range stay {
		if m.Left() {
			t.Error("another member is not in its room")
		}
		m.Leave()
	}
	hub.Wait()
}

// TestLargest: the largest rooms that fit, with their members and chats.
func TestLargest(t *testing.T) {
	t.Parallel()
	hub := room.NewHub(room.Config{})
	const all = 50
	var members []*room.Member
	for n := range all {
		for range n%10 + 1 {
			members = append(members, hub.Join(nil, fmt.Sprintf("r%02d", n), room.JoinOptions{Hold: true}))
		}
		for range n {
			hub.Publish(fmt.Sprintf("r%02d", n), nil, websocket.OpText, []byte("chat"))
		}
	}
	any := func(string) bool { return true }
	got, more := hub.Largest(3, any)
	if want := "[{r09 10 9} {r19 10 19} {r29 10 29}] true"; fmt.Sprint(got, more) != want {
		t.Errorf("%v %v, want %s", got, more, want)
	}
	if got, more = hub.Largest(all, any); len(got) != all || more || got[all-1] != (room.Size{Room: "r40", Count: 1, Chats: 40}) {
		t.Errorf("%d rooms, more %v, the last %v", len(got), more, got[len(got)-1])
	}
	if got, more = hub.Largest(1, func(name string) bool { return name == "r17" }); more || fmt.Sprint(got) != "[{r17 8 17}]" {
		t.Errorf("%v %v", got, more)
	}
	for _, m := range members {
		m.Leave()
	}
	hub.Wait()
	if got, _ = hub.Largest(1, any); len(got) != 0 {
		t.Errorf("%v without members", got)
	}
}
