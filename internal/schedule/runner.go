package schedule

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

const (
	// maxBatch and maxBatchBytes bound one transaction of a Runner, in schedules and in bytes of payload.
	maxBatch      = 500
	maxBatchBytes = 8 << 20
	// roundTimeout bounds one transaction.
	roundTimeout = time.Minute
	// lockTimeout bounds the wait for the lock of a stream.
	lockTimeout = 20 * time.Second
)

// RunnerConfig configures a Runner.
type RunnerConfig struct {
	// Poll is how often the Runner looks for schedules that it was not told of, plus or minus a quarter. Defaults to 5 s.
	Poll time.Duration
	// Committed is called after each commit with each stream that may have new messages. Defaults to nothing.
	Committed func(s *stream.Stream)
	// Log receives errors. Required.
	Log *slog.Logger
}

// Runner writes the messages of due schedules. Safe for concurrent use.
type Runner struct {
	pool *pgxpool.Pool
	cfg  RunnerConfig
	hint chan struct{} // one slot: schedules have changed
	sent atomic.Int64

	between func(stage string) // tests stop the Runner here
}

// NewRunner returns a Runner for the schedules of a database. It does nothing before Run.
func NewRunner(pool *pgxpool.Pool, cfg RunnerConfig) *Runner {
	if cfg.Poll <= 0 {
		cfg.Poll = 5 * time.Second
	}
	if cfg.Committed == nil {
		cfg.Committed = func(*stream.Stream) {}
	}
	return &Runner{pool: pool, cfg: cfg, hint: make(chan struct{}, 1), between: func(string) {}}
}

// Sent returns how many messages this Runner has written.
func (r *Runner) Sent() int64 { return r.sent.Load() }

// Run writes messages until ctx ends. An unfinished transaction is rolled back then. While PostgreSQL is away it tries again.
func (r *Runner) Run(ctx context.Context) {
	var listening sync.WaitGroup
	listening.Go(func() {
		hint := func() { pg.Signal(r.hint) }
		pg.Listen(ctx, r.pool, pg.ScheduleChannel, r.cfg.Log, hint, func(string) { hint() })
	})
	defer listening.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failed := 0; ; {
		select {
		case <-timer.C:
		case <-r.hint:
		case <-ctx.Done():
			return
		}
		wait, err := r.round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failed == 0 { // once, until it works again
				r.cfg.Log.Warn("schedules were not run, trying again", "error", err)
			}
			if pg.Backoff(ctx, failed) != nil {
				return
			}
			failed++
			wait = 0
		default:
			failed = 0
		}
		timer.Reset(wait)
	}
}

// contended is how long a Runner waits if other Runners work on all due schedules that it has found.
const contended = 100 * time.Millisecond

// round writes one batch, and returns how long to wait for the next one.
func (r *Runner) round(ctx context.Context) (wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	found, err := r.find(ctx)
	if err != nil {
		return 0, err
	}
	if len(found.due) == 0 {
		return min(pg.Jitter(r.cfg.Poll), found.next), nil
	}
	targets, err := r.lookUp(ctx, found.due)
	if err != nil {
		return 0, err
	}
	r.between("found")
	done, err := r.write(ctx, found.due, targets)
	if err != nil {
		return 0, err
	}
	if done == 0 {
		return pg.Jitter(contended), nil
	}
	return 0, nil
}
