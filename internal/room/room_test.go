package room_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup returns a hub and a way to open connections to it: each joins the room
// and publishes what it reads.
func setup(t *testing.T, cfg room.Config, opts room.JoinOptions) (*room.Hub, func() *websocket.Conn) {
	t.Helper()
	hub := room.NewHub(cfg)
	var serving sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Upgrade(w, r, websocket.Config{})
		if err != nil {
			return
		}
		serving.Go(func() {
			member := hub.Join(conn, "public", opts)
			conn.Queue(websocket.OpText, []byte("joined"))
			for {
				messages, err := conn.Read()
				for _, m := range messages {
					member.Publish(m.Op, m.Payload)
				}
				if err != nil {
					member.Leave()
					conn.Close(websocket.StatusNormal, "")
					return
				}
			}
		})
	}))
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
		hub.Wait()
		if s := hub.Stats(); s.Rooms != 0 {
			t.Errorf("%d rooms are left", s.Rooms)
		}
	})
	return hub, func() *websocket.Conn {
		c, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), websocket.Config{MaxUnsent: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Abort)
		if got := read(t, c, 1); got[0] != "joined" {
			t.Fatalf("got %q", got)
		}
		return c
	}
}

func read(t *testing.T, c *websocket.Conn, n int) (texts []string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	for len(texts) < n {
		messages, err := c.Read()
		for _, m := range messages {
			texts = append(texts, string(m.Payload))
		}
		if err != nil {
			t.Errorf("after %d of %d messages: %v", len(texts), n, err)
			return texts
		}
	}
	return texts
}

// waitStats waits for the statistics: a flush is counted at its end, when its
// messages may have been read already.
func waitStats(t *testing.T, hub *room.Hub, want room.Stats) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("stats %+v", want), func() bool { return hub.Stats() == want })
}

// TestRoom_EveryoneElseInOneOrder: all members publish at once. Each gets every
// message of the others, once, in the same order.
func TestRoom_EveryoneElseInOneOrder(t *testing.T) {
	t.Parallel()
	hub, dial := setup(t, room.Config{}, room.JoinOptions{})
	const members, each = 8, 500
	conns := make([]*websocket.Conn, members)
	for i := range conns {
		conns[i] = dial()
	}
	seen := make([][]string, members)
	var talking sync.WaitGroup
	for i, c := range conns {
		talking.Go(func() { seen[i] = read(t, c, (members-1)*each) })
		talking.Go(func() {
			for n := range each {
				c.Queue(websocket.OpText, fmt.Appendf(nil, "%d:%d", i, n))
				c.Flush()
			}
		})
	}
	talking.Wait()
	position := make(map[string]int) // by the order of member 0, then of 1
	for i, got := range seen {
		next := make([]int, members)
		for _, text := range got {
			var from, n int
			if _, err := fmt.Sscanf(text, "%d:%d", &from, &n); err != nil || from == i || n != next[from] {
				t.Fatalf("member %d got %q, want %d's message %d", i, text, from, next[from])
			}
			next[from]++
		}
	}
	for at, text := range seen[0] {
		position[text] = at
	}
	for i, got := range seen[1:] {
		last := -1
		for _, text := range got {
			if at, ok := position[text]; ok {
				if at < last {
					t.Fatalf("members 0 and %d saw %q in different orders", i+1, text)
				}
				last = at
			}
		}
	}
	waitStats(t, hub, room.Stats{Deliveries: members * (members - 1) * each, Rooms: 1})
}

// TestRoom_LaggingMemberGetsItsGap: one member reads nothing for a while.
// The others miss nothing, and its received plus reported missed messages are
// all messages. Then it gets all again.
func TestRoom_LaggingMemberGetsItsGap(t *testing.T) {
	t.Parallel()
	hub, dial := setup(t, room.Config{MaxLagBytes: 512 << 10, MaxLagAge: time.Minute}, room.JoinOptions{})
	talker, reader, slow := dial(), dial(), dial()
	const window, size = 20, 8 << 10
	text, total := strings.Repeat("x", size), 0
	for ; hub.Stats().Missed == 0; total += window { // in steps, so that reader never lags far
		for range window {
			talker.Queue(websocket.OpText, []byte(text))
		}
		talker.Flush()
		read(t, reader, window)
	}
	talker.Queue(websocket.OpText, []byte("last"))
	talker.Flush()
	slow.SetReadDeadline(time.Now().Add(30 * time.Second))
	got, missed := 0, 0
	for got+missed <= total {
		messages, err := slow.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			var gap struct {
				Type   string
				Missed int
			}
			switch {
			case len(m.Payload) == size, string(m.Payload) == "last":
				got++
			case json.Unmarshal(m.Payload, &gap) == nil && gap.Type == "gap":
				missed += gap.Missed
			default:
				t.Fatalf("got %q", m.Payload)
			}
		}
	}
	if missed == 0 || got+missed != total+1 {
		t.Errorf("slow member got %d and was told it missed %d, want %d in all", got, missed, total+1)
	}
	waitStats(t, hub, room.Stats{Deliveries: uint64(total + 1 + got), Missed: uint64(missed), Rooms: 1})
	for range 3 { // it takes part again
		talker.Queue(websocket.OpText, []byte("next"))
		talker.Flush()
		if got := read(t, slow, 1); got[0] != "next" {
			t.Errorf("after the gap came %s", got[0])
		}
	}
}

// overwhelm publishes until a member has lagged, and returns the publisher.
func overwhelm(t *testing.T, hub *room.Hub, dial func() *websocket.Conn) (talker *websocket.Conn) {
	t.Helper()
	talker = dial()
	text := []byte(strings.Repeat("x", 8<<10))
	testkit.Eventually(t, "somebody lags", func() bool {
		for talker.Unsent() < 1<<20 && hub.Stats().Missed == 0 {
			talker.Queue(websocket.OpText, text)
			talker.Flush()
		}
		return hub.Stats().Missed > 0
	})
	return talker
}

func TestRoom_LaggingMemberIsClosedIfItAsked(t *testing.T) {
	t.Parallel()
	hub, dial := setup(t, room.Config{MaxLagBytes: 64 << 10, LagCloseTimeout: time.Minute}, room.JoinOptions{DisconnectOnLag: true})
	slow := dial()
	overwhelm(t, hub, dial)
	slow.SetReadDeadline(time.Now().Add(30 * time.Second))
	var err error
	for err == nil {
		_, err = slow.Read()
	}
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation {
		t.Errorf("got %v, want code 1008", err)
	}
	slow.Close(websocket.StatusPolicyViolation, "")
}

// TestRoom_LaggingMemberIsCutOffIfItTakesNothing: a lagging member never reads
// up to the Close frame. Its connection ends without waiting for the
// WriteTimeout.
func TestRoom_LaggingMemberIsCutOffIfItTakesNothing(t *testing.T) {
	t.Parallel()
	hub, dial := setup(t, room.Config{MaxLagBytes: 64 << 10, LagCloseTimeout: 50 * time.Millisecond}, room.JoinOptions{DisconnectOnLag: true})
	dial()
	talker := overwhelm(t, hub, dial)
	talker.Abort()
	testkit.Eventually(t, "the slow member is gone", func() bool { return hub.Stats().Rooms == 0 })
}
