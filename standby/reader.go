package standby

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// Config says which standby to read from.
type Config struct {
	// URL is the URL or key=value string of the standby, as for libpq. If it has several hosts, the first that answers is
	// used; with target_session_attrs=standby, the first standby. With pool_max_conns=N there are at most N connections,
	// but at least 2; the default is the larger of 4 and the number of processors.
	URL string
	// Log receives a line when reads begin to go to the standby, and when they stop. Defaults to none.
	Log *slog.Logger
}

const (
	// connectTimeout bounds an attempt to connect to one host, readTimeout a read with the wait for a connection.
	connectTimeout = time.Second
	readTimeout    = 2 * time.Second
	// slotTimeout bounds the wait for a connection: if all are in use for longer, the primary is faster.
	slotTimeout = 250 * time.Millisecond
	// appName is the application_name of the connections, unless the URL has another.
	appName = pg.AppName + " reader"
)

var (
	// ErrNotAsked is returned by a read that has not queried the standby, because only the primary can
	// answer.
	ErrNotAsked = errors.New("standby: not asked")
	// ErrLacks is returned by a read for which the standby lags too far, although it works.
	ErrLacks = errors.New("standby: it has not got so far")
	// ErrHistory is returned by a read that has found an older history than the primary's.
	ErrHistory = errors.New("standby: its history is older than that of the primary: it has not got so far, or follows a former primary")

	errURL          = errors.New("standby: malformed URL")
	errOtherCluster = errors.New("standby: the server belongs to another PostgreSQL cluster than the primary")
	errNoStandby    = errors.New("standby: the server is no standby: it was promoted, or the read URL leads to the primary")
)

// Reader reads from a standby of the primary's database. With a nil Reader all reads go to the primary. It must be closed.
// Safe for concurrent use.
type Reader struct {
	primary, pool *pgxpool.Pool
	log           *slog.Logger
	slots         chan struct{} // limits the reads under way: a semaphore
	system        atomic.Int64  // identifier of the primary's cluster, or 0 while it is unknown

	breaker  *breaker
	failures chan struct{} // one slot: a read has failed
	canceled atomic.Bool   // the log already has a line about a read that the standby canceled
	end      context.CancelFunc
	running  sync.WaitGroup

	fromPrimary, fromStandby atomic.Uint64
}

// Open returns a Reader of a standby of the primary's database. It probes the standby, for a second at most, and then every few
// seconds. If the standby cannot be read, Open returns no error: Problem says why. It returns an error only for a malformed URL.
func Open(ctx context.Context, primary *pgxpool.Pool, cfg Config) (*Reader, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errURL, err)
	}
	pc.MaxConns = max(2, pc.MaxConns) // one is for probes
	pc.ConnConfig.ConnectTimeout = connectTimeout
	if pc.ConnConfig.RuntimeParams["application_name"] == "" {
		pc.ConnConfig.RuntimeParams["application_name"] = appName
	}
	r := &Reader{primary: primary, log: cfg.Log, slots: make(chan struct{}, pc.MaxConns-1), breaker: newBreaker(), failures: make(chan struct{}, 1)}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	pc.AfterConnect = r.identify
	pg.BoundStartups(pc.ConnConfig)
	if r.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), pc); err != nil {
		return nil, fmt.Errorf("%w: %v", errURL, err)
	}
	r.probe(ctx)
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	r.end = end
	r.running.Go(func() { r.watch(life) })
	return r, nil
}

// Close waits until the reads under way have ended, and closes the connections. From then on all reads go to
// the primary.
func (r *Reader) Close() {
	r.breaker.close()
	r.end()
	r.running.Wait()
	r.pool.Close()
}

