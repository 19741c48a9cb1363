package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// follows returns a followed room that keeps so many bytes, and holds no other goroutines.
func follows(t *testing.T, limit int64) *followedRoom {
	hub := room.NewHub(room.Config{})
	s := &followedRooms{hub: hub, budget: budget.New(1 << 30), limit: limit, all: make(map[string]*followedRoom)}
	r := &followedRoom{set: s, name: "r", users: 1, readers: make(map[*roomReader]struct{}), changed: make(chan struct{})}
	r.memory = s.budget.Open(r.evict)
	r.listener = hub.Listen("r", func(int64, []byte) {})
	t.Cleanup(func() { r.listener.Close(); hub.Wait() })
	return r
}

func heardFrame(n int) []byte {
	return websocket.AppendFrame(nil, websocket.OpText, fmt.Appendf(nil, `{"type":"chat","text":"%d"}`, n))
}

// TestFollowedRoom_Lag: a reader that lags is told exactly how many messages it has missed, others miss none, and nothing is kept that nobody needs.
func TestFollowedRoom_Lag(t *testing.T) {
	t.Parallel()
	r := follows(t, 1000)
	slow, quick := r.attach(), r.attach()
	got, missed, all := 0, 0, 0
	for n := range 500 {
		frame := heardFrame(n)
		if n%50 == 49 { // three messages of another node are lost
			frame = websocket.AppendFrame(nil, websocket.OpText, room.GapNotice("r", 3))
			all += 2
		}
		all++
		r.hear(int64(n*100), frame)
		if _, taken, _ := quick.take(nil, 1<<20); taken.count != 1 || taken.missed != 0 {
			t.Fatalf("message %d: %+v", n, taken)
		}
		if r.bytes > r.set.limit+200 || r.memory.Held() != r.bytes {
			t.Fatalf("%d bytes are kept, and %d counted", r.bytes, r.memory.Held())
		}
	}
	for {
		out, taken, changed := slow.take(nil, 1)
		if changed != nil {
			break
		}
		missed += taken.missed
		if got += taken.count; strings.Contains(string(out), "event: gap") {
			got += 2
		}
	}
	if got+missed != all || missed == 0 || len(r.kept) != 0 || r.memory.Held() != 0 {
		t.Errorf("got %d and missed %d of %d; %d messages and %d bytes are kept", got, missed, all, len(r.kept), r.memory.Held())
	}
}
