package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"strconv"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/scenario"
)

// queueFlags are the flags of both bench queue and bench pubsub.
type queueFlags struct {
	Strategy   []string `placeholder:"NAME" help:"What to measure. Several strategies run one after the other, each on new tables. bench queue: lease (Tidewire), skip-locked, skip-locked-batch. bench pubsub: log (Tidewire), counter-rows. Default: lease, or log."`
	Streams    int      `default:"1" placeholder:"N" help:"Number of queues (lease) or streams (log). Each has one writer. Each queue has one reader; each stream has one reader in each group. A writer sends to its queues or streams in turn."`
	Writers    int      `default:"10" help:"Number of writers. They run in a separate process."`
	InFlight   int      `name:"in-flight" aliases:"in_flight" default:"1" help:"Number of calls that a writer has in flight."`
	WriteBatch int      `name:"write-batch" aliases:"write_batch" default:"1" help:"Messages in one call."`
	Readers    int      `default:"15" help:"Number of readers of a queue. They run in a separate process."`
	ReadBatch  int      `name:"read-batch" aliases:"read_batch" placeholder:"N" help:"Messages that a reader takes at a time. Default: 100 for a queue, 1000 for pubsub."`

	ConsumerGroups int `name:"consumer-groups" aliases:"consumer_groups" default:"5" help:"pubsub: number of groups; each reads all messages. With 0, nobody reads during the measurement, and the messages are checked at the end."`
	Subscribers    int `placeholder:"N" help:"pubsub, with --via server: number of subscribers in place of groups; each reads all messages, and commits no offset, like a client that only watches."`
	Partitions     int `default:"1" help:"Number of partitions, for pubsub with --strategy counter-rows."`

	Duration       seconds `default:"120s" help:"How long to measure."`
	WarmUp         seconds `name:"warm-up" aliases:"warm_up" default:"2s" help:"How long to run before measuring."`
	Report         seconds `default:"5s" help:"Time between two lines of progress."`
	Payload        int     `default:"1024" help:"Size of a message in bytes."`
	ThrottleWrites float64 `name:"throttle-writes" aliases:"throttle_writes" placeholder:"N" help:"Messages a second that all writers together send, at fixed times. Default: as many as possible."`
	Repeat         int     `default:"1" help:"Number of rounds. Each round runs every strategy; the result has the medians."`

	Linger time.Duration `placeholder:"TIME" help:"lease, log: how long a commit waits for more messages, such as 5ms; its notification waits for the same time again. Default: chosen automatically, at most 2ms."`

	Via         string `enum:"postgres,server" default:"postgres" help:"postgres: writers and readers connect to PostgreSQL. server: they connect by WebSocket to a tidewire server, which the benchmark starts."`
	Encoding    string `enum:"json,cbor" default:"json" help:"With --via server: how messages are encoded, json or cbor."`
	Compress    bool   `help:"With --via server: the clients offer compression, and the server is started with --compress."`
	Connections int    `placeholder:"N" help:"With --via server: number of WebSocket connections of the writers. Writers of one process may share one, as they do with the Go library. Default: one for each writer."`

	HoldXmin        bool `name:"hold-xmin" aliases:"hold_xmin" help:"Keep one transaction open during the run, like a long report or a forgotten session, so that PostgreSQL cannot remove old rows."`
	TuneTableVacuum bool `name:"tune-table-vacuum" aliases:"tune_table_vacuum" help:"skip-locked, counter-rows: use the usual autovacuum settings for tables that change often."`

	ceilingFlags
	TargetCPU percent `name:"target-cpu" aliases:"target_cpu" placeholder:"SHARE" help:"Find the highest rate at which PostgreSQL uses at most this share of the machine's CPU, such as 60%."`
	priceFlags

	Host     string `placeholder:"NAME" help:"Host of PostgreSQL. Use it with --port, --db, --user and --password instead of --database-url."`
	Port     int    `placeholder:"N" help:"Port of PostgreSQL. Default: 5432."`
	DB       string `name:"db" placeholder:"NAME" help:"Database name. Default: postgres."`
	User     string `placeholder:"NAME" help:"User name. Default: postgres."`
	Password string `placeholder:"WORD" help:"Password. Other users of this machine can see it in the list of processes: set PGPASSWORD instead."`
	databaseFlags
	resultFlags
}

// priceFlags are the prices to compute costs from. The currency is the user's.
type priceFlags struct {
	PricePerYear      float64 `name:"price-per-year" aliases:"price_per_year" placeholder:"N" help:"Price of the machine for a year, to compute costs."`
	PricePerHour      float64 `name:"price-per-hour" aliases:"price_per_hour" placeholder:"N" help:"Price of the machine for an hour, instead of a year."`
	PricePerGBMonth   float64 `name:"price-per-gb-month" aliases:"price_per_gb_month" placeholder:"N" help:"Price of a gigabyte of disk for a month."`
	IOPS              float64 `name:"iops" placeholder:"N" help:"Number of disk operations a second that you pay for."`
	PricePerIOPSMonth float64 `name:"price-per-iops-month" aliases:"price_per_iops_month" placeholder:"N" help:"Price of one disk operation a second (IOPS) for a month."`
	Retention         seconds `default:"168h" help:"How long messages are kept, to compute the size of the disk."`
}

