package ingestlog

import (
	"fmt"
	"strings"
)

const (
	beginSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitSQL = `COMMIT`

	// SQL of an Inserter. %s is the table of messages, or its sequence.
	reserveFmt   = `SELECT tidewire.reserve_positions(1, '%s', $1)`
	insertOneFmt = `INSERT INTO %s (position, payload) VALUES ($1, $2)`

	// A row at a reserved position belongs to the Inserter that reserved it.
	// The upper bound limits the BRIN scan to the one range that can hold it.
	storedFmt = `SELECT count(*) FROM %s WHERE position >= $1 AND position < $1 + 1`

	// A backend is identified by its pid and start time: after a restart of
	// PostgreSQL another backend may have the same pid.
	identifySQL = `SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()`
	endOwnSQL   = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2`

	ensureIngestSQL = `SELECT tidewire.ensure_ingest_table($1, $2)`
	dropIngestFmt   = `DROP TABLE %s CASCADE`

	// Ranges of 128 pages, as the index was created. The last, unfinished range
	// is left out: every insert would have to widen its summary.
	summariseFmt = `
SELECT count(brin_summarize_range('%s', block)), max(block) + 128
FROM generate_series($1::bigint, pg_relation_size('%s') / current_setting('block_size')::bigint - 128, 128) AS block`
)

// insertRowsSQL is the usual multi-row INSERT: the first position, and then one
// parameter per row.
func insertRowsSQL(table string, n int) string {
	var b strings.Builder
	b.Grow(64 + 24*n)
	fmt.Fprintf(&b, `INSERT INTO %s (position, payload) VALUES `, table)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "($1::bigint+%d,$%d)", i, i+2)
	}
	return b.String()
}
