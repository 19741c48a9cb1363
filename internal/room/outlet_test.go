package room_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// links joins the rooms of two hubs that have the same name.
type links struct {
	mu     sync.Mutex
	inlets [2]map[string]*room.Inlet
	sent   [2][]uint64 // numbers of the first frames, then of the frame after the last
	closed int
}

func newLinks() *links {
	return &links{inlets: [2]map[string]*room.Inlet{make(map[string]*room.Inlet), make(map[string]*room.Inlet)}}
}

// node is the configuration of a hub.
func (l *links) node(n int) room.Config {
	return room.Config{Connect: func(name string, in *room.Inlet) room.Outlet {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.inlets[n][name] = in
		return &link{l, n, name}
	}}
}

type link struct {
	all  *links
	node int
	name string
}

func (l *link) Send(first uint64, count int, frames []byte) {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.all.sent[l.node] = append(l.all.sent[l.node], first, first+uint64(count))
	if in := l.all.inlets[1-l.node][l.name]; in != nil {
		in.Publish(slices.Clone(frames))
	}
}

// other is the room on the other node.
func (l *link) other() *room.Inlet {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	return l.all.inlets[1-l.node][l.name]
}

func (l *link) Watch(whole bool) {
	if in := l.other(); in != nil {
		in.Watched(whole)
	}
}

func (l *link) Present(p room.Presence) {
	if in := l.other(); in != nil {
		in.Present(uint64(l.node), p)
	}
}

func (l *link) Close() {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.all.closed++
}

// TestOutlet_TwoHubs: members of a room on two hubs get every message of the others once, each sender's in order, and no frame
// goes back to where it came from.
func TestOutlet_TwoHubs(t *testing.T) {
	t.Parallel()
	joined := newLinks()
	var conns []*websocket.Conn
	const members, each = 6, 300
	dials := make([]func() *websocket.Conn, 2)
	for n := range dials {
		_, dials[n] = setup(t, joined.node(n), room.JoinOptions{})
	}
	for i := range members {
		conns = append(conns, dials[i%2]())
	}
	var talking sync.WaitGroup
	for i, c := range conns {
		talking.Go(func() {
			next := make([]int, members)
			for _, text := range read(t, c, (members-1)*each) {
				var from, n int
				if _, err := fmt.Sscanf(text, "%d:%d", &from, &n); err != nil || from == i || n != next[from] {
					t.Errorf("member %d got %q, want %d's message %d", i, text, from, next[from])
					return
				}
				next[from]++
			}
		})
		talking.Go(func() {
			for n := range each {
				c.Queue(websocket.OpText, fmt.Appendf(nil, "%d:%d", i, n))
				c.Flush()
			}
		})
	}
	talking.Wait()
	joined.mu.Lock()
	defer joined.mu.Unlock()
	for n, sent := range joined.sent {
		next := uint64(1)
		for i := 0; i < len(sent); i += 2 {
			if sent[i] != next {
				t.Fatalf("hub %d sent a batch with the frames from %d on, want %d", n, sent[i], next)
			}
			next = sent[i+1]
		}
		if next != members/2*each+1 {
			t.Errorf("hub %d sent %d frames, want those of its members, %d", n, next-1, members/2*each)
		}
	}
}

// TestOutlet_LastWords: what a member publishes before it leaves as the last one reaches the other hub, before the room's end.
func TestOutlet_LastWords(t *testing.T) {
	t.Parallel()
	joined := newLinks()
	hub, dial := setup(t, joined.node(0), room.JoinOptions{})
	_, dialOther := setup(t, joined.node(1), room.JoinOptions{})
	other := dialOther()
	for n := range 50 {
		c := dial()
		c.Queue(websocket.OpText, fmt.Append(nil, n))
		c.Flush()
		c.Close(websocket.StatusNormal, "")
		if got := read(t, other, 1); got[0] != fmt.Sprint(n) {
			t.Fatalf("got %q, want %d", got, n)
		}
	}
	hub.Wait()
	joined.mu.Lock()
	defer joined.mu.Unlock()
	if joined.closed == 0 {
		t.Error("the room has ended, and its outlet was not closed")
	}
}

// TestInlet_Missed: members are told how many messages of another node are lost, and that does not go out again.
func TestInlet_Missed(t *testing.T) {
	t.Parallel()
	joined := newLinks()
	hub, dial := setup(t, joined.node(0), room.JoinOptions{})
	c := dial()
	joined.mu.Lock()
	in := joined.inlets[0]["public"]
	joined.mu.Unlock()
	in.Missed(3)
	if got := read(t, c, 1); got[0] != `{"type":"gap","room":"public","missed":3}` {
		t.Errorf("got %q", got)
	}
	c.Close(websocket.StatusNormal, "")
	hub.Wait()
	in.Missed(3) // does nothing: the room has ended
	if joined.sent[0] != nil {
		t.Errorf("sent %v, want nothing", joined.sent[0])
	}
}
