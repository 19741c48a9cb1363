package cli

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
)

type eventsCreateCmd struct {
	Name string `arg:"" help:"Name of the event store."`
	databaseFlags
}

// Run is called by kong.
func (c *eventsCreateCmd) Run(p *process) error {
	if err := refuseReserved("event store", c.Name); err != nil {
		return err
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error { return explainEvents(eventstore.Create(p.ctx, pool, c.Name)) })
}

type eventsListCmd struct{ databaseFlags }

// Run is called by kong.
func (c *eventsListCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		names, err := eventstore.List(p.ctx, pool)
		for _, name := range names {
			fmt.Fprintln(p.Out, name)
		}
		return explainEvents(err)
	})
}

type eventsDropCmd struct {
	Name string `arg:"" help:"The event store."`
	Yes  bool   `help:"Confirm. This cannot be undone."`
	databaseFlags
}

// Run is called by kong.
func (c *eventsDropCmd) Run(p *process) error {
	if !c.Yes {
		return exit(ExitUsage, "events drop removes %q and all its events permanently: confirm with --yes", c.Name)
	}
	if err := refuseReserved("event store", c.Name); err != nil {
		return err
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error { return explainEvents(eventstore.Drop(p.ctx, pool, c.Name)) })
}
