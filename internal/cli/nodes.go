package cli

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tidewire/tidewire/internal/cluster"
)

// nodesCmd lists the servers of clusters.
type nodesCmd struct{ databaseFlags }

// Run is called by kong.
func (c *nodesCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		nodes, err := cluster.List(p.ctx, pool)
		if err != nil {
			return explainDatabase(err)
		}
		t := plainTable("node", "cluster", "address", "machine", "version", "started", "seen")
		for _, n := range nodes {
			address := n.Address
			if address == "" {
				address = "(NATS)"
			}
			t.AppendRow(table.Row{n.ID, n.Cluster, address, n.Host, n.Version, day(&n.Started), fmt.Sprintf("%v ago", n.Age.Round(time.Second))})
		}
		fmt.Fprintln(p.Out, t.Render())
		return nil
	})
}
