package cluster

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/relay/natsrelay"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// counter is a room that counts, for any goroutine.
type counter struct{ frames atomic.Int64 }

func (c *counter) Publish([]byte)                { c.frames.Add(1) }
func (c *counter) Missed(int)                    {}
func (c *counter) Watched(bool)                  {}
func (c *counter) Present(uint64, room.Presence) {}
func (c *counter) Gone(uint64)                   {}

// natsNodes returns nodes of one cluster that are connected with each other by NATS. Their heartbeats are the test's.
func natsNodes(t *testing.T, count int) (all []*Node) {
	t.Helper()
	var addresses []string
	for i := range count {
		r, err := natsrelay.Start(natsrelay.Config{
			Node: fmt.Sprint("node", i), Cluster: "c", Listen: "127.0.0.1:0", Secret: "sixteen letters and more", Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		if err := r.SetPeers(addresses); err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, r.Addr())
		n, err := NewNode(uint64(i+1), r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// TestNode_RoomsThatComeAndGo: rooms begin and end on three nodes as fast as they can, and 5,000 others stay. No node keeps more of them than it has to, and
// a room that begins afterwards spans all nodes.
func TestNode_RoomsThatComeAndGo(t *testing.T) {
	t.Parallel()
	const kept, rounds = 5000, 4000
	frame := websocket.AppendFrame(nil, websocket.OpText, []byte("hello"))
	all := natsNodes(t, 3)
	var working sync.WaitGroup
	for i, n := range all {
		working.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for k := range kept {
				n.connect(fmt.Sprint("kept", k), &counter{})
			}
			for range rounds {
				l := n.connect(fmt.Sprint("churn", random.IntN(100)), &counter{})
				l.Send(1, 1, frame)
				l.Close()
			}
		})
	}
	working.Wait()
	for _, n := range all {
		n.mu.Lock()
		if links := len(n.links); links > kept+100 {
			t.Errorf("%d rooms are known, want %d and 100", links, kept)
		}
		if listens := len(n.slots); listens > slots {
			t.Errorf("listens to %d slots of %d", listens, slots)
		}
		n.forget(time.Now().Add(2 * keepLink))
		if links := len(n.links); links != kept {
			t.Errorf("%d rooms are known after a while, want %d", links, kept)
		}
		n.mu.Unlock()
	}
	last := make([]*counter, len(all))
	var links []*link
	for i, n := range all {
		last[i] = &counter{}
		links = append(links, n.connect("last", last[i]))
	}
	for sent, deadline := uint64(1), time.Now().Add(time.Minute); ; sent++ {
		whole := true
		for i, l := range links {
			l.Send(sent, 1, frame)
			whole = whole && last[i].frames.Load() > 0
		}
		if whole {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a room does not span the nodes")
		}
		time.Sleep(5 * time.Millisecond)
	}
}
