package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// limits are the values above which something becomes a finding. Tests use smaller ones.
type limits struct {
	idle        time.Duration // of a transaction whose client does nothing
	transaction time.Duration // of a transaction that works
	prepared    time.Duration // of a prepared transaction
	lockWait    time.Duration
	xids        int64 // transactions since a snapshot was taken
	deadRows    int64 // of a table
	lagBytes    int64 // of a standby
	lag         time.Duration
	checkpoints int64 // requested, before checkpoint_timeout
}

// The default limits. The durations are common thresholds of operators' alerts. A
// Tidewire that stores some thousand messages a second makes a million transactions in
// minutes, and each leaves dead rows that an old snapshot keeps.
var defaultLimits = limits{
	// A transaction of Tidewire takes milliseconds, and its writers have
	// idle_in_transaction_session_timeout = 1min (internal/pg/settings.go).
	idle: time.Minute,
	// pg_dump and reports take minutes; longer transactions cause bloat.
	transaction: 5 * time.Minute,
	// Between the two phases of a commit there are only round trips.
	prepared: time.Minute,
	// A writer stops waiting for a lock after 10 s (internal/pg/lock_wait.go).
	lockWait: 5 * time.Second,
	xids:     1_000_000,
	deadRows: 100_000,
	// 16 segments of the write-ahead log. Patroni's maximum_lag_on_failover is 1 MB, which any
	// burst exceeds for a moment.
	lagBytes: 256 << 20,
	lag:      time.Minute,
	// Base backups and manual CHECKPOINTs count too.
	checkpoints: 10,
}

// doctor holds the connections, and the facts that the checks share.
type doctor struct {
	pool *pgxpool.Pool
	cfg  Config
	facts

	pooled  bool  // of ProbeSessions
	pooling error // the same
}

// facts are properties of the server that are read once.
type facts struct {
	number            int // server_version_num
	version           string
	database          string
	role, sessionRole string
	superuser         bool
	allStats          bool // may read the statistics of all roles
	inRecovery        bool
	settings          map[string]setting
}

// setting is a row of pg_settings.
type setting struct {
	value   string // default of a new connection
	number  int64  // value as a number, or 0
	source  string
	pending bool // a change waits for a restart
}

func (f *facts) major() int { return f.number / 10000 }

func (f *facts) grantMonitor() string { return "GRANT pg_monitor TO " + quoted(f.role) + ";" }

// appName is the application_name of the doctor's connections.
const appName = pg.AppName + " doctor"

// open makes a pool whose statements work through any pooler.
func open(ctx context.Context, pc *pgxpool.Config, cfg Config) (*doctor, error) {
	pc = pc.Copy()
	pc.ConnConfig.RuntimeParams["application_name"] = appName
	pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pc.MaxConns, pc.MinConns, pc.MinIdleConns = 3, 0, 0
	own, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, err
	}
	d := &doctor{pool: own, cfg: cfg}
	// Before any check: a pooler may have a single session, which the transaction of a check would hold.
	asking, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	d.pooled, d.pooling = ProbeSessions(asking, own)
	return d, nil
}

// session is the transaction of one check.
type session struct {
	pgx.Tx
	*doctor
}

// within runs look in a read-only transaction, bounded by the timeout of a check, and rolls it back. So look may handle the
// error of a statement, and within still succeeds.
func (d *doctor) within(ctx context.Context, look func(context.Context, *session) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer rollback(tx)
	if d.settings != nil { // lookAround has to read the unchanged settings
		// PostgreSQL's time-out is a little shorter than the client's, so that the connection stays usable.
		_, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', '1s', true), set_config('search_path', 'pg_catalog', true)`,
			fmt.Sprint(max(1, (d.cfg.Timeout*9/10).Milliseconds())))
		if err != nil {
			return err
		}
	}
	return look(ctx, &session{tx, d})
}

// rollback ends a transaction that has changed nothing, even if its context has ended. If the server does not answer
// within a second, the connection is closed.
func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	tx.Rollback(ctx)
}

const factsSQL = `
SELECT current_setting('server_version_num')::int, split_part(current_setting('server_version'), ' ', 1), current_database()::text, current_user::text, session_user::text,
	(SELECT rolsuper FROM pg_roles WHERE rolname = current_user), pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), pg_is_in_recovery()`

// lookAround reads the facts.
func (d *doctor) lookAround(ctx context.Context, s *session) error {
	err := s.QueryRow(ctx, factsSQL).Scan(&d.number, &d.version, &d.database, &d.role, &d.sessionRole, &d.superuser, &d.allStats, &d.inRecovery)
	if err != nil {
		return fmt.Errorf("look at the server: %w", err)
	}
	rows, err := s.Query(ctx, `SELECT name, coalesce(reset_val, ''), source, pending_restart FROM pg_settings`)
	if err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	settings := make(map[string]setting)
	var name string
	var v setting
	_, err = pgx.ForEachRow(rows, []any{&name, &v.value, &v.source, &v.pending}, func() error {
		v.number = 0
		fmt.Sscan(v.value, &v.number) // most are not numbers
		settings[name] = v
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	d.settings = settings
	return nil
}

// each runs a query and calls do for each row.
func (s *session) each(ctx context.Context, sql string, into []any, do func()) error {
	rows, err := s.Query(ctx, sql)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, func() error { do(); return nil })
	return err
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// literal returns a string as an SQL literal, for standard_conforming_strings = on.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func codeOf(err error) string { return pg.Code(err) }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// size formats a number of bytes.
func size(bytes int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	n, unit := float64(bytes), 0
	for n >= 1024 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return fmt.Sprintf("%.1f %s", n, units[unit])
}

// span formats a number of seconds.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// plural formats a number with its unit.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
