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
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// mute is a room that does nothing with what it gets.
type mute struct{}

func (mute) Publish([]byte)                {}
func (mute) Missed(int)                    {}
func (mute) Watched(bool)                  {}
func (mute) Present(uint64, room.Presence) {}
func (mute) Gone(uint64)                   {}

// counter is a room that counts, for any goroutine.
type counter struct {
	mute
	frames atomic.Int64
}

func (c *counter) Publish([]byte) { c.frames.Add(1) }

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

// TestNode_RoomsThatComeAndGo: rooms begin and end on three nodes as fast as they can, and 1,000 others stay. No node keeps more of them than it has to, and
// a room that begins afterwards spans all nodes.
func TestNode_RoomsThatComeAndGo(t *testing.T) {
	t.Parallel()
	const kept, rounds = 1000, 1000
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
	sent := uint64(0)
	testkit.Eventually(t, "the room spans the nodes", func() bool {
		sent++
		whole := true
		for i, l := range links {
			l.Send(sent, 1, frame)
			whole = whole && last[i].frames.Load() > 0
		}
		return whole
	})
}
