package scenario

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
)

// QueueConfig configures Queue.
type QueueConfig struct {
	QueueLoad
	Strategies []string
	Repeat     int // rounds; strategies are interleaved

	WarmUp   time.Duration
	Duration time.Duration // of the measured phase
	Report   time.Duration // time between two reports

	HoldXmin   bool // keep a transaction with a snapshot open meanwhile
	TuneVacuum bool // the usual autovacuum settings for a hot table

	// TargetCPU is the share of the machine's CPU that PostgreSQL may use at
	// the rate to find; 0: measure at Rate.
	TargetCPU float64
	Prices    Prices
	// Ceiling searches for the highest rate that is kept; nil: measure at Rate.
	Ceiling *Ceiling

	Pool     *pgxpool.Pool
	Database string // its URL
	// Serve starts the node whose WebSocket the worker processes use; nil: they
	// connect to PostgreSQL.
	Serve func(ctx context.Context) (*ServerProcess, error)
	// Part returns the command of a worker process, not started.
	Part func() *exec.Cmd
	// Progress is called with lines about the progress.
	Progress func(format string, args ...any)
	// Control steers the run. May be nil.
	Control *bench.Control
}

// Queue measures each strategy on fresh tables, with the writers in one process
// and the readers in another. The result lacks only the description of the
// machine.
func Queue(ctx context.Context, cfg QueueConfig, result *bench.Result) error {
	cfg.Streams = max(cfg.Streams, 1)
	about, err := bench.CapturePostgreSQL(ctx, cfg.Pool)
	if err != nil {
		return fmt.Errorf("describe PostgreSQL: %w", err)
	}
	result.Environment.PostgreSQL = about
	postmaster, err := backendParent(ctx, cfg.Pool)
	if err != nil {
		return err
	}
	return cfg.Control.Run(ctx, result, cfg.steps(), func(ctx context.Context, s bench.Step) error {
		cfg.Progress("round %d: %s", s.Trial+1, s.Row)
		if err := cfg.one(ctx, s.Row, s.Trial, postmaster, result); err != nil {
			return fmt.Errorf("%s: %w", s.Row, err)
		}
		return nil
	})
}

// steps returns the strategies, round by round. A search for a rate has no known
// duration.
func (cfg QueueConfig) steps() (steps []bench.Step) {
	for round := range cfg.Repeat {
		for _, strategy := range cfg.Strategies {
			s := bench.Step{Row: strategy, Trial: round}
			if cfg.TargetCPU == 0 && cfg.Ceiling == nil {
				s.WarmUp, s.Duration = cfg.WarmUp, cfg.Duration
			}
			steps = append(steps, s)
		}
	}
	return steps
}

// one measures one strategy, at the requested rate, or at the highest rate that
// keeps PostgreSQL's CPU at the target.
func (cfg QueueConfig) one(ctx context.Context, strategy string, trial, postmaster int, result *bench.Result) error {
	run := func(row string, rate float64) (map[string]float64, error) {
		r := &queueRun{cfg: cfg, result: result, postmaster: postmaster, strategy: strategy, row: row, trial: trial}
		r.cfg.Strategy, r.cfg.Rate = strategy, rate
		return r.measure(ctx)
	}
	describe := sidesOf(QueueLoad{Mode: cfg.Mode, Strategy: strategy}).describe
	if cfg.publishOnly() {
		describe += "; published only"
	}
	if cfg.Ceiling != nil {
		return FindCeiling(ctx, *cfg.Ceiling, strategy, describe, cfg.latencyPrefix(),
			func(_ context.Context, row string, rate float64) (map[string]float64, error) { return run(row, rate) }, result)
	}
	var m map[string]float64
	var err error
	if cfg.TargetCPU > 0 {
		if postmaster == 0 {
			return errors.New("--target-cpu: PostgreSQL is on another machine, where its CPU cannot be measured")
		}
		m, err = highestRate(cfg.TargetCPU, func(rate float64) (map[string]float64, error) { return run(strategy, rate) }, cfg.Progress)
	} else {
		m, err = run(strategy, cfg.Rate)
	}
	if err != nil {
		return err
	}
	cfg.Prices.metrics(m)
	result.AddTrial(strategy, describe, m)
	row := result.Row(strategy)
	row.Limiter = limiterOf(row.Metrics, cfg.latencyPrefix(), cfg.Rate)
	if cfg.TargetCPU == 0 {
		checkSent(result, strategy, m)
	}
	checkMeasured(result, strategy, m["messages_per_second"], "messages/s")
	return nil
}

