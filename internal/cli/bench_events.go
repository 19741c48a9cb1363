package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/scenario"
	"github.com/tidewire/tidewire/internal/wire"
)

// benchEventsCmd measures the event store.
type benchEventsCmd struct {
	Datasets       []string `default:"tiny,small,medium" help:"How many events are stored before measuring: tiny (35), small (30,500), medium (61,000), large (a million), huge (ten million)."`
	Concurrency    []int    `default:"1,100" help:"Number of callers. Several numbers are measured one after the other."`
	Batch          []int    `default:"1,10" help:"Events in one append. Several numbers are measured one after the other."`
	Ops            []string `default:"append,appendif,appendif-conflict,appendif-websocket,query,querystream,project,projectstream,projectionlimits" help:"Operations to measure."`
	Streams        int      `default:"1" help:"Number of event stores. The callers are divided among them; all but the first begin empty. With more than one, only append and appendif are measured."`
	Encoding       string   `enum:"json,cbor" default:"json" help:"appendif-websocket: how messages are encoded, json or cbor."`
	Compress       bool     `help:"appendif-websocket: the clients offer compression, and the server is started with --compress."`
	Connections    int      `placeholder:"N" help:"appendif-websocket: number of WebSocket connections. Callers of one process may share one, as they do with the Go library. Default: one for each caller."`
	PastEvents     int      `name:"past-events" aliases:"past_events" default:"100" help:"appendif: how many stored events have one of the condition's two tags, but not both."`
	ConflictEvents []int    `name:"conflict-events" aliases:"conflict_events" default:"1" help:"appendif-conflict: how many events the failing condition finds. Each number is a row of the result."`
	WarmUp         seconds  `name:"warm-up" aliases:"warm_up" default:"500ms" help:"How long to run before measuring each row."`
	Duration       seconds  `default:"2s" help:"How long to measure each row."`
	Repeat         int      `default:"1" help:"Number of rounds; the result has the medians."`

	ceilingFlags
	CompareDatabase string `name:"compare-database" aliases:"compare_database" placeholder:"URL" help:"A second PostgreSQL. Each row is measured on the first one, and then on this one."`
	databaseFlags
	resultFlags
}

// Validate is called by kong.
func (c *benchEventsCmd) Validate() error {
	for _, list := range []struct {
		flag   string
		values []int
		most   int
	}{
		{"concurrency", c.Concurrency, 10_000}, {"batch", c.Batch, 1000}, {"conflict-events", c.ConflictEvents, 10_000},
		{"streams", []int{c.Streams}, 10_000}, {"repeat", []int{c.Repeat}, 100}, {"past-events", []int{c.PastEvents + 1}, 100_001},
	} {
		for _, n := range list.values {
			if n < 1 || n > list.most {
				return fmt.Errorf("--%s: %d is out of range: at most %d", list.flag, n, list.most)
			}
		}
	}
	if c.FindCeiling && c.CompareDatabase != "" {
		return errors.New("--find-ceiling and --compare-database exclude each other")
	}
	if c.Connections < 0 || c.Connections > 10_000 {
		return fmt.Errorf("--connections is %d: want 1 to 10000", c.Connections)
	}
	if c.Duration <= 0 || c.WarmUp < 0 {
		return errors.New("--duration: want more than 0; --warm-up: want 0 or more")
	}
	return nil
}

// Run is called by kong.
func (c *benchEventsCmd) Run(p *process) (err error) {
	if c.Streams > 1 && slices.Equal(c.Ops, scenario.EventsOps) {
		c.Ops = scenario.StreamsOps
	}
	if err := scenario.CheckEvents(c.Datasets, c.Ops); err != nil {
		return exit(ExitUsage, "%w", err)
	}
	if c.Streams > 1 {
		for _, op := range c.Ops {
			if !slices.Contains(scenario.StreamsOps, op) {
				return exit(ExitUsage, "--streams %d works with the operations %s, not with %s", c.Streams, strings.Join(scenario.StreamsOps, " and "), op)
			}
		}
		if fewest := slices.Min(c.Concurrency); fewest < c.Streams {
			return exit(ExitUsage, "--streams is %d and --concurrency is %d: want at least one caller for each event store", c.Streams, fewest)
		}
	}
	if err := c.contradiction(p.changed); err != nil {
		return err
	}
	if c.FindCeiling { // callers send without pauses, so there is no rate to find
		c.Ops = slices.DeleteFunc(c.Ops, func(op string) bool { return op == "projectionlimits" })
	}
	program, err := p.self()
	if err != nil {
		return err
	}
	view := c.watch(p, 0)
	defer view.Stop()
	db, pool, closeDB, err := c.benchDatabase(p, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDB()) }()
	cfg := scenario.EventsConfig{
		Datasets: c.Datasets, Ops: c.Ops, Concurrency: c.Concurrency, Batch: c.Batch, Streams: c.Streams, Wire: bench.WireConfig{Encoding: wire.EncodingOf(c.Encoding), Compress: c.Compress}, Connections: c.Connections,
		PastEvents: c.PastEvents, ConflictEvents: c.ConflictEvents,
		WarmUp: time.Duration(c.WarmUp), Duration: time.Duration(c.Duration), Repeat: c.Repeat,
		Database: scenario.EventsDatabase{Pool: pool, URL: db.url},
		Serve: func(ctx context.Context, url string) (*scenario.ServerProcess, error) {
			return scenario.StartServer(ctx, nil, nil, program, benchServe(url, c.Compress)...)
		},
		Progress: view.Progress, Control: view.Control(), Ceiling: c.ceiling(view.Progress),
	}
	if c.CompareDatabase != "" {
		other, err := pgxpool.New(p.ctx, c.CompareDatabase)
		if err != nil {
			return exit(ExitUsage, "--compare-database: %w", err)
		}
		defer other.Close()
		cfg.Compare = &scenario.EventsDatabase{Pool: other, URL: c.CompareDatabase}
	}
	result := bench.NewResult("events", map[string]any{
		"datasets": c.Datasets, "concurrency": c.Concurrency, "batch": c.Batch, "ops": c.Ops, "streams": c.Streams, "encoding": c.Encoding, "connections": c.Connections, "compress": c.Compress,
		"past_events": c.PastEvents, "conflict_events": c.ConflictEvents, "repeat": c.Repeat,
		"duration": time.Duration(c.Duration).String(), "compare_database": c.CompareDatabase != "", "find_ceiling": c.FindCeiling,
	})
	result.Recording.Observe(view.Observe)
	if err := scenario.Events(p.ctx, cfg, result); err != nil {
		return err
	}
	view.Stop()
	return c.finish(p, result)
}
