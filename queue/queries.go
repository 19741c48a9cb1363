package queue

const (
	// beginSQL sets the isolation level: the database may have another default,
	// and the functions reject any other level.
	beginSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitSQL = `COMMIT`

	queueColumns = `q.id, max_attempts, retry_min, retry_max, (SELECT name FROM tidewire.queue_family AS f WHERE f.id = q.family)`

	ensureQueueSQL = `SELECT ` + queueColumns + ` FROM tidewire.ensure_queue($1, $2, $3, $4) AS q`
	lookupQueueSQL = `SELECT ` + queueColumns + ` FROM tidewire.queue AS q WHERE id = $1`
	listQueuesSQL  = `
SELECT s.name FROM tidewire.queue AS q JOIN tidewire.stream AS s USING (id) WHERE q.family IS NULL
UNION ALL SELECT name FROM tidewire.queue_family WHERE NOT dropping
ORDER BY 1`
	ownsStreamSQL   = `SELECT EXISTS (SELECT FROM tidewire.queue AS q JOIN tidewire.stream AS s USING (id) WHERE s.name = $1)`
	ownedStreamsSQL = `SELECT s.name FROM tidewire.queue AS q JOIN tidewire.stream AS s USING (id) WHERE s.name = ANY($1)`
	// dropQueueSQL locks the row of the stream, as drop_queue does first, and drops the queue if
	// it belongs to the family, or to none.
	dropQueueSQL = `
WITH held AS MATERIALIZED (
	SELECT q.family IS NOT DISTINCT FROM $2 AS meant
	FROM tidewire.stream AS s JOIN tidewire.queue AS q USING (id) WHERE s.name = $1 FOR UPDATE OF s
) SELECT tidewire.drop_queue($1) FROM held WHERE meant`

	ensureFamilySQL = `SELECT tidewire.ensure_queue_family($1, $2, $3, $4, $5, $6, $7)`
	lookupFamilySQL = `
SELECT s.name, s.id, max_attempts, retry_min, retry_max, f.priorities, f.partitions
FROM tidewire.queue_family AS f JOIN tidewire.queue AS q ON q.family = f.id JOIN tidewire.stream AS s ON s.id = q.id
WHERE f.name = $1 AND NOT f.dropping ORDER BY q.member`
	beginDropSQL  = `UPDATE tidewire.queue_family SET dropping = true WHERE name = $1 RETURNING id`
	droppingSQL   = `SELECT id FROM tidewire.queue_family WHERE name = $1 AND dropping`
	lastMemberSQL = `SELECT s.name FROM tidewire.queue AS q JOIN tidewire.stream AS s USING (id) WHERE q.family = $1 ORDER BY q.member DESC LIMIT 1`
	endDropSQL    = `DELETE FROM tidewire.queue_family WHERE id = $1 RETURNING id`
	lookSQL       = `SELECT queue, last, due, head, at, max_attempts, retry_min, retry_max FROM tidewire.look_at_queues($1, $2)`

	// alterSQL locks the rows in the order of their ids, as every caller does.
	alterSQL = `
WITH held AS MATERIALIZED (SELECT id FROM tidewire.queue WHERE id = ANY ($1::int[]) ORDER BY id FOR UPDATE)
UPDATE tidewire.queue AS q SET
	max_attempts = coalesce(nullif($2::int, 0), max_attempts),
	retry_min = coalesce(nullif($3::interval, interval '0'), retry_min),
	retry_max = greatest(coalesce(nullif($4::interval, interval '0'), retry_max), coalesce(nullif($3::interval, interval '0'), retry_min))
FROM held WHERE q.id = held.id
RETURNING max_attempts, retry_min, retry_max`

	existingSQL = `SELECT id FROM tidewire.queue WHERE id = ANY($1)`

	writeSQL = `
SELECT sequence, kind, token, lo, hi, until, body
FROM tidewire.queue_write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`

	// idleTimeoutSQL ends a rotation whose client froze with the lock.
	idleTimeoutSQL = `SET LOCAL idle_in_transaction_session_timeout = '5s'`
	rotateSQL      = `SELECT tidewire.rotate_queue($1, $2, $3, $4)`

	// vacuumFmt takes whether to truncate the table. It skips locked tables:
	// autovacuum may be running.
	vacuumFmt      = `VACUUM (SKIP_LOCKED, TRUNCATE %t) tidewire.queue_journal`
	journalSizeSQL = `SELECT pg_relation_size('tidewire.queue_journal')`

	sideStatsSQL = `
SELECT count(*) FILTER (WHERE dead), count(*) FILTER (WHERE NOT dead AND token IS NULL),
	count(*) FILTER (WHERE token IS NOT NULL), min(position) FILTER (WHERE NOT dead)
FROM tidewire.queue_side WHERE queue = $1`
	deadSQL = `
SELECT position, attempts, reason, due_at FROM tidewire.queue_side
WHERE queue = $1 AND dead AND position > $2 ORDER BY position LIMIT $3`
	redriveSQL = `
UPDATE tidewire.queue_side SET dead = false, suspect = false, attempts = 0, unbegun = 0, due_at = clock_timestamp(), reason = ''
WHERE queue = $1 AND dead AND position = ANY ($2::bigint[])`
	redriveAllSQL = `
UPDATE tidewire.queue_side SET dead = false, suspect = false, attempts = 0, unbegun = 0, due_at = clock_timestamp(), reason = ''
WHERE queue = $1 AND dead`
	// holdFoundSQL locks dead letters that were found, in the same order in every session. A later death of the same
	// message has another time.
	holdFoundSQL = `
WITH held AS MATERIALIZED (
	SELECT d.position FROM unnest($2::bigint[], $3::timestamptz[]) AS f (position, due_at)
	JOIN tidewire.queue_side AS d ON d.queue = $1 AND d.position = f.position AND d.due_at = f.due_at
	WHERE d.dead ORDER BY d.position FOR UPDATE OF d
)`
	redriveFoundSQL = holdFoundSQL + `
UPDATE tidewire.queue_side AS s SET dead = false, suspect = false, attempts = 0, unbegun = 0, due_at = clock_timestamp(), reason = ''
FROM held WHERE s.queue = $1 AND s.position = held.position`
	purgeFoundSQL = holdFoundSQL + `
DELETE FROM tidewire.queue_side AS s USING held WHERE s.queue = $1 AND s.position = held.position`
	purgePositionsSQL = `DELETE FROM tidewire.queue_side WHERE queue = $1 AND dead AND position = ANY ($2::bigint[])`

	purgeSideSQL = `DELETE FROM tidewire.queue_side WHERE queue = $1 AND NOT dead AND token IS NULL`
	purgeDeadSQL = `DELETE FROM tidewire.queue_side WHERE queue = $1 AND dead`
)