// queueRun is one strategy in one round.
type queueRun struct {
	cfg        QueueConfig
	result     *bench.Result
	postmaster int
	strategy   string
	row        string // name in the result
	trial      int

	server           *ServerProcess // or nil
	writers, readers *workerProcess // without groups there are no readers
	series           []queueSample  // taken at each report
	phase            atomic.Pointer[string]
}

// queueSample is the progress of the run at one moment.
type queueSample struct {
	at             time.Time
	written, acked int // without readers, only written counts
	outstanding    int // messages due or sent, whose write is not answered
}

func (r *queueRun) measure(ctx context.Context) (m map[string]float64, err error) {
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if r.cfg.HoldXmin {
		release, err := holdSnapshot(ctx, r.cfg.Pool)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	defer func() { err = errors.Join(err, r.stopParts()) }()
	if err := r.startWorkers(ctx); err != nil {
		return nil, err
	}
	if err := r.warmUp(ctx); err != nil {
		return nil, err
	}
	before, err := readStorage(ctx, r.cfg.Pool)
	if err != nil {
		return nil, err
	}
	var generators []int
	for _, p := range r.workers() {
		generators = append(generators, p.cmd.Process.Pid)
	}
	sampler := bench.StartSampler(ctx, r.server.pid(), r.postmaster, generators...)
	pulse := r.result.Recording.StartPulse(ctx, r.row, r.trial, sampler, withCheckpoints(ctx, r.cfg.Pool, r.counters))
	defer pulse.Stop()
	took, err := r.watch(ctx)
	usage := sampler.Stop()
	if err != nil {
		return nil, err
	}
	after, err := readStorage(ctx, r.cfg.Pool)
	if err != nil {
		return nil, err
	}
	var written *workerReport
	if r.cfg.publishOnly() {
		m, written, err = r.published(ctx, took, usage, pulse)
	} else {
		m, written, err = r.delivered(ctx, took, usage)
	}
	if err != nil {
		return nil, err
	}
	after.metrics(before, took, written.Phases[measured].Count, m)
	return m, nil
}

// delivered ends a run with readers: they read the remaining messages.
func (r *queueRun) delivered(ctx context.Context, took time.Duration, usage map[bench.Role]bench.Usage) (m map[string]float64, written *workerReport, err error) {
	written, read, drained, err := r.finish(ctx)
	if err != nil {
		return nil, nil, err
	}
	m = r.metrics(took, usage, written)
	r.readMetrics(m, read)
	m["drain_seconds"] = drained.Seconds()
	r.check(written, read)
	r.record("write_", written.Phases[measured].Latency)
	r.record("read_", read.Phases[measured].Latency)
	r.record("end_to_end_", read.Phases[measured].EndToEnd)
	return m, written, nil
}

// enter starts a phase of the run.
func (r *queueRun) enter(phase string) {
	r.phase.Store(&phase)
	r.cfg.Control.Phase(phase)
}

// counters returns how far the run is.
func (r *queueRun) counters() bench.Counters {
	now := r.sample()
	c := bench.Counters{
		Phase: *r.phase.Load(), Messages: int64(now.acked), Missing: int64(r.depth(now)),
		Offered: r.cfg.Rate * float64(max(r.cfg.groups(), 1)),
	}
	for _, p := range r.workers() {
		c.Errors += int64(p.tick().Errors)
		c.Latency = p.takeRecent() // of the readers if there are any, who come last
	}
	return c
}

// prepare creates fresh tables, and writes their pages to disk before the measurement.
func (r *queueRun) prepare(ctx context.Context) error {
	r.cfg.Control.Phase(bench.PhasePrepare)
	if err := sidesOf(r.cfg.QueueLoad).prepare(ctx, r.cfg.Pool, r.cfg.QueueLoad); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	if r.cfg.TuneVacuum {
		if err := tuneVacuum(ctx, r.cfg.Pool); err != nil {
			return err
		}
	}
	r.cfg.Pool.Exec(ctx, `CHECKPOINT`) // without the right to do so, the run goes on without it
	return nil
}

// warmUp starts the worker processes' work, the readers first.
func (r *queueRun) warmUp(ctx context.Context) error {
	r.enter(bench.PhaseWarmUp)
	if err := r.order("begin"); err != nil {
		return err
	}
	select {
	case <-time.After(r.cfg.WarmUp):
	case <-ctx.Done():
		return ctx.Err()
	}
	r.enter(bench.PhaseMeasured)
	return r.order("measure")
}

// watch samples the progress until the time is up.
func (r *queueRun) watch(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	end := time.NewTimer(r.cfg.Duration)
	defer end.Stop()
	report := time.NewTicker(r.cfg.Report)
	defer report.Stop()
	r.series = append(r.series[:0], r.sample())
	for {
		select {
		case <-report.C:
			r.series = append(r.series, r.sample())
			for _, p := range r.workers() {
				if err := p.failed(); err != nil {
					return 0, err
				}
			}
		case <-end.C:
			took := time.Since(start)
			r.enter(bench.PhaseDrain)
			return took, r.order("end")
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (r *queueRun) sample() queueSample {
	w := r.writers.tick()
	s := queueSample{at: time.Now(), written: w.Count, acked: w.Count, outstanding: w.Outstanding}
	if r.readers != nil {
		s.acked = r.readers.tick().Count
	}
	return s
}

// depth returns how many reads are outstanding, or writes if nobody reads. The counts of
// writers and readers are not taken at exactly the same moment.
func (r *queueRun) depth(s queueSample) int {
	if r.cfg.publishOnly() {
		return s.outstanding
	}
	return max(0, s.written*r.cfg.groups()-s.acked)
}

// drainPatience is the time without any progress of the readers after which the
// remaining messages count as lost.
const drainPatience = 10 * time.Second

// finish stops the writers, lets the readers catch up, and collects the reports
// of both.
func (r *queueRun) finish(ctx context.Context) (written, read *workerReport, drained time.Duration, err error) {
	if written, err = r.writers.finish(ctx, nil); err != nil {
		return nil, nil, 0, err
	}
	start := time.Now()
	want := 0
	for _, n := range written.Sent {
		want += n * r.cfg.groups()
	}
	progress, last := time.Now(), -1
	for reported := time.Now(); ; {
		now := r.readers.tick().Count
		if now != last {
			last, progress = now, time.Now()
		}
		if now >= want || time.Since(progress) > drainPatience {
			break
		}
		if time.Since(reported) > r.cfg.Report {
			reported = time.Now()
			r.cfg.Progress("readers catch up: %d to go", want-now)
		}
		if err := r.readers.failed(); err != nil {
			return nil, nil, 0, err
		}
		select {
		case <-time.After(tickPeriod / 4):
		case <-ctx.Done():
			return nil, nil, 0, ctx.Err()
		}
	}
	drained = progress.Sub(start)
	read, err = r.readers.finish(ctx, written.Sent)
	return written, read, max(drained, 0), err
}

// holdSnapshot opens a transaction with a snapshot, until release.
func holdSnapshot(ctx context.Context, pool *pgxpool.Pool) (release func(), err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, fmt.Errorf("hold a snapshot: %w", err)
	}
	if _, err := tx.Exec(ctx, `SELECT pg_current_xact_id()`); err != nil { // the snapshot is taken, and its xid is the oldest
		tx.Rollback(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("hold a snapshot: %w", err)
	}
	return func() { tx.Rollback(context.WithoutCancel(ctx)) }, nil
}
