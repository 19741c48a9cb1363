package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/relay/relaytest"
)

// fakeRoutes remembers the addresses.
type fakeRoutes struct {
	sets      int
	addresses []string
}

func (f *fakeRoutes) SetPeers(addresses []string) error {
	f.sets++
	f.addresses = slices.Clone(addresses)
	return nil
}

// TestDiscovery_DeadNodes: a node that has crashed changes no routes, though its row stays for a while. A node that lives and is not heard does, and then the
// addresses of nodes that are gone are forgotten.
func TestDiscovery_DeadNodes(t *testing.T) {
	t.Parallel()
	n, err := NewNode(1, relaytest.New(1).Node(0))
	if err != nil {
		t.Fatal(err)
	}
	routes := &fakeRoutes{}
	d := &Discovery{routes: routes, node: n, addresses: []string{"first:1"}, missing: make(map[string]int), known: make(map[string]string)}
	row := func(name string, age time.Duration) Entry { return Entry{ID: name, Address: name + ":1", Age: age} }
	for age := 3 * time.Second; age < 20*time.Second; age += refreshEvery {
		if age < alive {
			continue // it is still heard
		}
		if err := d.found([]Entry{row("crashed", age)}); err != nil {
			t.Fatal(err)
		}
	}
	if routes.sets != 0 {
		t.Errorf("a crash has changed the routes to %v", routes.addresses)
	}
	for range 2 {
		if err := d.found([]Entry{row("apart", time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"apart:1"}; routes.sets != 1 || !slices.Equal(routes.addresses, want) {
		t.Errorf("routes %v after %d changes, want %v after one", routes.addresses, routes.sets, want)
	}
}
