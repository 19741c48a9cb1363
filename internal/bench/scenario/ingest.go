package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/ingestlog"
)

// IngestConfig configures Ingest.
type IngestConfig struct {
	Clients       int
	Messages      int // of all clients together
	NaiveMessages int // the same for naive and buffered; 0: Messages
	Payload       int // bytes
	Modes         []string
	Repeat        int // rounds; modes are interleaved over them

	Ack        bool    // measure each mode with ?ack=1 as well
	ClosedLoop bool    // each client waits for its acknowledgement before the next message
	Rate       float64 // messages/s at times fixed in advance; 0: as fast as possible
	// Ceiling searches for the highest rate that each mode keeps up with, and
	// replaces Messages and Rate; nil: no search.
	Ceiling *Ceiling

	// Start starts a server of the mode on a fresh table.
	Start func(ctx context.Context, mode string) (*ServerProcess, error)
	// URL of a running server, instead of Start.
	URL string
	// Pool is connected to the server's database. With URL it may be nil: then
	// rows are not verified and the result is not valid.
	Pool *pgxpool.Pool
	// Describe says what a mode does.
	Describe func(mode string) string
	// Control steers the run. May be nil.
	Control *bench.Control
	// Progress is called with lines about the progress.
	Progress func(format string, args ...any)
}

// rawCopyRow names the row of the reference. One backend does all its work: if
// it uses oneBackend of a core, it has no CPU left.
const (
	rawCopyRow = "raw COPY"
	runningRow = "server" // started by the user
	oneBackend = 0.85
)

// Ingest measures each mode, and for reference one raw COPY of the same
// messages into the same table. The result lacks only the description of the
// machine.
func Ingest(ctx context.Context, cfg IngestConfig, result *bench.Result) error {
	postmaster := 0
	if cfg.Pool != nil {
		pg, err := bench.CapturePostgreSQL(ctx, cfg.Pool)
		if err != nil {
			return fmt.Errorf("describe PostgreSQL: %w", err)
		}
		result.Environment.PostgreSQL = pg
		if postmaster, err = backendParent(ctx, cfg.Pool); err != nil {
			return err
		}
	}
	in := &ingestRun{cfg: cfg, result: result, postmaster: postmaster}
	steps, do := in.steps()
	err := cfg.Control.Run(ctx, result, steps, func(ctx context.Context, s bench.Step) error {
		in.round = s.Trial + 1
		if err := do[s.Row](ctx); err != nil {
			return fmt.Errorf("%s: %w", s.Row, err)
		}
		return nil
	})
	in.shares()
	return err
}

func backendParent(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	var backend int
	if err := pool.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&backend); err != nil {
		return 0, fmt.Errorf("ask PostgreSQL for its pid: %w", err)
	}
	return bench.PostmasterPID(backend), nil
}

type ingestRun struct {
	cfg        IngestConfig
	result     *bench.Result
	postmaster int
	round      int
}

// acks returns whether each mode runs with acknowledgements, without, or both.
// Loops that wait for answers need them.
func (in *ingestRun) acks() []bool {
	switch {
	case in.cfg.ClosedLoop || in.cfg.Rate > 0:
		return []bool{true}
	case in.cfg.Ack:
		return []bool{false, true}
	default:
		return []bool{false}
	}
}

func (in *ingestRun) perClient(mode string) int {
	n := in.cfg.Messages
	if in.cfg.NaiveMessages > 0 && (mode == "naive" || mode == "buffered") {
		n = in.cfg.NaiveMessages
	}
	return max(1, n/in.cfg.Clients)
}

func (in *ingestRun) rawCopy(ctx context.Context) error {
	if err := ingestlog.Recreate(ctx, in.cfg.Pool, ""); err != nil {
		return err
	}
	in.checkpoint(ctx)
	each := in.perClient("")
	total := each * in.cfg.Clients
	in.cfg.Progress("round %d: raw COPY of %d rows", in.round, total)
	wal, err := number(ctx, in.cfg.Pool, walSQL)
	if err != nil {
		return err
	}
	sampler := bench.StartSampler(ctx, 0, in.postmaster)
	took, err := RawCopy(ctx, in.cfg.Pool, in.cfg.Clients, each, in.cfg.Payload)
	usage := sampler.Stop()
	if err != nil {
		return err
	}
	metrics := map[string]float64{
		"seconds": took.Seconds(), "messages_per_second": float64(total) / took.Seconds(), "sent": float64(total),
		"generator_cpu_seconds": usage[bench.Generator].CPUSeconds, "postgres_cpu_seconds": usage[bench.Postgres].CPUSeconds,
	}
	if err := in.stored(ctx, rawCopyRow, time.Time{}, each, metrics); err != nil {
		return err
	}
	if err := walMetric(ctx, in.cfg.Pool, wal, total, metrics); err != nil {
		return err
	}
	addTrial(in.result, rawCopyRow, "one statement, encoded beforehand: PostgreSQL alone", metrics, 0)
	if usage[bench.Postgres].CPUSeconds >= oneBackend*took.Seconds() {
		in.result.Row(rawCopyRow).Limiter = bench.LimitPostgreSQL
	}
	return nil
}

