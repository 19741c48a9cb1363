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
	// URL or key=value string of the standby, as libpq takes it. Of several hosts the first that answers is used, and the
	// first standby with target_session_attrs=standby. With pool_max_conns=N there are at most N connections; else at most
	// 4, or as many as there are processors.
	URL string
	// Log is told when reads begin to go to the standby, and when they no longer do. Defaults to none.
	Log *slog.Logger
}

const (
	// connectTimeout bounds an attempt to connect to one host, readTimeout a read with the wait for a connection.
	connectTimeout = time.Second
	readTimeout    = 2 * time.Second
	// slotTimeout bounds the wait for a connection alone: where all are in use, the primary is the quicker one.
	slotTimeout = 250 * time.Millisecond
	// appName is the application_name of the connections, unless the URL has another.
	appName = pg.AppName + " reader"
)

var (
	// ErrNotAsked is what a read returns that has not asked the standby, because only the primary can answer.
	ErrNotAsked = errors.New("standby: not asked")
	// ErrLacks is what a read returns for which the standby has not got far enough, though nothing is wrong with it.
	ErrLacks = errors.New("standby: it has not got so far")
	// ErrHistory is what a read returns that has found an older history than that of the primary.
	ErrHistory = errors.New("standby: its history is older than that of the primary: it has not got so far, or follows a former primary")

	errURL          = errors.New("standby: malformed URL")
	errOtherCluster = errors.New("standby: the server belongs to another PostgreSQL cluster than the primary")
	errNoStandby    = errors.New("standby: the server is no standby: it was promoted, or the read URL leads to the primary")
)

// Reader reads from a standby of the database that a pool of the primary leads to. A nil Reader is none. It must be closed.
// Safe for concurrent use.
type Reader struct {
	primary, pool *pgxpool.Pool
	log           *slog.Logger
	slots         chan struct{} // one for each read under way
	system        atomic.Int64  // identifier of the primary's cluster, or 0 while it is unknown

	breaker  *breaker
	failures chan struct{} // one slot: a read has failed
	canceled atomic.Bool   // the log has told that the standby canceled a read
	end      context.CancelFunc
	running  sync.WaitGroup

	fromPrimary, fromStandby atomic.Uint64
}

// Open returns a Reader of a standby of the database that the pool leads to. It looks for a second at most whether the standby can be
// read, and then every few seconds. If it cannot, that is no error: Problem says why. The error is that of a malformed URL.
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
	if r.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), pc); err != nil {
		return nil, fmt.Errorf("%w: %v", errURL, err)
	}
	r.probe(ctx)
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	r.end = end
	r.running.Go(func() { r.watch(life) })
	return r, nil
}

// Close closes the connections, when the reads under way have ended. All reads go to the primary from then on.
func (r *Reader) Close() {
	r.breaker.close()
	r.end()
	r.running.Wait()
	r.pool.Close()
}

// Read calls read with a pool of connections to the standby, unless a read failed there a moment ago. It reports
// whether read returned nil, so that its result counts; else the primary has to be asked. The read has two seconds, or half of the time until
// the deadline of ctx. After
// ErrNotAsked and ErrLacks, and where the standby has canceled the read, the next ones still go there.
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

// timeFor is how long a read may take: at most half of the time that its caller has, so that the primary can still be asked.
func timeFor(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(readTimeout, time.Until(deadline)/2)
	}
	return readTimeout
}

// begin waits for a slot, and reports whether there is one.
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

// heard takes in why a read has failed.
func (r *Reader) heard(err error) {
	switch {
	case errors.Is(err, ErrNotAsked), errors.Is(err, ErrLacks), hasNot(err):
	case conflicts(err):
		if r.canceled.CompareAndSwap(false, true) {
			r.log.Warn("the standby has canceled a read, and the primary was asked. If that is to be rare, set hot_standby_feedback = on, or raise max_standby_streaming_delay, at the standby. This is told once",
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

// failed has reads go to the primary until a probe succeeds.
func (r *Reader) failed(err error) {
	if r.breaker.fail(err) {
		r.log.Warn("the standby is not read for now, and all reads go to the primary", "reason", reason(err), "error", err.Error())
	}
	r.pool.Reset() // another host of the URL may do
}

// hasNot reports whether the standby may just not have got so far: it has no such table, function or column yet.
func hasNot(err error) bool {
	switch pg.Code(err) {
	case pg.CodeUndefinedTable, "42883", "42703":
		return true
	}
	return false
}

// conflicts reports whether the standby has canceled the read, because it had to remove what it reads, or it took long.
// https://www.postgresql.org/docs/current/hot-standby.html#HOT-STANDBY-CONFLICT
func conflicts(err error) bool {
	switch pg.Code(err) {
	case "40001", "40P01", pg.CodeQueryCanceled, pg.CodeLockNotAvailable:
		return true
	}
	return false
}

// Problem says in a few words why the standby is not read now, or nothing if it is. It names no host.
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

// Stats says where pages were read so far.
type Stats struct {
	Primary, Standby uint64
	// Used says that reads go to the standby now.
	Used bool
}

// Stats returns them as they are now.
func (r *Reader) Stats() Stats {
	return Stats{Primary: r.fromPrimary.Load(), Standby: r.fromStandby.Load(), Used: r.breaker.problem() == nil}
}
