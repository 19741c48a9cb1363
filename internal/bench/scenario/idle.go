package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// IdleConfig configures Idle.
type IdleConfig struct {
	Targets     []Target // each with Start, since their memory is measured
	Connections int
	Settle      time.Duration // time after the last connection before memory is measured
	Progress    func(format string, args ...any)
}

// Idle measures the memory of idle connections.
func Idle(ctx context.Context, cfg IdleConfig, result *bench.Result) error {
	for _, target := range cfg.Targets {
		cfg.Progress("%s: opening %d connections", target.Name, cfg.Connections)
		_, err := target.use(ctx, func(url string, pid int) error {
			return idle(ctx, cfg, target, url, pid, result)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", target.Name, err)
		}
	}
	return nil
}

func idle(ctx context.Context, cfg IdleConfig, target Target, url string, pid int, result *bench.Result) error {
	// A few connections come first, so that one-time allocations of the server
	// are not counted.
	first, err := bench.Hold(ctx, url, target.TLS, min(100, cfg.Connections))
	if err != nil {
		return err
	}
	first.Close()
	settle(ctx, cfg.Settle)
	before, err := bench.ResidentMemory(pid)
	if err != nil {
		return fmt.Errorf("memory of the server: %w", err)
	}
	start := time.Now()
	held, err := bench.Hold(ctx, url, target.TLS, cfg.Connections)
	if err != nil {
		return err
	}
	defer held.Close()
	took := time.Since(start).Seconds()
	settle(ctx, cfg.Settle)
	after, err := bench.ResidentMemory(pid)
	if err != nil {
		return fmt.Errorf("memory of the server: %w", err)
	}
	m := map[string]float64{
		"connections":                     float64(cfg.Connections),
		"connections_per_second":          float64(cfg.Connections) / took,
		"server_rss_bytes":                float64(after),
		"server_rss_bytes_per_connection": (float64(after) - float64(before)) / float64(cfg.Connections),
	}
	held.Connect.Metrics(m, "connect_")
	result.Check(target.Name+": all connections open", held.Connect.Count() == int64(cfg.Connections),
		"%d of %d", held.Connect.Count(), cfg.Connections)
	result.AddTrial(target.Name, target.Description, m)
	return nil
}

func settle(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
