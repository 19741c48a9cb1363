package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/multinode"
	"github.com/tidewire/tidewire/internal/live"
)

// benchClusterCmd runs several nodes on one PostgreSQL, with faults or at a steady rate.
type benchClusterCmd struct {
	Nodes         []int         `placeholder:"N" help:"Number of nodes. Default: 3. With --steady: one or more numbers to compare, 1,4 by default."`
	Faults        int           `default:"20" help:"Number of faults."`
	Fault         []string      `placeholder:"NAME" help:"What fails. Several faults take turns. kill: a node is killed, and started again. freeze: it hangs. cut, cut-one-way: two nodes cannot reach each other, or one cannot send to the other. slow: the network of a node has 1 Mbit/s. cut-database: a node cannot reach PostgreSQL. All but kill and freeze need network namespaces: Linux, root, and the program ip. Default: what works on this machine."`
	Longest       time.Duration `default:"20s" help:"How long a fault lasts at most. The shortest one takes a second."`
	Seed          uint64        `default:"1" help:"Seed of the random choices: which node a fault hits, when, and for how long."`
	Pace          time.Duration `default:"50ms" help:"Average time between two requests of a client. Each node has 13 clients."`
	ToldWithin    time.Duration `default:"2s" help:"How long after a repair members may wait until they are told how many chats they have missed."`
	PresentWithin time.Duration `default:"10s" help:"How long after a repair it may take until watchers see who is in a room."`
	Steady        bool          `help:"No faults: publish to one stream at a steady rate, and measure the CPU time of PostgreSQL and the nodes."`
	Rate          int           `default:"20000" help:"With --steady: messages a second."`
	Payload       int           `default:"128" help:"With --steady: bytes of a message."`
	Subscribers   int           `default:"20" help:"With --steady: subscriptions to the stream, divided between the nodes."`
	Duration      time.Duration `default:"5s" help:"With --steady: length of a measurement."`
	Repeat        int           `default:"3" help:"With --steady: number of rounds. Each round measures every number of nodes; the result has the medians."`
	embeddedFlags
	resultFlags
}

// Validate is called by kong.
func (c *benchClusterCmd) Validate() error {
	least := 2
	if c.Steady {
		least = 1
	}
	switch {
	case !c.Steady && len(c.Nodes) > 1:
		return errors.New("--nodes: want one number, or --steady")
	case slices.ContainsFunc(c.Nodes, func(n int) bool { return n < least || n > 50 }):
		return fmt.Errorf("--nodes: want %d to 50", least)
	case c.Faults < 1 || c.Faults > 100_000:
		return fmt.Errorf("--faults is %d: want 1 to 100000", c.Faults)
	case c.Longest < time.Second || c.Longest > time.Minute:
		return fmt.Errorf("--longest is %v: want 1s to 1m", c.Longest)
	case c.Pace < time.Millisecond || c.Pace > time.Minute:
		return fmt.Errorf("--pace is %v: want 1ms to 1m", c.Pace)
	case c.Rate < 1 || c.Payload < 1 || c.Payload > 64<<10 || c.Subscribers < 1 || c.Repeat < 1 || c.Duration < 100*time.Millisecond:
		return errors.New("--rate, --payload, --subscribers, --repeat, --duration: want at least 1, at most 65536 bytes of payload, and 100ms")
	}
	if _, err := multinode.ParseFaults(c.Fault); err != nil {
		return fmt.Errorf("--fault: %w", err)
	}
	return nil
}

// Run is called by kong.
func (c *benchClusterCmd) Run(p *process) (err error) {
	program, err := p.self()
	if err != nil {
		return err
	}
	dir, remove, err := c.directory()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	view := c.watch(p, 0)
	defer view.Stop()
	var result *bench.Result
	if c.Steady {
		result, err = c.steady(p, view, program, dir)
	} else {
		result, err = c.faults(p, view, program, dir)
	}
	if err != nil {
		return err
	}
	view.Stop()
	return c.finish(p, result)
}

// faults runs the nodes with faults.
func (c *benchClusterCmd) faults(p *process, view *live.View, program, dir string) (*bench.Result, error) {
	kinds, missing := multinode.DefaultFaults()
	if len(c.Fault) > 0 {
		missing = nil
		kinds, _ = multinode.ParseFaults(c.Fault) // Validate has checked them
	}
	count := 3
	if len(c.Nodes) > 0 {
		count = c.Nodes[0]
	}
	result := bench.NewResult("cluster", map[string]any{
		"nodes": count, "faults": c.Faults, "fault": kinds, "seed": c.Seed, "longest": c.Longest.String(), "pace": c.Pace.String(),
		"told_within": c.ToldWithin.String(), "present_within": c.PresentWithin.String(),
	})
	result.Recording.Observe(view.Observe)
	if missing != nil {
		note := fmt.Sprintf("only %v: there are no network namespaces: %v", kinds, missing)
		view.Progress("%s", note)
		result.AddNote(multinode.RowAll, "", note)
	}
	steps := []bench.Step{{Row: multinode.RowAll}}
	return result, view.Control().Run(p.ctx, result, steps, func(ctx context.Context, _ bench.Step) error {
		return explainEmbedded(multinode.Run(ctx, multinode.Config{
			Nodes: count, Steps: c.Faults, Faults: kinds, Seed: c.Seed, Pace: c.Pace, Longest: c.Longest,
			ToldWithin: c.ToldWithin, PresentWithin: c.PresentWithin,
			PostgreSQL: c.config(p), Dir: dir, Program: program, Control: view.Control(), Progress: view.Progress,
		}, result))
	})
}

// steady compares numbers of nodes without faults.
func (c *benchClusterCmd) steady(p *process, view *live.View, program, dir string) (*bench.Result, error) {
	counts := c.Nodes
	if len(counts) == 0 {
		counts = []int{1, 4}
	}
	result := bench.NewResult("cluster", map[string]any{
		"steady": true, "nodes": counts, "rate": c.Rate, "payload": c.Payload, "subscribers": c.Subscribers, "duration": c.Duration.String(),
		"repeat": c.Repeat,
	})
	result.Recording.Observe(view.Observe)
	return result, explainEmbedded(multinode.RunSteady(p.ctx, multinode.SteadyConfig{
		Nodes: counts, Repeat: c.Repeat, Rate: c.Rate, Payload: c.Payload, Subscribers: c.Subscribers, Duration: c.Duration,
		PostgreSQL: c.config(p), Dir: dir, Program: program, Control: view.Control(), Progress: view.Progress,
	}, result))
}
