package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/scenario"
)

// targetFlags name the echo servers to measure.
type targetFlags struct {
	tlsBenchFlags
	Target []string `default:"tidewire" help:"Servers: tidewire, gorilla (built from a checkout), or NAME=ws://… for a server that is running."`
}

// benchEchoCmd measures round trips.
type benchEchoCmd struct {
	targetFlags
	Clients  int `default:"100" help:"Number of connections."`
	InFlight int `default:"16" help:"Messages in flight on each connection."`
	Messages int `default:"2000000" help:"Number of messages, of all connections together."`
	Payload  int `default:"32" help:"Size of a message in bytes."`
	Repeat   int `default:"6" help:"Number of rounds. Each round measures every target; the result has the medians."`
	resultFlags
}

// Validate is called by kong.
func (c *benchEchoCmd) Validate() error {
	switch {
	case c.Clients < 1 || c.Clients > 1<<16:
		return fmt.Errorf("--clients is %d: want 1 to 65536", c.Clients)
	case c.InFlight < 1:
		return fmt.Errorf("--in-flight is %d: want at least 1", c.InFlight)
	case c.Messages < c.Clients:
		return fmt.Errorf("--messages is %d: want at least one for each of %d clients", c.Messages, c.Clients)
	case c.Payload < bench.MinPayload || c.Payload > 1<<20:
		return fmt.Errorf("--payload is %d: want %d to %d bytes", c.Payload, bench.MinPayload, 1<<20)
	case c.Repeat < 1:
		return fmt.Errorf("--repeat is %d: want at least 1", c.Repeat)
	}
	return nil
}

// Run is called by kong.
func (c *benchEchoCmd) Run(p *process) error {
	with, err := c.certify()
	if err != nil {
		return err
	}
	defer with.remove()
	targets, err := builtTargets(p, "echo", c.Target, c.resultFlags, with)
	if err != nil {
		return err
	}
	result := bench.NewResult("echo", map[string]any{
		"target": c.Target, "clients": c.Clients, "in_flight": c.InFlight,
		"messages": c.Messages, "payload": c.Payload, "repeat": c.Repeat, "tls": c.TLS,
	})
	view := c.watch(p, 0)
	defer view.Stop()
	result.Recording.Observe(view.Observe)
	err = scenario.Echo(p.ctx, scenario.EchoConfig{
		Targets: targets, Clients: c.Clients, Messages: c.Messages, Payload: c.Payload,
		Window: c.InFlight, Repeat: c.Repeat, Progress: view.Progress, Control: view.Control(),
	}, result)
	if err != nil {
		return err
	}
	view.Stop()
	return c.finish(p, result)
}

// benchIdleCmd measures idle connections.
type benchIdleCmd struct {
	targetFlags
	Connections int     `default:"10000" help:"Number of connections to hold open."`
	Settle      seconds `default:"2s" help:"How long to wait before memory is measured."`
	resultFlags
}

// Validate is called by kong.
func (c *benchIdleCmd) Validate() error {
	if c.Connections < 1 {
		return fmt.Errorf("--connections is %d: want at least 1", c.Connections)
	}
	for _, t := range c.Target {
		if strings.Contains(t, "=") {
			return fmt.Errorf("--target %s: the memory of a running server also depends on what it did before: let the benchmark start the server", t)
		}
	}
	return nil
}

// Run is called by kong.
func (c *benchIdleCmd) Run(p *process) error {
	with, err := c.certify()
	if err != nil {
		return err
	}
	defer with.remove()
	targets, err := builtTargets(p, "echo", c.Target, c.resultFlags, with)
	if err != nil {
		return err
	}
	result := bench.NewResult("idle", map[string]any{
		"target": c.Target, "connections": c.Connections, "settle": c.Settle.String(), "tls": c.TLS,
	})
	view := c.watch(p, 0)
	defer view.Stop()
	err = scenario.Idle(p.ctx, scenario.IdleConfig{
		Targets: targets, Connections: c.Connections, Settle: time.Duration(c.Settle), Progress: view.Progress,
	}, result)
	if err != nil {
		return err
	}
	view.Stop()
	return c.finish(p, result)
}
