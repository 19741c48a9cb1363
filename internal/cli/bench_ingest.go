package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/scenario"
	"github.com/tidewire/tidewire/internal/ingest"
	"github.com/tidewire/tidewire/internal/pg"
)

// benchIngestCmd measures the ingest strategies.
type benchIngestCmd struct {
	Clients       int      `default:"10" help:"Number of connections."`
	Messages      int      `default:"100000" help:"Number of messages, of all connections together."`
	NaiveMessages int      `placeholder:"N" help:"Number of messages for naive and buffered, which are slow. Default: the same as --messages."`
	Payload       int      `default:"100" help:"Size of a message in bytes."`
	Modes         []string `default:"naive,buffered,bulk,copy,auto" help:"Modes to measure."`
	Repeat        int      `default:"6" help:"Number of rounds. Each round measures every mode; the result has the medians."`
	Ack           bool     `help:"Measure each mode also with acknowledgements (?ack=1)."`
	ClosedLoop    bool     `help:"Each connection waits for its acknowledgement before the next message."`
	Rate          float64  `placeholder:"N" help:"Messages a second, sent at fixed times. Default: as many as possible."`
	URL           string   `name:"url" placeholder:"WS" help:"URL of /ws/ingest of a running server. Default: the benchmark starts a server for each mode."`

	ceilingFlags

	Workers int `default:"4" help:"Number of database connections of the modes buffered and bulk."`
	Batch   int `placeholder:"N" help:"Maximum number of rows in one write. Default: the server's default."`
	databaseFlags
	resultFlags
	ServerLog bool `help:"Show the log of the servers."`
}

// Validate is called by kong.
func (c *benchIngestCmd) Validate() error {
	for _, m := range c.Modes {
		if _, err := ingest.ParseMode(m); err != nil {
			return err
		}
	}
	switch {
	case c.Clients < 1 || c.Clients > 1<<16:
		return fmt.Errorf("--clients is %d: want 1 to 65536", c.Clients)
	case c.Messages < c.Clients:
		return fmt.Errorf("--messages is %d: want at least one for each of %d clients", c.Messages, c.Clients)
	case c.NaiveMessages != 0 && c.NaiveMessages < c.Clients:
		return fmt.Errorf("--naive-messages is %d: want at least one for each of %d clients", c.NaiveMessages, c.Clients)
	case c.Payload < bench.MinPayload || c.Payload > 1<<20:
		return fmt.Errorf("--payload is %d: want %d to %d bytes", c.Payload, bench.MinPayload, 1<<20)
	case c.Repeat < 1:
		return fmt.Errorf("--repeat is %d: want at least 1", c.Repeat)
	case c.Rate < 0:
		return fmt.Errorf("--rate is %g: want 0 or more", c.Rate)
	case c.ClosedLoop && c.Rate > 0 || c.FindCeiling && (c.ClosedLoop || c.Rate > 0 || c.Ack || c.URL != ""):
		return errors.New("--closed-loop, --rate and --find-ceiling exclude each other; --find-ceiling also excludes --ack and --url")
	}
	return nil
}

// Run is called by kong.
func (c *benchIngestCmd) Run(p *process) (err error) {
	if err := c.contradiction(p.changed); err != nil {
		return err
	}
	program, err := p.self()
	if err != nil {
		return err
	}
	view := c.watch(p, 0)
	defer view.Stop()
	cfg := scenario.IngestConfig{
		Clients: c.Clients, Messages: c.Messages, NaiveMessages: c.NaiveMessages, Payload: c.Payload,
		Modes: c.Modes, Repeat: c.Repeat, Ack: c.Ack, ClosedLoop: c.ClosedLoop, Rate: c.Rate,
		URL: c.URL, Describe: c.describe, Progress: view.Progress, Control: view.Control(), Ceiling: c.ceiling(view.Progress),
	}
	result := bench.NewResult("ingest", map[string]any{
		"clients": c.Clients, "messages": c.Messages, "naive_messages": c.NaiveMessages, "payload": c.Payload,
		"modes": c.Modes, "repeat": c.Repeat, "ack": c.Ack, "closed_loop": c.ClosedLoop, "rate": c.Rate,
		"url": c.URL, "workers": c.Workers, "batch": c.Batch, "find_ceiling": c.FindCeiling,
	})
	result.Recording.Observe(view.Observe)
	if _, given := c.given(p); c.URL == "" || given {
		db, pool, closeDB, err := c.benchDatabase(p, c.URL == "")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeDB()) }()
		cfg.Pool = pool
		cfg.Start = func(ctx context.Context, mode string) (*scenario.ServerProcess, error) {
			return scenario.StartServer(ctx, c.serverLog(p), nil, program, c.serverArgs(mode, db.url)...)
		}
	}
	if err := scenario.Ingest(p.ctx, cfg, result); err != nil {
		return err
	}
	view.Stop()
	return c.finish(p, result)
}

