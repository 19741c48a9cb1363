package queue

const (
	// beginSQL says the isolation: the database may have another default, and
	// the functions refuse any other.
	beginSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitSQL = `COMMIT`

	queueColumns = `id, max_attempts, retry_min, retry_max`

	ensureQueueSQL = `SELECT ` + queueColumns + ` FROM tidewire.ensure_queue($1, $2, $3, $4)`
	lookupQueueSQL = `SELECT ` + queueColumns + ` FROM tidewire.queue WHERE id = $1`
	listQueuesSQL  = `SELECT s.name FROM tidewire.queue AS q JOIN tidewire.stream AS s USING (id) ORDER BY s.name`
	dropQueueSQL   = `SELECT tidewire.drop_queue($1)`

	writeSQL = `
SELECT sequence, kind, token, lo, hi, until, body
FROM tidewire.queue_write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`

	// idleTimeoutSQL ends a rotation whose client froze with the lock.
	idleTimeoutSQL = `SET LOCAL idle_in_transaction_session_timeout = '5s'`
	rotateSQL      = `SELECT tidewire.rotate_queue($1, $2, $3, $4)`
	truncateSQL    = `SELECT tidewire.truncate_queue($1)`

	sideStatsSQL = `
SELECT count(*) FILTER (WHERE dead), count(*) FILTER (WHERE NOT dead AND token IS NULL),
	count(*) FILTER (WHERE token IS NOT NULL), min(position) FILTER (WHERE NOT dead)
FROM tidewire.queue_side WHERE queue = $1`
	deadSQL = `
SELECT position, attempts, reason FROM tidewire.queue_side
WHERE queue = $1 AND dead AND position > $2 ORDER BY position LIMIT $3`
	redriveSQL = `
UPDATE tidewire.queue_side SET dead = false, attempts = 0, due_at = clock_timestamp(), reason = ''
WHERE queue = $1 AND dead AND position = ANY ($2::bigint[])`
	redriveAllSQL = `
UPDATE tidewire.queue_side SET dead = false, attempts = 0, due_at = clock_timestamp(), reason = ''
WHERE queue = $1 AND dead`
	purgeSideSQL = `DELETE FROM tidewire.queue_side WHERE queue = $1 AND NOT dead AND token IS NULL`
	purgeDeadSQL = `DELETE FROM tidewire.queue_side WHERE queue = $1 AND dead`
)
