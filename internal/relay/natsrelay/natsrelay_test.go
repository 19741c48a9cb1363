package natsrelay_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/tidewire/tidewire/internal/fault"
	"github.com/tidewire/tidewire/internal/relay"
	"github.com/tidewire/tidewire/internal/relay/natsrelay"
	"github.com/tidewire/tidewire/internal/relay/natstest"
	"github.com/tidewire/tidewire/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cluster, secret string, n int) *natsrelay.Relay {
	t.Helper()
	r, err := natsrelay.Start(natsrelay.Config{
		Node: fmt.Sprint("node", n), Cluster: cluster, Listen: "127.0.0.1:0", Secret: secret, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// join connects each node with all others, and waits until they are.
func join(t *testing.T, nodes ...*natsrelay.Relay) {
	t.Helper()
	for _, n := range nodes {
		var peers []string
		for _, other := range nodes {
			if other != n {
				peers = append(peers, other.Addr())
			}
		}
		if err := n.SetPeers(peers); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		testkit.Eventually(t, "all nodes are connected", func() bool { return n.Peers() == len(nodes)-1 })
	}
}

// listen returns what a node receives on a topic, once the other nodes know that it listens.
func listen(t *testing.T, to *natsrelay.Relay, topic string, from ...*natsrelay.Relay) <-chan string {
	t.Helper()
	got, ready := make(chan string, 100_000), make(chan struct{}, 100_000)
	stop, err := to.Listen(topic, func(message []byte) {
		if string(message) == "ready?" {
			ready <- struct{}{}
			return
		}
		got <- string(message)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	for _, f := range from {
		testkit.Eventually(t, "another node knows of a listener", func() bool {
			if err := f.Publish(topic, []byte("ready?")); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ready:
				return true
			default:
				return false
			}
		})
	}
	return got
}

// TestRelay_AllOthersInOrder: every other node that listens gets the messages of each sender in its order, each once, and the sender gets none of its own.
// A relay may lose messages while a connection is broken, as it is after some seconds in which a busy machine did not run a node: that is a hole, and there are few.
func TestRelay_AllOthersInOrder(t *testing.T) {
	t.Parallel()
	nodes := []*natsrelay.Relay{start(t, "c", "s", 0), start(t, "c", "s", 1), start(t, "c", "s", 2)}
	join(t, nodes...)
	var got []<-chan string
	for i, n := range nodes {
		others := slices.Delete(slices.Clone(nodes), i, i+1)
		got = append(got, listen(t, n, "r.1", others...))
	}
	enough := make(chan struct{})
	var sending sync.WaitGroup
	defer sending.Wait()
	defer close(enough)
	for i, n := range nodes {
		sending.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-enough:
					return
				default:
				}
				n.Publish("r.1", fmt.Appendf(nil, "%d:%d", i, k))
				n.Publish("r.2", nil) // nobody listens
				if k%10 == 9 {
					time.Sleep(time.Millisecond) // pace: more than a busy node takes would be lost
				}
			}
		})
	}
	const each, mostHoles = 1000, 10
	for i, messages := range got {
		var next, received [3]int // of each sender
		holes := 0
		for others := len(nodes) - 1; others > 0; {
			var from, k int
			text := <-messages
			if _, err := fmt.Sscanf(text, "%d:%d", &from, &k); err != nil || from == i || k < next[from] {
				t.Fatalf("node %d got %q, want message %d of %d or a later one", i, text, next[from], from)
			}
			if k > next[from] {
				holes++
			}
			next[from] = k + 1
			if received[from]++; received[from] == each {
				others--
			}
		}
		if holes > mostHoles {
			t.Errorf("node %d lost messages at %d places", i, holes)
		}
	}
}

// TestRelay_Returns: a node that comes back at another address is heard again, and one that is gone is not tried for ever.
func TestRelay_Returns(t *testing.T) {
	t.Parallel()
	a := start(t, "c", "s", 0)
	for n := range 3 {
		b := start(t, "c", "s", n+1)
		join(t, a, b)
		got := listen(t, a, "x", b)
		b.Publish("x", []byte("here"))
		if text := <-got; text != "here" {
			t.Errorf("got %q", text)
		}
		b.Close()
		testkit.Eventually(t, "the node is gone", func() bool { return a.Peers() == 0 })
	}
}

// TestRelay_TooLarge: a message over the limit is refused, and the next one is sent.
func TestRelay_TooLarge(t *testing.T) {
	t.Parallel()
	a, b := start(t, "c", "s", 0), start(t, "c", "s", 1)
	join(t, a, b)
	got := listen(t, b, "x", a)
	if err := a.Publish("x", make([]byte, 1<<20+1)); !errors.Is(err, relay.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	a.Publish("x", []byte("small"))
	if text := <-got; text != "small" {
		t.Errorf("got %q", text)
	}
}

// TestRelay_ServerRestarts: while the NATS server of an operator is away, messages are lost and nobody waits. When it is back, so are the topics.
func TestRelay_ServerRestarts(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, &server.Options{})
	port := s.Addr().(*net.TCPAddr).Port
	var nodes []*natsrelay.Relay
	for n := range 2 {
		r, err := natsrelay.Start(natsrelay.Config{Node: fmt.Sprint("n", n), Cluster: "c", URL: s.ClientURL(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		nodes = append(nodes, r)
	}
	got := listen(t, nodes[0], "x", nodes[1])
	for n := range 3 {
		natstest.Stop(s)
		nodes[1].Publish("x", []byte("lost, or late"))
		s = natstest.Start(t, &server.Options{Port: port})
		text := fmt.Sprint("back ", n)
		testkit.Eventually(t, "messages come again", func() bool {
			nodes[1].Publish("x", []byte(text))
			for {
				select {
				case message := <-got:
					if message == text {
						return true
					}
				default:
					return false
				}
			}
		})
	}
}

// TestRelay_HangingServer: a NATS server of an operator that takes nothing delays nobody who publishes, listens or stops.
func TestRelay_HangingServer(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, &server.Options{})
	proxy, err := fault.NewProxy(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	r, err := natsrelay.Start(natsrelay.Config{Node: "n", Cluster: "c", URL: "nats://" + proxy.Addr(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	proxy.StallOneWay(fault.ToTarget)
	for n := 0; r.Publish("x", make([]byte, 64<<10)) == nil; n++ {
		if n == 10_000 {
			t.Fatal("the server takes everything: the test shows nothing")
		}
	}
	stop, err := r.Listen("y", func([]byte) {})
	if err != nil {
		t.Error(err)
	}
	stop()
}