func (c *benchIngestCmd) describe(mode string) string {
	text := ingest.Mode(mode).Describe(ingest.Config{Mode: ingest.Mode(mode), Workers: c.Workers, Batch: c.Batch})
	if c.NaiveMessages > 0 && (mode == "naive" || mode == "buffered") {
		text += fmt.Sprintf(" (%d messages)", c.NaiveMessages)
	}
	return text
}

func (c *benchIngestCmd) serverArgs(mode, url string) []string {
	args := []string{"serve", "--only", "ingest", "--recreate", "--port", "0", "--mode", mode,
		"--workers", strconv.Itoa(c.Workers), "--database-url", url}
	if c.Batch > 0 {
		args = append(args, "--batch", strconv.Itoa(c.Batch))
	}
	return args
}

func (c *benchIngestCmd) serverLog(p *process) io.Writer {
	if c.ServerLog {
		return p.Err
	}
	return nil
}

// benchDatabase opens the database of a benchmark: the given one, or a private PostgreSQL
// with default settings. The private one is in --data-dir, or in a temporary directory
// that is removed at the end. Tables in a database that stays are dropped only if the
// user confirmed it.
func (f databaseFlags) benchDatabase(p *process, fresh bool) (*database, *pgxpool.Pool, func() error, error) {
	_, given := f.given(p)
	if given && f.private() {
		return nil, nil, nil, exit(ExitUsage, "--data-dir, --postgres, --pg-version and --pg-mirror choose a private PostgreSQL, "+
			"and --database-url, DATABASE_URL or a PG* variable chooses another: leave out one of the two")
	}
	remove := func() error { return nil }
	temporary := !given && f.DataDir == ""
	if temporary {
		dir, err := os.MkdirTemp("", "tidewire-bench-")
		if err != nil {
			return nil, nil, nil, exit(ExitDataDir, "make a directory for the private PostgreSQL: %w", err)
		}
		if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL may run as another user
			return nil, nil, nil, err
		}
		f.DataDir = dir + "/data"
		remove = func() error { return os.RemoveAll(dir) }
	}
	db, err := f.open(p)
	if err != nil {
		return nil, nil, nil, errors.Join(err, remove())
	}
	pool, err := db.connect(p.ctx, 8, p.log)
	if err == nil {
		if _, err = migrateUp(p, pool, pg.DefaultTable); err != nil {
			pool.Close()
		}
	}
	if err == nil && fresh && !temporary {
		if err = refuseData(p.ctx, pool); err != nil {
			pool.Close()
		}
	}
	stop := func() error { return errors.Join(db.stop(context.WithoutCancel(p.ctx)), remove()) }
	if err != nil {
		return nil, nil, nil, errors.Join(err, stop())
	}
	return db, pool, func() error { pool.Close(); return stop() }, nil
}

// refuseData fails if the messages table has rows, since a benchmark drops that
// table.
func refuseData(ctx context.Context, pool *pgxpool.Pool) error {
	var there, rows bool
	err := pool.QueryRow(ctx, `SELECT to_regclass('public.messages') IS NOT NULL`).Scan(&there)
	if err == nil && there {
		err = pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM public.messages)`).Scan(&rows)
	}
	if err != nil {
		return explainDatabase(err)
	}
	if rows {
		return exit(ExitDatabase, "table messages of the given database is not empty, and a benchmark drops it: "+
			"give another --database-url or --data-dir, or empty the table with TRUNCATE messages")
	}
	return nil
}
