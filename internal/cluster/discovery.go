package cluster

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Routes are the connections of a relay to other nodes.
type Routes interface {
	// SetPeers says at which addresses other nodes are. It may lose what is on its way.
	SetPeers(addresses []string) error
}

// Discovery connects a node to the others that it finds in a Directory. A node connects to those that are there when it starts, and those that start later
// connect to it. So the list of addresses has to change only if that fails, and never because a row is gone: each change costs some chats.
type Discovery struct {
	directory *Directory
	routes    Routes
	node      *Node
	addresses []string
	missing   map[string]int    // in how many lists in turn a node was that is not heard
	known     map[string]string // by address: the node that was last there
}

// warnAfter is after how many lists a warning says that a node is in them and not heard: half a minute. The row of a node that has died is out by then.
const warnAfter = 6

// Discover writes the row of the node, and connects it to the others. Run must follow. Errors are those of PostgreSQL and of routes.
func Discover(ctx context.Context, d *Directory, routes Routes, node *Node) (*Discovery, error) {
	peers, err := d.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	found := &Discovery{directory: d, routes: routes, node: node, missing: make(map[string]int), known: make(map[string]string)}
	for _, peer := range peers {
		found.known[peer.Address] = peer.ID
		found.addresses = append(found.addresses, peer.Address)
	}
	return found, routes.SetPeers(found.addresses)
}

// Peers are the addresses to which the node connects. Do not call it while Run runs.
func (d *Discovery) Peers() []string { return d.addresses }

// Run looks for further nodes until ctx ends.
func (d *Discovery) Run(ctx context.Context) {
	d.directory.Run(ctx, func(peers []Entry) {
		if err := d.found(peers); err != nil {
			d.directory.log.Error("other nodes are not connected", "error", err)
		}
	})
}

// alive is the age up to which the row of a node says that it lives: it writes the row anew every refreshEvery.
const alive = refreshEvery + time.Second

// found takes the list of nodes. It connects to those that live and have not been heard for two lists. As that costs some chats anyway, it then forgets the
// addresses of nodes that are gone.
func (d *Discovery) found(peers []Entry) error {
	heard := d.node.Heard()
	missing := make(map[string]int)
	added := false
	for _, peer := range peers {
		d.known[peer.Address] = peer.ID
		if slices.Contains(heard, peer.ID) {
			continue
		}
		missing[peer.ID] = d.missing[peer.ID] + 1
		if missing[peer.ID] == warnAfter {
			d.directory.log.Warn("another server of the cluster is not heard", "node", peer.ID, "address", peer.Address,
				"do", "If it runs, check that this server reaches that address (--cluster-advertise there), or is reached from there")
		}
		if missing[peer.ID] >= 2 && peer.Age < alive && !slices.Contains(d.addresses, peer.Address) {
			d.addresses = append(d.addresses, peer.Address)
			added = true
		}
	}
	d.missing = missing
	if !added {
		return nil
	}
	gone := func(address string) bool {
		listed := slices.ContainsFunc(peers, func(p Entry) bool { return p.Address == address })
		return !listed && !slices.Contains(heard, d.known[address])
	}
	d.addresses = slices.DeleteFunc(d.addresses, gone)
	maps.DeleteFunc(d.known, func(address, _ string) bool { return gone(address) })
	return d.routes.SetPeers(d.addresses)
}