// mode measures one mode on a new server.
func (in *ingestRun) mode(ctx context.Context, mode string, ack bool) error {
	server, err := in.cfg.Start(ctx, mode)
	if err != nil {
		return err
	}
	name := in.rowOf(mode, ack)
	metrics, err := in.measure(ctx, name, server.URL("/ws/ingest"), ack, in.perClient(mode), server.PID(), true)
	stopErr := server.Stop()
	if err != nil {
		return errors.Join(err, stopErr)
	}
	in.result.Check(name+": server stopped cleanly", stopErr == nil, "%v", stopErr)
	addTrial(in.result, name, in.cfg.Describe(mode), metrics, in.cfg.Rate)
	return nil
}

// running measures a server that the user started.
func (in *ingestRun) running(ctx context.Context) error {
	const name = runningRow
	ack := in.cfg.Ack || in.cfg.ClosedLoop || in.cfg.Rate > 0
	metrics, err := in.measure(ctx, name, in.cfg.URL, ack, in.perClient(""), 0, false)
	if err != nil {
		return err
	}
	addTrial(in.result, name, in.cfg.URL, metrics, in.cfg.Rate)
	return nil
}

// measure makes the load and verifies the stored rows.
func (in *ingestRun) measure(ctx context.Context, name, url string, ack bool, each, serverPID int, ours bool) (map[string]float64, error) {
	cfg := bench.PumpConfig{
		URL: url, Clients: in.cfg.Clients, Messages: each, Payload: in.cfg.Payload, Rate: in.cfg.Rate,
	}
	if ack {
		cfg.URL, cfg.Answer = withAck(url), bench.CountAnswer
	}
	if in.cfg.ClosedLoop {
		cfg.Window = 1
	}
	total := each * in.cfg.Clients
	if ours {
		if err := in.warmUp(ctx, cfg, name); err != nil {
			return nil, err
		}
	}
	var since time.Time
	var wal, xid int64
	var err error
	if in.cfg.Pool != nil {
		if err := in.cfg.Pool.QueryRow(ctx, clockSQL).Scan(&since); err != nil {
			return nil, fmt.Errorf("read the database's clock: %w", err)
		}
		if wal, err = number(ctx, in.cfg.Pool, walSQL); err != nil {
			return nil, err
		}
		if xid, err = number(ctx, in.cfg.Pool, xidSQL); err != nil {
			return nil, err
		}
	}
	far := &ingestProgress{url: url, ack: ack, before: committed(url)}
	cfg.Gauge = &far.gauge
	cfg.Progress = func(sent, _ int) {
		in.cfg.Progress("round %d: %s: %d messages, %d sent, %d committed", in.round, name, total, sent, far.committed.Load())
	}
	in.cfg.Progress("round %d: %s: %d messages", in.round, name, total)
	pump, err := bench.NewPump(ctx, cfg)
	if err != nil {
		return nil, err
	}
	sampler := bench.StartSampler(ctx, serverPID, in.postmaster)
	pulse := in.result.Recording.StartPulse(ctx, name, in.round-1, sampler, withCheckpoints(ctx, in.cfg.Pool, far.counters))
	seen, err := pump.Run(ctx)
	pulse.Stop()
	if err != nil {
		sampler.Stop()
		return nil, err
	}
	in.result.Recording.Latencies(name, in.round-1, "", seen.Latency)
	last := seen.LastClose
	if in.cfg.Pool != nil {
		if last, err = in.allStored(ctx, since, total, last); err != nil {
			return nil, err
		}
	}
	usage := sampler.Stop()
	metrics := in.metrics(seen, usage, last, serverPID)
	checkSent(in.result, name, metrics)
	in.result.Check(name+": connections closed in order", seen.Closed == in.cfg.Clients, "%d of %d", seen.Closed, in.cfg.Clients)
	if ack {
		in.result.Check(name+": acknowledged equal sent", seen.Answered == seen.Sent, "%d of %d", seen.Answered, seen.Sent)
	}
	if in.cfg.Pool == nil {
		in.result.Check("rows verified", false, "rows not verified: give --database-url of the server's database")
		return metrics, nil
	}
	if err := walMetric(ctx, in.cfg.Pool, wal, total, metrics); err != nil {
		return nil, err
	}
	now, err := number(ctx, in.cfg.Pool, xidSQL)
	if err != nil {
		return nil, err
	}
	metrics["write_transactions"] = float64(now - xid)
	return metrics, in.stored(ctx, name, since, each, metrics)
}

