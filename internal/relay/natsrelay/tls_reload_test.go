package natsrelay_test

import (
	"crypto/tls"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/relay/natsrelay"
	"github.com/tidewire/tidewire/internal/testkit"
)

// TestTLS_ReloadKeepsRoutes: a change of the list of nodes closes no connection to another node, also while strangers connect.
func TestTLS_ReloadKeepsRoutes(t *testing.T) {
	t.Parallel()
	a, _ := begin(t, natsrelay.Config{Node: "a", Secret: "s"})
	b, _ := begin(t, natsrelay.Config{Node: "b", Secret: "s"})
	c, _ := begin(t, natsrelay.Config{Node: "c", Secret: "s"})
	address, passed := tap(t, b.Addr())
	if err := a.SetPeers([]string{address}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the nodes are connected", func() bool { return a.Peers() == 1 && b.Peers() == 1 })
	stop := make(chan struct{})
	var strangers sync.WaitGroup
	for range 2 {
		strangers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if conn, err := tls.Dial("tcp", a.Addr(), &tls.Config{InsecureSkipVerify: true}); err == nil {
					conn.Read(make([]byte, 1))
					conn.Close()
				}
			}
		})
	}
	for _, peers := range [][]string{{address, c.Addr()}, {address}} {
		if err := a.SetPeers(peers); err != nil {
			t.Error(err)
		}
		if a.Peers() < 1 || b.Peers() < 1 {
			t.Error("a connection to another node was closed")
		}
	}
	close(stop)
	strangers.Wait()
	deliver(t, a, b, "after the changes")
	if n := passed.connections.Load(); n != 1 {
		t.Errorf("%d connections, want the first one alone", n)
	}
}