// Read calls read with a pool of connections to the standby, unless the standby has failed recently. It reports whether read
// returned nil, so that its result counts; if not, the caller has to query the primary. The read has two seconds, or half of the
// time until the deadline of ctx if that is less. After ErrNotAsked and ErrLacks, and if the standby has canceled the read, the
// next reads still go there.
func (r *Reader) Read(ctx context.Context, read func(ctx context.Context, pool *pgxpool.Pool) error) (done bool) {
	if r == nil {
		return false
	}
	if r.breaker.problem() != nil || !r.begin(ctx) {
		r.fromPrimary.Add(1)
		return false
	}
	defer func() { <-r.slots }()
	bound, cancel := context.WithTimeout(ctx, timeFor(ctx))
	defer cancel()
	if err := read(bound, r.pool); err != nil {
		r.fromPrimary.Add(1)
		if ctx.Err() == nil {
			r.heard(err)
		}
		return false
	}
	r.fromStandby.Add(1)
	if r.breaker.succeed(true) {
		r.log.Info("reads go to the standby")
	}
	return true
}

// timeFor returns how long a read may take: at most half of the time that its caller has, so that the primary can still be
// queried.
func timeFor(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(readTimeout, time.Until(deadline)/2)
	}
	return readTimeout
}

// begin waits for a slot, and reports whether it got one.
func (r *Reader) begin(ctx context.Context) bool {
	select {
	case r.slots <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(slotTimeout)
	defer timer.Stop()
	select {
	case r.slots <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// heard handles the error of a read.
func (r *Reader) heard(err error) {
	switch {
	case errors.Is(err, ErrNotAsked), errors.Is(err, ErrLacks), hasNot(err):
	case conflicts(err):
		if r.canceled.CompareAndSwap(false, true) {
			r.log.Warn("the standby has canceled a read, and the primary was queried instead. To make this rare, set hot_standby_feedback = on, or raise max_standby_streaming_delay, on the standby. This is logged once",
				"error", err.Error())
		}
	default:
		r.failed(err)
		select {
		case r.failures <- struct{}{}:
		default:
		}
	}
}

// failed sends reads to the primary until a probe succeeds.
func (r *Reader) failed(err error) {
	if r.breaker.fail(err) {
		r.log.Warn("the standby is not read for now, and all reads go to the primary", "reason", reason(err), "error", err.Error())
	}
	r.pool.Reset() // another host of the URL may work
}

// hasNot reports whether the standby may only lag: it does not have that table, function or column yet.
func hasNot(err error) bool {
	switch pg.Code(err) {
	case pg.CodeUndefinedTable, "42883", "42703":
		return true
	}
	return false
}

// conflicts reports whether the standby has canceled the read, because it had to remove rows that the read needs, or the read took too long.
// https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-CONFLICT
func conflicts(err error) bool {
	switch pg.Code(err) {
	case "40001", "40P01", pg.CodeQueryCanceled, pg.CodeLockNotAvailable:
		return true
	}
	return false
}

// Problem returns in a few words why the standby is not read now, or "" if it is. It names no host.
func (r *Reader) Problem() string {
	if err := r.breaker.problem(); err != nil {
		return reason(err)
	}
	return ""
}

func reason(err error) string {
	switch {
	case errors.Is(err, ErrHistory):
		return "its history is older than that of the primary"
	case errors.Is(err, errOtherCluster):
		return "it belongs to another PostgreSQL cluster than the primary"
	case errors.Is(err, errNoStandby):
		return "it is no standby: it was promoted, or the read URL leads to the primary"
	case errors.Is(err, errNotYet):
		return "it is not known yet whether it can be"
	case pg.Code(err) == "3F000": // no such schema
		return "it has no tables of Tidewire: it belongs to another PostgreSQL cluster, or has not received them yet"
	case pg.Code(err) == "3D000":
		return "it has no such database"
	case pg.Code(err) == "42501":
		return "the role of the read URL may not read there"
	case pg.RefusesLogin(err):
		return "it refuses the login"
	case errors.Is(err, context.DeadlineExceeded):
		return "it does not answer in time"
	case pg.Away(err):
		return "it cannot be reached"
	}
	return "a read has failed there"
}

// Stats counts where pages were read so far.
type Stats struct {
	Primary, Standby uint64
	// Used says that reads go to the standby now.
	Used bool
}

// Stats returns the current counts.
func (r *Reader) Stats() Stats {
	return Stats{Primary: r.fromPrimary.Load(), Standby: r.fromStandby.Load(), Used: r.breaker.problem() == nil}
}
