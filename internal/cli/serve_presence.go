package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/cluster"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/engine/postgres"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/presence"
	"github.com/tidewire/tidewire/internal/serve"
	"github.com/tidewire/tidewire/stream"
)

// checkPresence is a part of Validate.
func (c *serveCmd) checkPresence() error {
	switch {
	case c.PresenceStream == "":
		return nil
	case c.Only != "":
		return errors.New("--presence-stream needs a server with streams: leave out --only")
	case engine.Reserved(c.PresenceStream):
		return fmt.Errorf("--presence-stream %q: names that begin with %s are reserved for the server; choose another", c.PresenceStream, engine.ReservedPrefix)
	}
	if err := stream.ValidName(c.PresenceStream); err != nil {
		return fmt.Errorf("--presence-stream %q: %w: choose another name", c.PresenceStream, err)
	}
	return nil
}

// openPresence has the gateway tell the presence stream who is there, if there is to be one, and returns what runs in place of the engine.
func (c *serveCmd) openPresence(p *process, pool *pgxpool.Pool, store *postgres.Engine, cfg *gateway.Config) (serve.Engine, error) {
	if c.PresenceStream == "" {
		return store, nil
	}
	if err := refuseQueueStream(p.ctx, pool, c.PresenceStream, "give --presence-stream another name"); err != nil {
		return nil, err
	}
	node := cluster.NodeName(rand.Uint64())
	if c.node != nil {
		node = c.node.Name()
	}
	recorder, err := presence.Open(p.ctx, presence.Config{
		Stream: c.PresenceStream, Node: node, Publisher: cfg.Engine.Streams, Pool: pool, Metrics: cfg.Metrics, Log: p.log,
	})
	if err != nil {
		return nil, explainStream(err)
	}
	cfg.Connected = func(user string) gateway.ConnectionObserver { return recorder.Connected(user) }
	p.log.Info("who connects and joins is written to a stream", "stream", c.PresenceStream, "node", node)
	return presentEngine{store, recorder}, nil
}

// presentEngine is an engine whose presence stream is written last of all, when no connection is left.
type presentEngine struct {
	*postgres.Engine
	recorder *presence.Recorder
}

// Run implements serve.Engine.
func (e presentEngine) Run(ctx context.Context) {
	e.Engine.Run(ctx)
	e.recorder.Run(ctx)
}

// Stop implements serve.Engine.
func (e presentEngine) Stop(ctx context.Context) error {
	err := e.recorder.Stop(ctx)
	return errors.Join(err, e.Engine.Stop(ctx))
}
