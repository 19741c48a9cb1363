package scenario

import (
	"context"
	"fmt"

	"github.com/tidewire/tidewire/internal/bench"
)

// EchoConfig configures Echo.
type EchoConfig struct {
	Targets  []Target
	Clients  int
	Messages int // of all clients together
	Payload  int // bytes
	Window   int // messages in flight on each connection
	Repeat   int // rounds; targets are interleaved over them
	// Control steers the run. May be nil.
	Control  *bench.Control
	Progress func(format string, args ...any)
}

// Echo measures round trips: each client keeps Window messages in flight, and
// checks that each comes back unchanged and in order.
func Echo(ctx context.Context, cfg EchoConfig, result *bench.Result) error {
	steps, targets := targetSteps(cfg.Targets, cfg.Repeat, int64(cfg.Messages))
	return cfg.Control.Run(ctx, result, steps, func(ctx context.Context, s bench.Step) error {
		target := targets[s.Row]
		cfg.Progress("round %d: %s", s.Trial+1, target.Name)
		_, err := target.use(ctx, func(url string, pid int) error {
			return echo(ctx, cfg, target, s.Trial, url, pid, result)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", target.Name, err)
		}
		return nil
	})
}

// targetSteps returns a step for each target in each round, with the given number of messages.
func targetSteps(all []Target, rounds int, messages int64) (steps []bench.Step, byName map[string]Target) {
	byName = make(map[string]Target)
	for round := range rounds {
		for _, target := range all {
			byName[target.Name] = target
			steps = append(steps, bench.Step{Row: target.Name, Trial: round, Messages: messages})
		}
	}
	return steps, byName
}

func echo(ctx context.Context, cfg EchoConfig, target Target, trial int, url string, pid int, result *bench.Result) error {
	each := max(1, cfg.Messages/cfg.Clients)
	load := bench.PumpConfig{
		URL: url, TLS: target.TLS, Clients: cfg.Clients, Messages: max(1, each/10), Payload: cfg.Payload,
		Answer: bench.EchoAnswer, Window: cfg.Window,
	}
	if _, err := run(ctx, load); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	load.Messages = each
	load.Progress = func(sent, answered int) {
		cfg.Progress("%s: %d of %d messages came back", target.Name, answered, each*cfg.Clients)
	}
	load.Gauge = &bench.Progress{}
	sampler := bench.StartSampler(ctx, pid, 0)
	pulse := result.Recording.StartPulse(ctx, target.Name, trial, sampler, load.Gauge.Counters)
	seen, err := run(ctx, load)
	pulse.Stop()
	usage := sampler.Stop()
	if err != nil {
		return err
	}
	seconds := seen.LastClose.Sub(seen.FirstFrame).Seconds()
	m := map[string]float64{
		"seconds": seconds, "messages_per_second": float64(seen.Answered) / seconds,
		"sent": float64(seen.Sent), "received": float64(seen.Answered), "lost": float64(seen.Sent - seen.Answered),
		"connections": float64(cfg.Clients),
	}
	serverMetrics(m, usage, pid)
	seen.Latency.Metrics(m, "")
	result.Check(target.Name+": every message came back, in order and unchanged",
		seen.Answered == seen.Sent && seen.Closed == cfg.Clients,
		"%d of %d messages, %d of %d closed in order", seen.Answered, seen.Sent, seen.Closed, cfg.Clients)
	result.Recording.Latencies(target.Name, trial, "", seen.Latency)
	addTrial(result, target.Name, target.Description, m, 0)
	return nil
}

func run(ctx context.Context, cfg bench.PumpConfig) (bench.PumpResult, error) {
	pump, err := bench.NewPump(ctx, cfg)
	if err != nil {
		return bench.PumpResult{}, err
	}
	return pump.Run(ctx)
}
