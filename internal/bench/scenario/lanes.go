package scenario

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// LanesVariants are the kinds of connections that Lanes compares, in order.
var LanesVariants = []string{"plain", "lanes", "lanes+credit", "two-connections"}

// LanesCell is one load: the interval of requests, and what the server pushes
// meanwhile.
type LanesCell struct {
	RequestEvery time.Duration
	Requests     int
	DummySize    int // bytes
	DummyEvery   time.Duration
}

// String names the cell in tables.
func (c LanesCell) String() string {
	if c.DummyEvery >= time.Minute {
		return fmt.Sprintf("every %v, no dummy", c.RequestEvery)
	}
	size := fmt.Sprintf("%d B", c.DummySize)
	switch {
	case c.DummySize%(1<<20) == 0:
		size = fmt.Sprintf("%d MB", c.DummySize>>20)
	case c.DummySize%(1<<10) == 0:
		size = fmt.Sprintf("%d KB", c.DummySize>>10)
	}
	return fmt.Sprintf("every %v, %s / %v", c.RequestEvery, size, c.DummyEvery)
}

// LanesMatrix returns the six cells of bench lanes --matrix.
func LanesMatrix() (cells []LanesCell) {
	for _, every := range []time.Duration{10 * time.Millisecond, time.Millisecond} {
		for _, dummy := range []struct {
			size  int
			every time.Duration
		}{{1 << 20, time.Hour}, {10 << 10, 500 * time.Microsecond}, {1 << 20, 500 * time.Microsecond}} {
			cells = append(cells, LanesCell{every, 1000, dummy.size, dummy.every})
		}
	}
	return cells
}

// LanesConfig configures Lanes.
type LanesConfig struct {
	// Start runs a server that pushes what the cell says.
	Start func(ctx context.Context, cell LanesCell) (*ServerProcess, error)
	// URL of a running server, which pushes what it was configured to push;
	// instead of Start.
	URL string
	// TLS is for wss addresses. Defaults to what the system trusts.
	TLS      *tls.Config
	Variants []string
	Cells    []LanesCell
	Repeat   int // rounds; variants are interleaved over them
	// Control steers the run. May be nil.
	Control  *bench.Control
	Progress func(format string, args ...any)
}

// Lanes measures the latency of requests on a connection that the server floods.
func Lanes(ctx context.Context, cfg LanesConfig, result *bench.Result) error {
	type kind struct {
		cell    LanesCell
		variant string
	}
	var steps []bench.Step
	kinds := make(map[string]kind)
	for round := range cfg.Repeat {
		for _, cell := range cfg.Cells {
			for _, variant := range cfg.Variants {
				name := variant + ": " + cell.String()
				kinds[name] = kind{cell, variant}
				steps = append(steps, bench.Step{Row: name, Trial: round, Duration: time.Duration(cell.Requests) * cell.RequestEvery})
			}
		}
	}
	err := cfg.Control.Run(ctx, result, steps, func(ctx context.Context, s bench.Step) error {
		cfg.Progress("round %d: %s", s.Trial+1, s.Row)
		k := kinds[s.Row]
		if err := lanes(ctx, cfg, k.cell, k.variant, s.Row, s.Trial, result); err != nil {
			return fmt.Errorf("%s: %w", s.Row, err)
		}
		return nil
	})
	worst(result)
	return err
}

// lanes runs one cell against a fresh server.
func lanes(ctx context.Context, cfg LanesConfig, cell LanesCell, variant, name string, trial int, result *bench.Result) (err error) {
	load := bench.LanesConfig{
		URL: cfg.URL, TLS: cfg.TLS, Every: cell.RequestEvery, Requests: cell.Requests, DummySize: cell.DummySize, Chunks: variant == "lanes+credit",
		Gauge: &bench.Progress{},
	}
	pid := 0
	if cfg.Start != nil {
		server, err := cfg.Start(ctx, cell)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		load.URL, pid = server.URL("/ws"), server.PID()
	}
	switch variant {
	case "plain":
		load.URL += "?variant=plain"
	case "two-connections":
		load.FloodURL = load.URL + "?variant=plain"
		if cfg.Start != nil { // the server of the second connection pushes nothing
			calm := cell
			calm.DummyEvery = time.Hour
			second, err := cfg.Start(ctx, calm)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, second.Stop()) }()
			load.URL = second.URL("/ws?variant=plain")
		}
	}
	sampler := bench.StartSampler(ctx, pid, 0)
	pulse := result.Recording.StartPulse(ctx, name, trial, sampler, load.Gauge.Counters)
	seen, err := bench.Lanes(ctx, load)
	pulse.Stop()
	usage := sampler.Stop()
	if err != nil {
		return err
	}
	seconds := seen.Elapsed.Seconds()
	m := map[string]float64{
		"seconds": seconds, "messages_per_second": float64(seen.Answered) / seconds, "offered": float64(cell.Requests),
		"sent": float64(seen.Sent), "unsent": float64(seen.Unsent), "received": float64(seen.Answered),
		"lost": float64(seen.Sent - seen.Answered), "reordered": float64(seen.Reordered),
		"dummies": float64(seen.Dummies), "dummy_bytes": float64(seen.DummyBytes), "bytes_per_second": float64(seen.DummyBytes) / seconds,
	}
	serverMetrics(m, usage, pid)
	seen.Latency.Metrics(m, "")
	lateMetric(m, seen.Late)
	result.Recording.Latencies(name, trial, "", seen.Latency)
	result.Check(name+": every request was answered", seen.Answered == cell.Requests, "%d of %d", seen.Answered, cell.Requests)
	result.Check(name+": every dummy is whole, every echo what was sent", seen.Broken == 0, "%d of %d are not", seen.Broken, seen.Dummies+seen.Answered)
	result.Check(name+": answers in the order of the requests", seen.Reordered == 0, "%d of %d came after a later one's", seen.Reordered, seen.Answered)
	checkSent(result, name, m)
	addTrial(result, name, "", m, 1/cell.RequestEvery.Seconds())
	return nil
}

// worst adds to each row the largest mean latency of its trials.
func worst(result *bench.Result) {
	for i := range result.Rows {
		row := &result.Rows[i]
		for _, trial := range row.Trials {
			row.Metrics["latency_mean_worst_ms"] = max(row.Metrics["latency_mean_worst_ms"], trial["latency_mean_ms"])
		}
	}
}
