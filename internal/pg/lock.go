package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// LockClass is the first key of every advisory lock that orders the writers
// of one stream ("tide" in ASCII); the second is the stream's number.
const LockClass = 0x74696465

// freeLockSQL ends only transactions that WriterSettings or OpenWriter has named, and
// of these only those that wait for bytes from their client while they hold the lock:
// one that works is slow, not frozen. A transaction of the caller may hold the lock as
// long as the caller wants. No timeout of PostgreSQL covers a client that froze in the
// middle of COPY: without this statement its transaction would hold the lock forever.
const freeLockSQL = `
SELECT coalesce(h.pid, 0), coalesce(h.usename::text, ''), coalesce(h.application_name, ''), h.writer,
	CASE WHEN h.frozen THEN pg_terminate_backend(h.pid) ELSE false END
FROM (
	SELECT l.pid, a.usename, a.application_name,
		coalesce(a.application_name = '` + WriterName + `' AND a.usename = current_user, false) AS writer,
		a.application_name = '` + WriterName + `' AND a.wait_event_type = 'Client' AND a.xact_start < clock_timestamp() - $3::interval AS frozen
	FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a USING (pid)
	WHERE l.locktype = 'advisory' AND l.granted
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND l.classid = $1 AND l.objid = $2 AND l.objsubid = 2
		AND l.pid IS DISTINCT FROM pg_backend_pid()
	OFFSET 0 -- the sessions are chosen before one of them is ended
) AS h`

// HeldError says which session holds a lock of LockClass without being a writer of Tidewire: every role that may connect can
// take such a lock, and a transaction of the application holds one if it has set the constraints of an outbox immediate.
type HeldError struct {
	PID  int // 0: a prepared transaction
	Role string
	App  string // its application_name
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return "a prepared transaction holds the lock: commit or roll it back, see pg_prepared_xacts"
	}
	return fmt.Sprintf("session %d of the role %q, application_name %q, holds the lock; SELECT pg_terminate_backend(%d) ends it", e.PID, e.Role, e.App, e.PID)
}

// Still reports whether e, which may be nil, names the same session as before, which an earlier look has found. Sessions that
// hold the lock in turn are no reason to give up.
func (e *HeldError) Still(before *HeldError) bool {
	return e != nil && before != nil && e.PID == before.PID
}

// FreeLock terminates a writer's PostgreSQL session if its transaction is older than
// bound, holds the lock of a stream, and waits for its client. It reports whether it ended
// one. If a session that is no writer of this role holds the lock, the error is a *HeldError.
func FreeLock(ctx context.Context, db DB, lock int32, bound time.Duration) (ended bool, err error) {
	var held HeldError
	var writer bool
	err = db.QueryRow(ctx, freeLockSQL, uint32(LockClass), uint32(lock), bound).Scan(&held.PID, &held.Role, &held.App, &writer, &ended)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for the holder of the lock: %w", err)
	case ended || writer:
		return ended, nil
	}
	return false, &held
}
