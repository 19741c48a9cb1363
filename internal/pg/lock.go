package pg

import (
	"context"
	"fmt"
	"time"
)

// LockClass is the first key of every advisory lock that orders the writers
// of one stream ("tide" in ASCII); the second is the stream's number.
const LockClass = 0x74696465

// Only transactions that WriterSettings or OpenWriter has named are ended, and of
// them only those that wait for bytes from their client while they hold the
// lock: one that works is slow, not stuck. A transaction of the caller that holds
// the lock may wait as long as the caller wants. A client frozen in the middle of COPY waits for ever otherwise,
// for no timeout of PostgreSQL covers it.
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

// EndFrozen terminates the session of a writer that has held the lock of a stream
// for longer than bound while it waits for its own client, and returns how many
// it ended: 0 or 1.
func EndFrozen(ctx context.Context, db DB, lock int32, bound time.Duration) (int, error) {
	var ended int
	err := db.QueryRow(ctx, endFrozenSQL, uint32(LockClass), uint32(lock), bound).Scan(&ended)
	if err != nil {
		return 0, fmt.Errorf("end frozen lock holder: %w", err)
	}
	return ended, nil
}
