package pg

import (
	"context"
	"fmt"
	"time"
)

// LockClass is the first key of every advisory lock that orders the writers
// of one stream ("tide" in ASCII); the second is the stream's number.
const LockClass = 0x74696465

// endFrozenSQL ends only transactions that WriterSettings or OpenWriter has named, and
// of these only those that wait for bytes from their client while they hold the lock:
// one that works is slow, not frozen. A transaction of the caller may hold the lock as
// long as the caller wants. No timeout of PostgreSQL covers a client that froze in the
// middle of COPY: without this statement its transaction would hold the lock forever.
const endFrozenSQL = `
SELECT count(pg_terminate_backend(a.pid))
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid = $1 AND l.objid = $2 AND l.objsubid = 2
  AND a.pid <> pg_backend_pid()
  AND a.application_name = '` + WriterName + `'
  AND a.wait_event_type = 'Client'
  AND a.xact_start < clock_timestamp() - $3::interval`

// EndFrozen terminates a writer's PostgreSQL session if its transaction is older than
// bound, holds the lock of a stream, and waits for its client. It returns how many
// sessions it ended: 0 or 1.
func EndFrozen(ctx context.Context, db DB, lock int32, bound time.Duration) (int, error) {
	var ended int
	err := db.QueryRow(ctx, endFrozenSQL, uint32(LockClass), uint32(lock), bound).Scan(&ended)
	if err != nil {
		return 0, fmt.Errorf("end frozen lock holder: %w", err)
	}
	return ended, nil
}