func (f priceFlags) prices() scenario.Prices {
	p := scenario.Prices{
		PerYear: f.PricePerYear, PerHour: f.PricePerHour, PerGBMonth: f.PricePerGBMonth,
		IOPS: f.IOPS, PerIOPSMonth: f.PricePerIOPSMonth,
	}
	if p != (scenario.Prices{}) {
		p.Retention = time.Duration(f.Retention)
	}
	return p
}

type benchQueueCmd struct {
	Mode string `enum:"queue,pubsub" default:"queue" help:"queue: the readers share the messages. pubsub: each group reads all messages, as in bench pubsub."`
	queueFlags
}

type benchPubsubCmd struct{ queueFlags }

// Run is called by kong.
func (c *benchQueueCmd) Run(p *process) error { return c.run(p, c.Mode) }

// Run is called by kong.
func (c *benchPubsubCmd) Run(p *process) error { return c.run(p, "pubsub") }

// Validate is called by kong.
func (f *queueFlags) Validate() error {
	for _, n := range []struct {
		flag            string
		is, least, most int
	}{
		{"streams", f.Streams, 1, 100_000}, {"writers", f.Writers, 1, 1000}, {"in-flight", f.InFlight, 1, 1000},
		{"write-batch", f.WriteBatch, 1, 10_000}, {"readers", f.Readers, 1, 1000}, {"read-batch", max(f.ReadBatch, 1), 1, 10_000},
		{"consumer-groups", f.ConsumerGroups, 0, 100}, {"subscribers", f.Subscribers, 0, 10_000}, {"partitions", f.Partitions, 1, 100}, {"repeat", f.Repeat, 1, 100},
	} {
		if n.is < n.least || n.is > n.most {
			return fmt.Errorf("--%s is %d: want %d to %d", n.flag, n.is, n.least, n.most)
		}
	}
	switch {
	case f.Streams > 1 && f.Streams < f.Writers:
		return fmt.Errorf("--streams is %d: want 1, or at least one for each of the %d --writers", f.Streams, f.Writers)
	case f.Payload < bench.MinStamped || f.Payload > 1<<20:
		return fmt.Errorf("--payload is %d: want %d to %d bytes", f.Payload, bench.MinStamped, 1<<20)
	case f.Duration <= 0 || f.Report <= 0 || f.WarmUp < 0:
		return errors.New("--duration and --report: want more than 0; --warm-up: want 0 or more")
	case f.ReadBatch < 0:
		return fmt.Errorf("--read-batch is %d: want 1 to 10000", f.ReadBatch)
	case f.ThrottleWrites < 0:
		return fmt.Errorf("--throttle-writes is %g: want 0 or more", f.ThrottleWrites)
	case f.Linger < 0 || f.Linger > time.Second:
		return fmt.Errorf("--linger is %v: want 0 to 1s", f.Linger)
	case f.Linger > 0 && f.Via == "server":
		return errors.New("--linger and --via server exclude each other: a server has no such setting")
	case f.Encoding == "cbor" && f.Via != "server":
		return errors.New("--encoding goes with --via server")
	case f.Subscribers != 0 && (f.Compress || f.Streams > 1):
		return errors.New("--subscribers goes neither with --compress nor with --streams: leave that out")
	case f.Subscribers != 0 && f.Via != "server":
		return errors.New("--subscribers goes with --via server")
	case f.Compress && f.Via != "server":
		return errors.New("--compress goes with --via server")
	case f.Connections != 0 && f.Via != "server":
		return errors.New("--connections goes with --via server")
	case f.Connections < 0 || f.Connections > f.Writers:
		return fmt.Errorf("--connections is %d: want 1 to %d, the number of --writers", f.Connections, f.Writers)
	case f.TargetCPU > 0 && f.ThrottleWrites > 0 || f.FindCeiling && (f.TargetCPU > 0 || f.ThrottleWrites > 0):
		return errors.New("--target-cpu, --throttle-writes and --find-ceiling exclude each other")
	case min(f.PricePerYear, f.PricePerHour, f.PricePerGBMonth, f.IOPS, f.PricePerIOPSMonth) < 0:
		return errors.New("prices: want 0 or more")
	case f.Host == "" && (f.Port != 0 || f.DB != "" || f.User != "" || f.Password != ""):
		return errors.New("--port, --db, --user and --password go with --host")
	case f.Host != "" && f.DatabaseURL != "":
		return errors.New("--host and --database-url exclude each other")
	}
	return nil
}

