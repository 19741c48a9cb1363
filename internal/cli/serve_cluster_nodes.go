package cli

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/cluster"
	"github.com/tidewire/tidewire/internal/gateway"
)

// nodes is the cluster as package gateway knows it.
type nodes struct {
	*cluster.Node
	cluster string
	pool    *pgxpool.Pool // nil without a database
	known   *nodeList
	rows    *cluster.Directory // nil if the nodes are not found in the database
}

// Unheard implements gateway.Nodes.
func (n nodes) Unheard() []string {
	if n.rows == nil {
		return nil
	}
	heard := n.Heard()
	return slices.DeleteFunc(slices.Clone(n.rows.Others()), func(name string) bool { return slices.Contains(heard, name) })
}

// List implements gateway.Nodes.
func (n nodes) List(ctx context.Context) (all []gateway.NodeInfo, err error) {
	heard := append(n.Heard(), n.Name())
	if n.pool != nil {
		entries, err := cluster.List(ctx, n.pool)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Cluster == n.cluster {
				seen := e.Age.Milliseconds()
				all = append(all, gateway.NodeInfo{Node: e.ID, Address: e.Address, Machine: e.Host, Version: e.Version, Started: &e.Started, SeenMS: &seen, Heard: slices.Contains(heard, e.ID)})
			}
		}
	}
	for _, name := range heard {
		if !slices.ContainsFunc(all, func(known gateway.NodeInfo) bool { return known.Node == name }) {
			all = append(all, gateway.NodeInfo{Node: name, Heard: true})
		}
	}
	return all, nil
}

// Exist implements gateway.Nodes.
func (n nodes) Exist(ctx context.Context, names []string) (exist map[string]bool, err error) {
	asked := time.Now()
	exist = make(map[string]bool, len(names))
	var unheard []string
	for _, name := range names {
		if exist[name] = n.Hears(name); !exist[name] {
			unheard = append(unheard, name)
		}
	}
	if len(unheard) == 0 || n.pool == nil {
		return exist, nil
	}
	listed, err := n.known.since(ctx, asked)
	for _, name := range unheard {
		exist[name] = listed[name]
	}
	return exist, err
}

// leasesLast is for how long the leases of a server last at most after its last sign of life: its nodes of queues have renewed them with the same database. A server
// that is not heard and is silent there, too, can settle nothing any more.
const leasesLast = 15 * time.Second

// listEvery is the least time between two reads of the list of servers because clients name servers that are not heard. They may invent any number of them.
const listEvery = time.Second

// nodeList is the list of the servers in the database, which all requests share.
type nodeList struct {
	pool *pgxpool.Pool
	slot chan struct{} // who holds it may use the fields below

	begun time.Time // when the last read began
	names map[string]bool // whether their leases may last
	err   error
}

func newNodeList(pool *pgxpool.Pool) *nodeList {
	return &nodeList{pool: pool, slot: make(chan struct{}, 1)}
}

// since returns a list that was read after that time. It must not be changed.
func (l *nodeList) since(ctx context.Context, asked time.Time) (names map[string]bool, err error) {
	select {
	case l.slot <- struct{}{}:
		defer func() { <-l.slot }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.begun.After(asked) {
		return l.names, l.err
	}
	select {
	case <-time.After(time.Until(l.begun.Add(listEvery))):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.begun = time.Now()
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second) // for the others, too
	defer cancel()
	entries, err := cluster.List(reading, l.pool)
	l.names, l.err = make(map[string]bool, len(entries)), err
	for _, e := range entries {
		l.names[e.ID] = e.Age < leasesLast
	}
	return l.names, l.err
}
