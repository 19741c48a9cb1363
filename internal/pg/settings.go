package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// WriterName is the application_name of every transaction in which Tidewire
// holds a lock of LockClass, whatever pool the caller gave. By it, and by nothing
// else, EndFrozen knows a session that it may end: a transaction of the caller
// keeps the name that the caller chose.
const WriterName = AppName + " writer"

// A database, a role or a pool may have defaults under which a writer does not
// work: time-outs that end it while it waits for a lock, a search_path that puts
// functions of others before PostgreSQL's, a way to read literals that is not ours.
// Only what differs is set: the rest costs a look each. A path or a commit that does
// no harm stays as it is.
//
// client_encoding is the pool's. Readers outside of these transactions use it too,
// and PostgreSQL converts a simple query before a setting in it counts: what one
// encoding has written, another does not find.
//
// synchronous_commit is never weakened. Off is raised to local: what was
// acknowledged survives a crash of PostgreSQL.
const (
	settingsFmt = `SELECT set_config('application_name', '` + WriterName + `', true), set_config('lock_timeout', '%d', true)` + settingsThatDiffer

	settingsThatDiffer = `,
CASE WHEN current_setting('statement_timeout') <> '0' THEN set_config('statement_timeout', '0', true) END,
CASE WHEN current_setting('transaction_timeout', true) <> '0' THEN set_config('transaction_timeout', '0', true) END,
CASE WHEN current_setting('idle_in_transaction_session_timeout') <> '0' THEN set_config('idle_in_transaction_session_timeout', '1min', true) END,
CASE WHEN position('pg_catalog' IN current_setting('search_path')) > 1 THEN set_config('search_path', 'pg_catalog, pg_temp', true) END,
CASE WHEN current_setting('standard_conforming_strings') <> 'on' THEN set_config('standard_conforming_strings', 'on', true) END,
CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'local', true) END`

	// openWriterSQL sets what is harmless on a connection that ends with its writer,
	// and is its own with a pooler as well or is set by every writer alike; and
	// asks whether its transactions need more.
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
// lock: it names the transaction as Tidewire's, bounds its waits for locks, and
// sets what the writing depends on. It returns one row, of no interest. The
// settings end with the transaction, so that the connection may go back to the
// caller's pool, and a pooler may lend the session to others.
//
//	batch.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED`)
//	batch.Queue(pg.WriterSettings(10 * time.Second))
//
// In a pgx.Tx it is the first Exec. A shorter bound, or a statement_timeout that
// is wanted, is set after it. The text is the same for the same bound, so that
// the connection prepares it once.
//
// A writer that keeps a connection of its own, and closes it in the end, calls
// OpenWriter instead, and so saves the statement where nothing differs.
func WriterSettings(lockTimeout time.Duration) string {
	return fmt.Sprintf(settingsFmt, milliseconds(lockTimeout))
}

// OpenWriter prepares a connection that its writer keeps, and closes in the end:
// it must not go back to a pool. It returns the statement that has to come after
// each BEGIN, as with WriterSettings, or "" where the defaults of the database
// and of its role need no change.
func OpenWriter(ctx context.Context, conn *pgx.Conn, lockTimeout time.Duration) (perTransaction string, err error) {
	var differs bool
	err = conn.QueryRow(ctx, openWriterSQL, fmt.Sprint(milliseconds(lockTimeout))).Scan(nil, nil, &differs)
	if err != nil || !differs {
		return "", err
	}
	return WriterSettings(lockTimeout), nil
}

// milliseconds of a bound: 0 would be none.
func milliseconds(bound time.Duration) int64 { return max(1, bound.Milliseconds()) }
