package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// AppName is the application_name of the connections that Open makes, unless the
// URL has another.
const AppName = "tidewire"

// MinVersion is the oldest major version of PostgreSQL that works.
const MinVersion = 14

// Errors of Open.
var (
	ErrURL         = errors.New("pg: malformed database URL")
	ErrUnreachable = errors.New("pg: database unreachable")
	ErrLogin       = errors.New("pg: PostgreSQL refuses the login")
	ErrTooOld      = errors.New("pg: PostgreSQL too old")
)

// DB is a pool, a connection or the caller's own transaction.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// PoolConfig says how Open connects.
type PoolConfig struct {
	// URL or key=value string, as libpq takes it.
	URL string
	// MaxConns bounds the pool. Defaults to 16.
	MaxConns int
	// ConnectTimeout bounds one attempt to connect. Defaults to 5 s. With several
	// hosts it is at most 2 s for each.
	ConnectTimeout time.Duration
	// Log receives messages about servers that are rejected or do not answer. May be nil.
	Log *slog.Logger
}

// Open connects, checks the version of the server and returns the pool. The
// error is ErrURL, ErrUnreachable, ErrLogin or ErrTooOld. With several hosts, the
// pool does not use a host that has stopped answering while another one answers, and
// no former primary: see hosts.
func Open(ctx context.Context, cfg PoolConfig) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrURL, err)
	}
	pc.MaxConns = 16
	if cfg.MaxConns > 0 {
		pc.MaxConns = int32(cfg.MaxConns)
	}
	pc.ConnConfig.ConnectTimeout = 5 * time.Second
	if cfg.ConnectTimeout > 0 {
		pc.ConnConfig.ConnectTimeout = cfg.ConnectTimeout
	}
	if pc.ConnConfig.RuntimeParams["application_name"] == "" {
		pc.ConnConfig.RuntimeParams["application_name"] = AppName
	}
	watchNotices(pc.ConnConfig)
	h := hostsOf(pc.ConnConfig)
	h.logTo(cfg.Log)
	h.guard(pc.ConnConfig)
	h.askFirst(ctx)
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrURL, err)
	}
	if err := checkVersion(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func checkVersion(ctx context.Context, pool *pgxpool.Pool) error {
	var version int
	err := pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`, pgx.QueryExecModeExec).Scan(&version)
	if RefusesLogin(err) {
		return &openError{ErrLogin, err}
	}
	if err != nil {
		return &openError{ErrUnreachable, err}
	}
	if version/10000 < MinVersion {
		return fmt.Errorf("%w: this is PostgreSQL %d, Tidewire needs %d or newer", ErrTooOld, version/10000, MinVersion)
	}
	return nil
}

// openError is why Open has failed, in one line.
type openError struct{ kind, err error }

func (e *openError) Error() string   { return fmt.Sprintf("%v: %s", e.kind, oneLine(e.err)) }
func (e *openError) Unwrap() []error { return []error{e.kind, e.err} }

// RefusesLogin reports whether the server answers and rejects the user, the password or
// the database.
func RefusesLogin(err error) bool {
	code := Code(err)
	return strings.HasPrefix(code, "28") || code == "3D000" || code == "42501"
}

// oneLine joins the lines of an error, each once: pgconn writes one for each address.
func oneLine(err error) string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}