// withAck adds the request for acknowledgements to the query of a URL.
func withAck(url string) string {
	if strings.Contains(url, "?") {
		return url + "&ack=1"
	}
	return url + "?ack=1"
}

func (in *ingestRun) metrics(seen bench.PumpResult, usage map[bench.Role]bench.Usage, last time.Time, serverPID int) map[string]float64 {
	seconds := last.Sub(seen.FirstFrame).Seconds()
	m := map[string]float64{
		"seconds": seconds, "messages_per_second": float64(seen.Sent) / seconds,
		"sent": float64(seen.Sent), "connections": float64(in.cfg.Clients),
	}
	if in.postmaster != 0 {
		m["postgres_cpu_seconds"] = usage[bench.Postgres].CPUSeconds
	}
	serverMetrics(m, usage, serverPID)
	if in.cfg.Rate > 0 {
		m["offered"], m["unsent"] = float64(seen.Sent), float64(seen.Unsent)
	}
	lateMetric(m, seen.Late)
	seen.Latency.Metrics(m, "")
	return m
}

// warmUp makes the server connect to PostgreSQL, prepare its statements and
// grow its buffers, and then empties the table.
func (in *ingestRun) warmUp(ctx context.Context, cfg bench.PumpConfig, name string) error {
	in.cfg.Progress("round %d: %s: warm-up", in.round, name)
	cfg.Messages = max(1, min(cfg.Messages/10, 20_000/cfg.Clients))
	cfg.Rate = 0
	if _, err := run(ctx, cfg); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	if _, err := in.cfg.Pool.Exec(ctx, `TRUNCATE public.messages`); err != nil {
		return fmt.Errorf("empty the table after the warm-up: %w", err)
	}
	in.checkpoint(ctx)
	return nil
}

// checkpoint writes the last run's dirty pages, so that they do not slow down
// the next one. Without the right to do so, the run goes on without it.
func (in *ingestRun) checkpoint(ctx context.Context) {
	in.cfg.Pool.Exec(ctx, `CHECKPOINT`)
}

const (
	clockSQL = `SELECT clock_timestamp()`
	countSQL = `SELECT count(*) FROM public.messages WHERE created_at >= $1`
	// Only transactions that wrote have a number.
	xidSQL = `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`
	walSQL = `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint`
)

// allStored returns when the last row was stored: at the last closing
// handshake, if the server answers that only when everything is stored.
// Otherwise it counts rows until all are there, or none has arrived for five
// seconds.
func (in *ingestRun) allStored(ctx context.Context, since time.Time, total int, closed time.Time) (time.Time, error) {
	rows, last := 0, closed
	for time.Since(last) < 5*time.Second {
		var n int
		if err := in.cfg.Pool.QueryRow(ctx, countSQL, since).Scan(&n); err != nil {
			return last, fmt.Errorf("count rows: %w", err)
		}
		if n != rows && rows > 0 {
			last = time.Now()
		}
		if rows = n; rows >= total {
			return last, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return last, nil
}

// stored verifies the table and adds the metrics of that.
func (in *ingestRun) stored(ctx context.Context, name string, since time.Time, each int, metrics map[string]float64) error {
	stored, err := Verify(ctx, in.cfg.Pool, since, in.cfg.Clients, each, in.cfg.Payload)
	if err != nil {
		return err
	}
	in.result.Check(name+": rows equal sent", stored.OK(), "%s", stored)
	if mode, _, _ := strings.Cut(name, " "); mode == "copy" || mode == "auto" {
		in.result.Check(name+": positions in sending order", stored.Reordered == 0, "%s", stored)
	}
	metrics["rows_verified"] = float64(stored.Rows - stored.Foreign - stored.Duplicated)
	metrics["lost"], metrics["duplicated"], metrics["reordered"] = float64(stored.Lost), float64(stored.Duplicated), float64(stored.Reordered)
	return nil
}

// shares adds the throughput of each mode as a share of the raw COPY.
func (in *ingestRun) shares() {
	raw := in.result.Row(rawCopyRow)
	if raw == nil || raw.Metrics == nil {
		return
	}
	for _, row := range in.result.Rows {
		if row.Metrics == nil { // skipped
			continue
		}
		row.Metrics["share_of_raw_copy"] = row.Metrics["messages_per_second"] / raw.Metrics["messages_per_second"]
	}
}

func number(ctx context.Context, pool *pgxpool.Pool, sql string) (n int64, err error) {
	if err := pool.QueryRow(ctx, sql).Scan(&n); err != nil {
		return 0, fmt.Errorf("ask PostgreSQL: %w", err)
	}
	return n, nil
}

func walMetric(ctx context.Context, pool *pgxpool.Pool, before int64, messages int, metrics map[string]float64) error {
	now, err := number(ctx, pool, walSQL)
	metrics["wal_bytes_per_message"] = float64(now-before) / float64(messages)
	return err
}
