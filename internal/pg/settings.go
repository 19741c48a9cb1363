package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// WriterName is the application_name of every transaction in which Tidewire
// holds a lock of LockClass, on any pool. FreeLock recognises only by this name the
// sessions that it may end: a transaction of the caller keeps the caller's name.
const WriterName = AppName + " writer"

// A database, a role or a pool may have defaults under which a writer does not
// work: time-outs that end it while it waits for a lock, a search_path with functions
// that shadow PostgreSQL's, or standard_conforming_strings off. The statement changes
// only settings with a harmful value; the others cost one comparison each.
//
// client_encoding stays as the pool has it. Readers outside of these transactions use
// the pool's encoding too, and PostgreSQL converts a simple query before a setting in it
// takes effect. Text that was written in one encoding is not found in another.
//
// synchronous_commit is never weakened. Off is raised to local, so that acknowledged
// writes survive a crash of PostgreSQL.
const (
	settingsFmt = `SELECT set_config('application_name', '` + WriterName + `', true), set_config('lock_timeout', '%d', true)` + settingsThatDiffer

	settingsThatDiffer = `,
CASE WHEN current_setting('statement_timeout') <> '0' THEN set_config('statement_timeout', '0', true) END,
CASE WHEN current_setting('transaction_timeout', true) <> '0' THEN set_config('transaction_timeout', '0', true) END,
CASE WHEN current_setting('idle_in_transaction_session_timeout') <> '0' THEN set_config('idle_in_transaction_session_timeout', '1min', true) END,
CASE WHEN position('pg_catalog' IN current_setting('search_path')) > 1 THEN set_config('search_path', 'pg_catalog, pg_temp', true) END,
CASE WHEN current_setting('standard_conforming_strings') <> 'on' THEN set_config('standard_conforming_strings', 'on', true) END,
CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'local', true) END`

	// openWriterSQL sets the settings that may last for a connection that is closed with
	// its writer: they do no harm even if a pooler shares the connection, because every
	// writer sets the same values. It returns whether its transactions need more settings.
	openWriterSQL = `SELECT set_config('application_name', '` + WriterName + `', false), set_config('lock_timeout', $1, false),
	current_setting('statement_timeout') <> '0'
	OR coalesce(current_setting('transaction_timeout', true), '0') <> '0'
	OR current_setting('idle_in_transaction_session_timeout') <> '0'
	OR position('pg_catalog' IN current_setting('search_path')) > 1
	OR current_setting('standard_conforming_strings') <> 'on'
	OR current_setting('synchronous_commit') = 'off'`
)

// WriterSettings returns the statement that comes directly after the BEGIN of
// every transaction that writes, in the same round trip, and before its first
// lock. It marks the transaction as Tidewire's (WriterName), bounds its waits for locks,
// and sets what writers depend on. Callers ignore its one result row. The settings end
// with the transaction, so that the connection may go back to the caller's pool, and a
// pooler may lend the connection to other clients.
//
//	batch.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED`)
//	batch.Queue(pg.WriterSettings(10 * time.Second))
//
// In a pgx.Tx it is the first Exec. Set a shorter bound, or a statement_timeout, after
// it. The text is the same for the same bound, so that the connection prepares it once.
//
// A writer that keeps its own connection, and closes it in the end, calls OpenWriter
// instead: if no default is harmful, its transactions do not need this statement.
func WriterSettings(lockTimeout time.Duration) string {
	return fmt.Sprintf(settingsFmt, milliseconds(lockTimeout))
}

// OpenWriter prepares a connection that its writer keeps, and closes in the end:
// it must not go back to a pool. It returns the statement that has to come after
// each BEGIN, as with WriterSettings, or "" if no default of the database or the role
// is harmful.
func OpenWriter(ctx context.Context, conn *pgx.Conn, lockTimeout time.Duration) (perTransaction string, err error) {
	var differs bool
	err = conn.QueryRow(ctx, openWriterSQL, fmt.Sprint(milliseconds(lockTimeout))).Scan(nil, nil, &differs)
	if err != nil || !differs {
		return "", err
	}
	return WriterSettings(lockTimeout), nil
}

// milliseconds converts a bound. It returns at least 1, because 0 means no bound.
func milliseconds(bound time.Duration) int64 { return max(1, bound.Milliseconds()) }
