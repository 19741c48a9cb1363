package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// refreshEvery is how often a node writes its row, and reads those of the others.
	refreshEvery = 5 * time.Second
	// refreshTimeout bounds one refresh.
	refreshTimeout = 5 * time.Second
	// presentFor is for how long a row counts after its node has written it.
	presentFor = "20 seconds"
	// keptFor is after how long without a write the row is deleted.
	keptFor = "1 minute"
)

// Entry is a node in the database.
type Entry struct {
	ID      string // random, of one process
	Cluster string
	Address string // where other nodes reach it, as host:port; empty if an operator's NATS connects them
	Host    string // name of its machine
	Version string
	// Started is when it has started, and Age is how long ago it has written its row last, both by the database's clock.
	Started time.Time
	Age     time.Duration
}

// Directory is the list of the nodes of a cluster in PostgreSQL. The schema must be up to date.
type Directory struct {
	pool *pgxpool.Pool
	own  Entry
	log  *slog.Logger

	others atomic.Pointer[[]string]
}

// Secret returns the password of a cluster. The first node of the cluster makes it.
func Secret(ctx context.Context, pool *pgxpool.Pool, cluster string) (secret string, err error) {
	_, err = pool.Exec(ctx, `INSERT INTO tidewire.clusters (name, secret) VALUES ($1, $2) ON CONFLICT DO NOTHING`, cluster, rand.Text())
	if err == nil {
		err = pool.QueryRow(ctx, `SELECT secret FROM tidewire.clusters WHERE name = $1`, cluster).Scan(&secret)
	}
	if err != nil {
		return "", fmt.Errorf("read the secret of cluster %q: %w", cluster, err)
	}
	return secret, nil
}

// OpenDirectory returns the directory for a node. It is in it after the first Refresh.
func OpenDirectory(pool *pgxpool.Pool, own Entry, log *slog.Logger) *Directory {
	return &Directory{pool: pool, own: own, log: log}
}

// Others returns the names of the other nodes that had written their rows within the last minute when the rows were last read, which is every 5 s. A node that
// stops deletes its row; one that dies or hangs leaves it.
func (d *Directory) Others() []string {
	if all := d.others.Load(); all != nil {
		return *all
	}
	return nil
}

// Refresh writes the row of this node, and returns the others that have an address, with their IDs, addresses and ages.
func (d *Directory) Refresh(ctx context.Context) (peers []Entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	_, err = d.pool.Exec(ctx, `
WITH gone AS (DELETE FROM tidewire.nodes WHERE seen_at < clock_timestamp() - $6::interval AND id <> $1)
INSERT INTO tidewire.nodes (id, cluster, address, host, version) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp()`, d.own.ID, d.own.Cluster, d.own.Address, d.own.Host, d.own.Version, keptFor)
	if err != nil {
		return nil, fmt.Errorf("write the row of this node: %w", err)
	}
	rows, err := d.pool.Query(ctx, `
SELECT id, address, clock_timestamp() - seen_at, address NOT IN ('', $3) AND seen_at > clock_timestamp() - $4::interval FROM tidewire.nodes
WHERE cluster = $1 AND id <> $2 AND seen_at > clock_timestamp() - $5::interval ORDER BY address`,
		d.own.Cluster, d.own.ID, d.own.Address, presentFor, keptFor)
	if err != nil {
		return nil, fmt.Errorf("read the other nodes: %w", err)
	}
	var others []string
	var e Entry
	var present bool
	_, err = pgx.ForEachRow(rows, []any{&e.ID, &e.Address, &e.Age, &present}, func() error {
		if others = append(others, e.ID); present {
			peers = append(peers, e)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the other nodes: %w", err)
	}
	d.others.Store(&others)
	return peers, nil
}

// Run refreshes until ctx ends, and calls a function with the other nodes after each refresh. While PostgreSQL is away,
// the nodes keep the connections that they have. In the end it deletes the row of this node.
func (d *Directory) Run(ctx context.Context, found func(peers []Entry)) {
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			d.leave()
			return
		}
		peers, err := d.Refresh(ctx)
		switch {
		case err == nil:
			found(peers)
		case !failing && ctx.Err() == nil:
			d.log.Warn("the list of nodes can't be read: nodes that start now are not found", "error", err)
		}
		failing = err != nil
	}
}

// leave deletes the row of this node. If that fails, the others delete it later.
func (d *Directory) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := d.pool.Exec(ctx, `DELETE FROM tidewire.nodes WHERE id = $1`, d.own.ID); err != nil {
		d.log.Debug("the row of this node is left", "error", err)
	}
}

// List returns all nodes that have written their rows within the last minute, in the order in which they have started.
func List(ctx context.Context, pool *pgxpool.Pool) ([]Entry, error) {
	rows, err := pool.Query(ctx, `
SELECT id, cluster, address, host, version, started_at, clock_timestamp() - seen_at FROM tidewire.nodes
WHERE seen_at > clock_timestamp() - $1::interval ORDER BY cluster, started_at, id`, keptFor)
	if err != nil {
		return nil, fmt.Errorf("read the nodes: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Entry, err error) {
		err = row.Scan(&e.ID, &e.Cluster, &e.Address, &e.Host, &e.Version, &e.Started, &e.Age)
		return e, err
	})
}