// benchServe are the arguments of the server that a benchmark starts.
func benchServe(database string, compress bool) []string {
	args := []string{"serve", "--port", "0", "--database-url", database}
	if compress {
		args = append(args, "--compress")
	}
	return args
}

// databaseURL returns the URL that --host, --port, --db, --user and --password describe.
func (f *queueFlags) databaseURL() string {
	user := url.User(cmp.Or(f.User, "postgres")) // pgx looks for PGPASSWORD
	if f.Password != "" {
		user = url.UserPassword(user.Username(), f.Password)
	}
	u := url.URL{
		Scheme: "postgres", User: user,
		Host: net.JoinHostPort(f.Host, strconv.Itoa(cmp.Or(f.Port, 5432))), Path: "/" + cmp.Or(f.DB, "postgres"),
	}
	return u.String()
}

func (f *queueFlags) load(mode string) scenario.QueueLoad {
	return scenario.QueueLoad{
		Mode: mode, Writers: f.Writers, InFlight: f.InFlight, Batch: f.WriteBatch, Payload: f.Payload, Rate: f.ThrottleWrites,
		Readers: f.Readers, ReadBatch: f.ReadBatch, Groups: cmp.Or(f.Subscribers, f.ConsumerGroups), Ungrouped: f.Subscribers > 0, Partitions: f.Partitions,
		Linger: f.Linger, Streams: f.Streams, Encoding: f.Encoding, Compress: f.Compress, Connections: f.Connections,
	}
}

func (f *queueFlags) run(p *process, mode string) (err error) {
	strategy, batch := "lease", 100
	if mode == "pubsub" {
		strategy, batch = "log", 1000
	}
	if len(f.Strategy) == 0 {
		f.Strategy = []string{strategy}
	}
	f.ReadBatch = cmp.Or(f.ReadBatch, batch)
	if err := scenario.CheckStrategies(mode, f.Strategy); err != nil {
		return exit(ExitUsage, "--strategy: %w", err)
	}
	if f.Streams > 1 {
		if err := scenario.CheckMany(mode, f.Strategy); err != nil {
			return exit(ExitUsage, "--streams: %w", err)
		}
	}
	if f.Via == "server" {
		if err := scenario.CheckWire(mode, f.Strategy); err != nil {
			return exit(ExitUsage, "--via server: %w", err)
		}
	}
	if err := f.contradiction(mode, p.changed); err != nil {
		return err
	}
	program, err := p.self()
	if err != nil {
		return err
	}
	if f.Host != "" {
		f.DatabaseURL = f.databaseURL()
	}
	view := f.watch(p, time.Duration(f.Report))
	defer view.Stop()
	db, pool, closeDB, err := f.benchDatabase(p, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDB()) }()
	result := bench.NewResult(mode, map[string]any{
		"strategies": f.Strategy, "streams": f.Streams, "writers": f.Writers, "in_flight": f.InFlight, "write_batch": f.WriteBatch,
		"readers": f.Readers, "read_batch": f.ReadBatch, "consumer_groups": f.ConsumerGroups, "subscribers": f.Subscribers, "partitions": f.Partitions,
		"duration": time.Duration(f.Duration).String(), "payload": f.Payload, "throttle_writes": f.ThrottleWrites,
		"linger": f.Linger.String(), "via": f.Via, "encoding": f.Encoding, "connections": f.Connections, "compress": f.Compress,
		"repeat": f.Repeat, "hold_xmin": f.HoldXmin, "tune_table_vacuum": f.TuneTableVacuum,
		"find_ceiling": f.FindCeiling, "target_cpu": float64(f.TargetCPU), "prices": f.prices(),
	})
	result.Recording.Observe(view.Observe)
	cfg := scenario.QueueConfig{
		QueueLoad: f.load(mode), Strategies: f.Strategy, Repeat: f.Repeat,
		WarmUp: time.Duration(f.WarmUp), Duration: time.Duration(f.Duration), Report: time.Duration(f.Report),
		HoldXmin: f.HoldXmin, TuneVacuum: f.TuneTableVacuum,
		TargetCPU: float64(f.TargetCPU), Prices: f.prices(), Ceiling: f.ceiling(view.Progress), Pool: pool, Database: db.url,
		Part:     func() *exec.Cmd { return exec.CommandContext(p.ctx, program, "bench", "part") },
		Progress: view.Progress, Control: view.Control(),
	}
	if f.Via == "server" {
		cfg.Serve = func(ctx context.Context) (*scenario.ServerProcess, error) {
			return scenario.StartServer(ctx, nil, nil, program, benchServe(db.url, f.Compress)...)
		}
	}
	if err := scenario.Queue(p.ctx, cfg, result); err != nil {
		return err
	}
	view.Stop()
	return f.finish(p, result)
}

// benchPartCmd is one of the worker processes of bench queue.
type benchPartCmd struct{}

// Run is called by kong.
func (benchPartCmd) Run(p *process) error { return scenario.RunPart(p.ctx, p.In, p.Out) }
