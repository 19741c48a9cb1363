package stream

import (
	"fmt"
	"strings"
)

// LockMessages is the number of the messages table's lock within pg.LockClass.
const LockMessages = 1

const (
	beginSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitSQL = `COMMIT`

	// beginBatchSQL waits for the lock; what it reads and checks it reads after
	// the lock was taken, since each statement of a plpgsql function takes a
	// snapshot of its own under READ COMMITTED.
	beginBatchSQL = `SELECT tidewire.begin_batch(1, 'public.messages_position_seq', $1, $2, $3, $4)`

	insertArraySQL = `
INSERT INTO public.messages (position, payload)
SELECT $1::bigint + n - 1, p FROM unnest($2::bytea[]) WITH ORDINALITY AS t (p, n)`

	headSQL          = `SELECT coalesce(pg_sequence_last_value('public.messages_position_seq'), 0)`
	firstPositionSQL = `SELECT first_position FROM tidewire.batch WHERE writer = $1 AND number = $2`

	reserveSQL   = `SELECT tidewire.reserve_positions(1, 'public.messages_position_seq', $1)`
	insertOneSQL = `INSERT INTO public.messages (position, payload) VALUES ($1, $2)`

	// A row at a reserved position is the reserver's own. The bound keeps BRIN
	// to the one range that can hold it.
	storedSQL = `SELECT count(*) FROM public.messages WHERE position >= $1 AND position < $1 + 1`

	// A backend is named by its pid and start: after a restart of PostgreSQL
	// the pid alone may belong to somebody else.
	identifySQL = `SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()`
	endOwnSQL   = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2`

	recreateSQL = `
DROP TABLE IF EXISTS public.messages CASCADE;
SELECT tidewire.create_messages()`

	// Ranges of 128 pages, as the index was made. The last, unfinished range is
	// left: its summary would have to be widened by every insert.
	summariseSQL = `
SELECT count(brin_summarize_range('public.messages_position_idx', block)), max(block) + 128
FROM generate_series($1::bigint, pg_relation_size('public.messages') / current_setting('block_size')::bigint - 128, 128) AS block`

	forgetSQL         = `DELETE FROM tidewire.batch WHERE writer = $1 AND number < $2`
	forgetDeadSQL     = `DELETE FROM tidewire.batch WHERE created_at < now() - interval '1 day'`
	lockTimeoutSQLFmt = `SET lock_timeout = %d`
)

// copySQL is one simple query: lock, COPY and commit share a round trip.
func copySQL(head int64, size int, writer, number int64) string {
	return fmt.Sprintf(`%s; SELECT tidewire.begin_batch(1, 'public.messages_position_seq', %d, %d, %d, %d); `+
		`COPY public.messages (position, payload) FROM STDIN (FORMAT binary); %s`,
		beginSQL, head, size, writer, number, commitSQL)
}

// insertRowsSQL is the multi-row INSERT as everybody writes it: one parameter
// a row, behind the first position.
func insertRowsSQL(n int) string {
	var b strings.Builder
	b.Grow(64 + 24*n)
	b.WriteString(`INSERT INTO public.messages (position, payload) VALUES `)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "($1::bigint+%d,$%d)", i, i+2)
	}
	return b.String()
}
