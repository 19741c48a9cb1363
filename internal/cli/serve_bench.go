package cli

import (
	"context"
	"io"
	"slices"

	"github.com/tidewire/tidewire/internal/bench/runner"
)

// benches returns what the console shows of benchmarks. starts: clients may start the quick form of a scenario.
func (c *serveCmd) benches(p *process, starts bool) (*runner.Runner, error) {
	program, err := p.self()
	if err != nil {
		return nil, err
	}
	cfg := runner.Config{Dir: c.Results, Program: program, Starts: starts, Getenv: p.Getenv}
	for _, s := range scenarios {
		args := append(append([]string{"bench", s.name}, s.args...), "--quick")
		cfg.Scenarios = append(cfg.Scenarios, runner.Scenario{Name: s.name, Answers: s.answers, Args: slices.Clip(args)})
	}
	return runner.New(p.ctx, cfg), nil
}

// watched returns a context that also ends when standard input closes, if a server watches this process: so nothing is left when the server is killed. The
// processes that a benchmark starts have the same environment, and another input.
func watched(ctx context.Context, env Env) (context.Context, func()) {
	scenario := len(env.Args) > 1 && env.Args[0] == "bench" && slices.ContainsFunc(scenarios, func(s scenarioInfo) bool { return s.name == env.Args[1] })
	if !scenario || env.In == nil || env.Getenv(runner.Watched) == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		io.Copy(io.Discard, env.In)
		cancel()
	}()
	return ctx, cancel
}
