package eventstore

import (
	"fmt"

	"github.com/tidewire/tidewire/internal/pg"
)

const (
	beginSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitSQL = `COMMIT`

	ensureStoreSQL = `SELECT id, name, created_at FROM tidewire.ensure_event_store($1)`
	openStoreSQL   = `SELECT id, name, created_at FROM tidewire.event_store WHERE name = $1`
	dropStoreSQL   = `SELECT tidewire.drop_event_store($1)`
	listStoresSQL  = `SELECT name FROM tidewire.event_store ORDER BY name`

	// The calls of a store's functions: migrate/sql describes them. In checks and
	// pages the arrays of the probes come in the order of params.probes and
	// encodePage.
	appendFmt = `
SELECT head, calls, positions, types, again FROM tidewire.events_%d_append($1, $2, $3, $4, $5,
	$6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35)`
	settleFmt    = `SELECT head, calls, positions, types, again FROM tidewire.events_%d_settle($1, $2)`
	conflictsFmt = `
SELECT last_position, writer, number, calls, positions, types
FROM tidewire.events_%d_conflicts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	pageFmt = `
SELECT head, positions, page, searched
FROM tidewire.events_%d_page($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`
	taggedFmt = `SELECT head, positions, page FROM tidewire.events_%d_tagged($1, $2, $3, $4, $5, $6, $7, $8)`

	// idsFmt finds events by their ids, for the slow path of an append that may be a
	// repetition.
	idsFmt = `SELECT id, position FROM tidewire.events_%d WHERE id = ANY ($1)`

	// headFmt returns the last committed position. It does not use the sequence, which
	// moves before the commit.
	headFmt = `SELECT coalesce((SELECT position FROM tidewire.events_%d ORDER BY position DESC LIMIT 1), 0)`

	// endsFmt is the same with the base of the current history.
	endsFmt = headFmt + `, pg_sequence_last_value('tidewire.history_seq') >> 32 << 18`

	lostSinceFmt = `SELECT tidewire.events_%d_lost_since($1, $2)`

	// lostFromFmt is the same with the base of the history in which the position was assigned.
	lostFromFmt = `SELECT tidewire.events_%d_lost_since($1, $2), coalesce((SELECT max(base) FROM tidewire.bases() AS base WHERE base < $1), 0)`

	// byIndexSQL and typesFmt list types by a loose index scan: each step finds the next type in the index. The settings keep that
	// plan for every state of the statistics.
	byIndexSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)`
	typesFmt   = `
WITH RECURSIVE found (type) AS (
	(SELECT e.type FROM tidewire.events_%[1]d e WHERE e.type >= $1 AND e.type > $2 ORDER BY e.type LIMIT 1)
	UNION ALL
	SELECT (SELECT e.type FROM tidewire.events_%[1]d e WHERE e.type > f.type ORDER BY e.type LIMIT 1)
	FROM found f WHERE starts_with(f.type, $1)
) SELECT f.type FROM found f WHERE starts_with(f.type, $1) LIMIT $3`

	forgetFmt = `SELECT tidewire.events_%d_forget($1, $2, $3, $4)`

	// basisFmt returns whether a batch is part of the current history.
	basisFmt = `SELECT EXISTS (SELECT FROM tidewire.events_%d_batch WHERE position = $1 AND writer = $2 AND number = $3)`

	snapshotsSQL = `SELECT name, position, fingerprint, checksum, state FROM tidewire.event_snapshot WHERE store = $1 AND name = ANY ($2)`
	// saveSnapshotSQL never replaces a snapshot by one at a lower position, unless the
	// old one has another fingerprint, or could not be used: then $7 is its checksum.
	saveSnapshotSQL = `
INSERT INTO tidewire.event_snapshot AS s (store, name, position, fingerprint, checksum, state) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (store, name) DO UPDATE SET
	position = excluded.position, fingerprint = excluded.fingerprint, checksum = excluded.checksum, state = excluded.state, saved_at = now()
	WHERE s.position < excluded.position OR s.fingerprint <> excluded.fingerprint OR s.checksum = $7`

	// waitIfUnwrittenSQL makes the COMMIT of a transaction that has written nothing wait until the standbys have
	// what the transaction found. On a standby it fails like a statement that writes.
	waitIfUnwrittenSQL = `SELECT CASE WHEN pg_current_xact_id() IS NOT NULL THEN ` + pg.WaitSQL + ` END WHERE pg_current_xact_id_if_assigned() IS NULL`

	findRequestsSQL = `SELECT first, too_old FROM tidewire.find_requests($1, $2, $3)`
	foldRequestsSQL = `SELECT tidewire.fold_requests($1, $2)`
	oldRequestsSQL  = `SELECT tidewire.old_requests($1)`
	swapRequestsSQL = `SELECT tidewire.swap_requests($1, $2)`
	vacuumFmt       = `VACUUM tidewire.%s`

	statementTimeoutSQL = `SELECT set_config('statement_timeout', $1, true)`
)

// storeSQL is the SQL of one store.
type storeSQL struct {
	append, settle, conflicts, page, tagged, ids, head, ends, types, forget, basis, lostSince, lostFrom string

	stmtAppend, stmtSettle string // names of the statements that sessions prepare
}

func newStoreSQL(id int32) storeSQL {
	of := func(format string) string { return fmt.Sprintf(format, id) }
	return storeSQL{
		append: of(appendFmt), settle: of(settleFmt), conflicts: of(conflictsFmt), page: of(pageFmt), tagged: of(taggedFmt),
		ids: of(idsFmt), head: of(headFmt), ends: of(endsFmt), types: of(typesFmt), forget: of(forgetFmt), basis: of(basisFmt), lostSince: of(lostSinceFmt), lostFrom: of(lostFromFmt),
		stmtAppend: of("tidewire_events_%d_append"), stmtSettle: of("tidewire_events_%d_settle"),
	}
}
