package room

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// still returns room r of the hub, without its goroutine: the test runs the
// rounds.
func still(hub *Hub) *Room {
	r := &Room{hub: hub, name: "r", wake: make(chan struct{}, 1), done: make(chan struct{})}
	hub.rooms["r"] = r
	return r
}

// TestFlush_MemberComesDuringARound: a member joins between the listing of the
// members and the snapshot of the log. Serving newer messages to the others
// must not release them before the new member has them.
func TestFlush_MemberComesDuringARound(t *testing.T) {
	t.Parallel()
	hub := NewHub(Config{})
	r := still(hub)
	theirs, mine := connect(t)
	lateTheirs, lateMine := connect(t)

	hub.Join(theirs, "r", JoinOptions{})
	f := round{room: r}
	f.begin(time.Now())
	hub.Join(lateTheirs, "r", JoinOptions{})
	hub.Publish("r", nil, websocket.OpText, []byte("said"))
	f.serve()
	f.end()
	expectSaid(t, mine)

	f.flush(time.Now())
	expectSaid(t, lateMine)
	f.flush(time.Now())
	if len(r.log.segs) != 0 {
		t.Errorf("the log keeps %d segments that everybody has", len(r.log.segs))
	}
}

func expectSaid(t *testing.T, c *websocket.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	messages, err := c.Read()
	if err != nil || len(messages) != 1 || string(messages[0].Payload) != "said" {
		t.Fatalf("got %v, %v", messages, err)
	}
}

// connect returns both ends of a connection.
func connect(t *testing.T) (server, client *websocket.Conn) {
	t.Helper()
	upgraded := make(chan *websocket.Conn, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Upgrade(w, r, websocket.Config{})
		if err != nil {
			t.Error(err)
		}
		upgraded <- conn
	}))
	t.Cleanup(s.Close)
	client, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http"), websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server = <-upgraded
	t.Cleanup(client.Abort)
	t.Cleanup(server.Abort)
	return server, client
}

// TestFlush_EndedConnection: nothing is kept for a member, or a watcher, whose connection has ended and who has not left yet.
func TestFlush_EndedConnection(t *testing.T) {
	t.Parallel()
	hub := NewHub(Config{})
	r := still(hub)
	theirs, _ := connect(t)
	m := hub.Join(theirs, "r", JoinOptions{})
	w, p := &watcher{member: m, follows: true}, newPresence(r)
	theirs.Abort()
	hub.Publish("r", nil, websocket.OpText, []byte("said"))
	f := round{room: r}
	f.flush(time.Now())
	f.flush(time.Now())
	if len(r.log.segs) != 0 {
		t.Errorf("the log keeps %d segments for a connection that has ended", len(r.log.segs))
	}
	p.log.append(websocket.AppendFrame(nil, websocket.OpText, []byte("said")))
	if !w.offer(p, time.Now()) {
		t.Error("a watcher whose connection has ended is waited for")
	}
}

// TestFlush_LagIsWhatItIsNow: many bytes were in flight to a member at the last
// look, and it has taken them since. It does not lag.
func TestFlush_LagIsWhatItIsNow(t *testing.T) {
	t.Parallel()
	hub := NewHub(Config{MaxLagBytes: 1 << 20})
	r := still(hub)
	theirs, mine := connect(t)
	m := hub.Join(theirs, "r", JoinOptions{Hold: true}) // as if the socket took nothing now
	m.inFlight = 1 << 20
	hub.Publish("r", nil, websocket.OpText, []byte("said"))
	f := round{room: r}
	f.flush(time.Now())
	if m.lagging || hub.Stats().Missed != 0 {
		t.Errorf("lagging: %t, missed: %d", m.lagging, hub.Stats().Missed)
	}
	m.Release()
	f.flush(time.Now())
	expectSaid(t, mine)
}

// TestFlush_MemberComesBackDuringARound: a member leaves and rejoins between the
// listing of the members and its turn. It gets messages published then once, as
// the new member.
func TestFlush_MemberComesBackDuringARound(t *testing.T) {
	t.Parallel()
	hub := NewHub(Config{})
	r := still(hub)
	other, _ := connect(t)
	theirs, mine := connect(t)

	hub.Join(other, "r", JoinOptions{})
	before := hub.Join(theirs, "r", JoinOptions{})
	f := round{room: r}
	f.begin(time.Now())
	before.Leave()
	now := hub.Join(theirs, "r", JoinOptions{Hold: true})
	if r.have[plain] != 2 {
		t.Errorf("%d members get plain messages, want 2", r.have[plain])
	}
	hub.Publish("r", nil, websocket.OpText, []byte("said"))
	f.serve()
	f.end()
	theirs.Queue(websocket.OpText, []byte("what was said before"))
	now.Release()
	f.flush(time.Now())
	theirs.StartClose(websocket.StatusNormal, "")

	var got []string
	mine.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		messages, err := mine.Read()
		for _, m := range messages {
			got = append(got, string(m.Payload))
		}
		if err != nil {
			break
		}
	}
	if want := []string{"what was said before", "said"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
