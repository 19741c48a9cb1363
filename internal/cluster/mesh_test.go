package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/cluster"
	"github.com/tidewire/tidewire/internal/relay/natsrelay"
	"github.com/tidewire/tidewire/internal/testkit"
)

// meshNode is a node with a NATS server, which finds the others in the database, all in this process.
type meshNode struct {
	*cluster.Node
	relay   *natsrelay.Relay
	stop    context.CancelFunc
	running sync.WaitGroup
}

func startNode(t *testing.T, pool *pgxpool.Pool, name string) *meshNode {
	n, err := newMeshNode(t.Context(), pool, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.end)
	return n
}

func newMeshNode(ctx context.Context, pool *pgxpool.Pool, name string) (*meshNode, error) {
	id := rand.Uint64()
	log := slog.New(slog.DiscardHandler)
	secret, err := cluster.Secret(ctx, pool, name)
	if err != nil {
		return nil, err
	}
	n := &meshNode{}
	if n.relay, err = natsrelay.Start(natsrelay.Config{Node: cluster.NodeName(id), Cluster: name, Listen: "127.0.0.1:0", Secret: secret, Log: log}); err != nil {
		return nil, err
	}
	if n.Node, err = cluster.NewNode(id, n.relay); err != nil {
		n.relay.Close()
		return nil, err
	}
	own := cluster.Entry{ID: cluster.NodeName(id), Cluster: name, Address: n.relay.Addr(), Host: "h", Version: "v"}
	discovery, err := cluster.Discover(ctx, cluster.OpenDirectory(pool, own, log), n.relay, n.Node)
	if err != nil {
		n.relay.Close()
		return nil, err
	}
	running, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.running.Go(func() { n.Run(running) })
	n.running.Go(func() { discovery.Run(running) })
	return n, nil
}

// end stops the node. A second call does nothing.
func (n *meshNode) end() {
	n.stop()
	n.running.Wait()
	n.relay.Close()
}

// startTogether starts nodes at the same instant.
func startTogether(t *testing.T, pool *pgxpool.Pool, name string, count int) (all []*meshNode) {
	t.Helper()
	all = make([]*meshNode, count)
	var starting sync.WaitGroup
	begin := make(chan struct{})
	for i := range all {
		starting.Go(func() {
			<-begin
			n, err := newMeshNode(t.Context(), pool, name)
			if err != nil {
				t.Error(err)
				return
			}
			all[i] = n
			t.Cleanup(n.end)
		})
	}
	close(begin)
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// awaitMesh waits until each node hears all others.
func awaitMesh(t *testing.T, all ...*meshNode) {
	t.Helper()
	for _, n := range all {
		testkit.Eventually(t, "each node hears all others", func() bool { return len(n.Heard()) == len(all)-1 })
	}
}

// TestMesh_ManyTimes: twenty nodes, and a hundred times four.
func TestMesh_ManyTimes(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	db := migrated.Open(t)
	awaitMesh(t, startTogether(t, db.Pool, "many", 20)...)
	for round := range 100 {
		all := startTogether(t, db.Pool, fmt.Sprint("c", round), 4)
		awaitMesh(t, all...)
		for _, n := range all {
			n.end()
		}
	}
}

// TestMesh_RollingRestart: three nodes are replaced one after the other. The mesh is whole again after each replacement.
func TestMesh_RollingRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	db := migrated.Open(t)
	all := startTogether(t, db.Pool, "c", 3)
	awaitMesh(t, all...)
	for i := range all {
		all[i].end()
		all[i] = startNode(t, db.Pool, "c")
		for _, n := range all {
			testkit.Eventually(t, "each node hears the new one", func() bool { return hearsAll(n, all) })
		}
	}
}

// hearsAll reports whether a node hears all others, perhaps with some that have just ended.
func hearsAll(n *meshNode, all []*meshNode) bool {
	heard := make(map[string]bool)
	for _, name := range n.Heard() {
		heard[name] = true
	}
	for _, other := range all {
		if other != n && !heard[other.Name()] {
			return false
		}
	}
	return true
}
