package stream

import (
	"github.com/tidewire/tidewire/internal/pg"
)

// lockMessages is the number of the messages table's lock within pg.LockClass. The
// lock of a stream has the stream's ID, which is at least 1000. Lock 2 separates
// the rotation of offsets from their use, 3 is held by the process that applies
// retention, and 4 by the one that deletes old batch marks.
const lockMessages = 1

const (
	beginSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitSQL = `COMMIT`

	// takePositionsFmt, with a table's lock and sequence, waits for the lock. Its
	// reads see the state after the lock was taken, since each statement of a
	// plpgsql function takes its own snapshot under READ COMMITTED.
	takePositionsFmt = `SELECT tidewire.take_positions(%d, '%s', $1, $2, $3), now()`

	// $1 is the number of rows. take_positions has set the sequence to the last of
	// their positions.
	insertPayloadsFmt = `
INSERT INTO %[1]s (position, payload)
SELECT (SELECT currval('%[2]s')) - $1::bigint + n, p
FROM unnest($2::bytea[]) WITH ORDINALITY AS t (p, n)`

	insertMessagesFmt = `
INSERT INTO %[1]s (position, payload, key, headers)
SELECT (SELECT currval('%[2]s')) - $1::bigint + n, p, k, h
FROM unnest($2::bytea[], $3::text[], $4::jsonb[]) WITH ORDINALITY AS t (p, k, h, n)`

	// The rows of a COPY contain their positions: begin_batch fails if the head is
	// not the one that the writer expects.
	copyFmt = beginSQL + `; %[9]s; SELECT tidewire.begin_batch(%[1]d, '%[10]s', %[3]d, %[4]d, %[5]d, %[6]d); %[8]s` +
		`COPY %[2]s (position, %[7]s) FROM STDIN (FORMAT binary); ` + commitSQL

	// The rows of a staged batch are numbered from 1 on, and their time is the time at
	// which they had all arrived. %[3]s is empty, or records requests.
	stageFmt = beginSQL + `; %[2]s; CREATE TEMPORARY TABLE pg_temp.tidewire_rows ` +
		`(position bigint, payload bytea, key text, headers jsonb) ON COMMIT DROP; ` +
		`COPY pg_temp.tidewire_rows (position, %[1]s) FROM STDIN (FORMAT binary)`
	storeStagedFmt = `SELECT tidewire.take_positions(%[1]d, '%[2]s', %[4]d, %[5]d, %[6]d); %[3]s` +
		`INSERT INTO %[7]s (position, created_at, %[8]s) SELECT currval('%[2]s') - %[4]d + position, statement_timestamp(), %[8]s ` +
		`FROM pg_temp.tidewire_rows ORDER BY position; ` + commitSQL

	// recordRequestsSQL comes after take_positions, begin_batch or take_shared, and before
	// the rows: with COPY, a check after it would come only when the rows are sent.
	recordRequestsSQL   = `SELECT tidewire.record_requests($1, $2, $3, $4, $5, $6)`
	recordRequestsFmt   = `SELECT tidewire.record_requests(%d, %d, %s, %s, %s, %s); `
	findRequestsSQL     = `SELECT first, too_old, count FROM tidewire.find_requests($1, $2, $3), ` + pg.WaitSQL
	recordDuplicatesSQL = `SELECT first, too_old, count FROM tidewire.record_duplicates($1, $2, $3, $4), ` + pg.WaitSQL
	foldRequestsSQL     = `SELECT tidewire.fold_requests($1, $2)`
	swapRequestsSQL     = `SELECT tidewire.swap_requests($1, $2)`
	oldRequestsSQL      = `SELECT tidewire.old_requests($1)`

	// The same for all streams that share tables. $2 and $3 are block numbers.
	foldSharedRequestsSQL = `SELECT turn, blocks FROM tidewire.fold_shared_requests($1, $2, $3)`
	swapSharedRequestsSQL = `SELECT tidewire.swap_shared_requests($1)`
	oldSharedRequestsSQL  = `SELECT tidewire.old_shared_requests()`

	// Like take_positions and insertMessagesFmt. $1 of both is the stream.
	takeSharedSQL   = `SELECT tidewire.take_shared($1, $2, $3, $4), now()`
	insertSharedSQL = `
INSERT INTO tidewire.shared_message (stream, position, keyed, payload, key, headers)
SELECT $1, (SELECT greatest(tidewire.shared_head($1), tidewire.history_base())) + n, (SELECT keyed FROM tidewire.stream WHERE id = $1), p, k, h
FROM unnest($2::bytea[], $3::text[], $4::jsonb[]) WITH ORDINALITY AS t (p, k, h, n)`
	ownStreamFmt = beginSQL + `; %s; SELECT tidewire.own_stream(%d); ` + commitSQL

	// For several streams: rows, and requests, in the order of the streams.
	appendTogetherSQL = `SELECT firsts, at, slowest, slowest_ms FROM tidewire.append_together($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`
	// A slow table must not delay the others for longer than a second. The timeout does
	// not apply to COMMIT: a cancelled COMMIT may be answered before a standby has it.
	setTimeoutSQL     = `SELECT set_config('statement_timeout', '1000', true)`
	resetTimeoutSQL   = `SELECT set_config('statement_timeout', '0', true)`
	settleTogetherSQL = `SELECT tidewire.settle_together($1, $2)`

	headFmt          = `SELECT coalesce(pg_sequence_last_value('%s'), 0)`
	firstPositionSQL = `SELECT first_position FROM tidewire.batch, ` + pg.WaitSQL + ` WHERE writer = $1 AND number = $2`

	forgetSQL = `DELETE FROM tidewire.batch WHERE writer = $1 AND number >= $2 AND number < $3 AND number <> ALL ($4::bigint[])`
)

const (
	streamColumns    = `id, name, keyed, created_at, partitions, state, shared`
	ensureStreamSQL  = `SELECT ` + streamColumns + ` FROM tidewire.ensure_stream($1, $2, $3)`
	lookupStreamSQL  = `SELECT ` + streamColumns + ` FROM tidewire.stream WHERE name = $1 AND state = 'ready'`
	lookupStreamsSQL = `SELECT ` + streamColumns + ` FROM tidewire.stream WHERE name = ANY ($1) AND state = 'ready'`
	listStreamsSQL   = `SELECT ` + streamColumns + ` FROM tidewire.stream WHERE parent IS NULL AND state = 'ready' ORDER BY name`
	dropStreamSQL    = `SELECT tidewire.drop_stream($1)`
	existsStreamSQL  = `SELECT EXISTS (SELECT FROM tidewire.stream WHERE id = $1)`

	messageColumns = `position, coalesce(key, ''), headers, payload, created_at`
	// pageColumns are those of the bounded reads: a payload of more than $5 bytes is not fetched, and its size stands in
	// place of the headers. See messageScanner.
	pageColumns = `position, coalesce(key, ''), CASE WHEN octet_length(payload) > $5::bigint THEN to_jsonb(octet_length(payload)) ELSE headers END, ` +
		`CASE WHEN octet_length(payload) <= $5::bigint THEN payload END, created_at`

	// The last row of a read is not a message but the state of the stream: its position is
	// minus the oldest position that may be kept, its key is the value of the position
	// sequence, and its time encodes the history: see baseOf. A transaction that reads the
	// table holds a lock on it, so nothing is dropped meanwhile, and the oldest position
	// tells reliably whether messages are missing; sequences are independent of the
	// snapshot.
	stateRowFmt = `
UNION ALL SELECT -coalesce(pg_sequence_last_value('%[1]s_oldest_seq'), 1),
	coalesce(pg_sequence_last_value('%[1]s_position_seq'), 0)::text, NULL, '', to_timestamp(pg_sequence_last_value('tidewire.history_seq') >> 32)`

	// With both bounds of the positions the planner prunes all segments outside of
	// them.
	readFmt = `
(SELECT ` + messageColumns + ` FROM %[1]s
WHERE position > $1 AND position <= $2 ORDER BY position LIMIT $3)`

	// contentBytes is a lower bound of a message's size that is computed without
	// fetching it: octet_length does not read a large payload (TOAST), nor
	// pg_column_size large headers. As jsonb, headers may take eight times as much
	// as their text, for example [1,1,1]. Compressed ones, which may take next to nothing, are read.
	contentBytes = `(octet_length(payload) + CASE WHEN headers IS NULL THEN 0
		WHEN pg_column_compression(headers) IS NULL THEN pg_column_size(headers) / 8 ELSE octet_length(headers::text) END)`

	// A page contains the messages up to the one with which it reaches $4 bytes: a
	// message is included if those before it have less. Without the bound a
	// thousand large messages would be sent although only the first few are used.
	readPageFmt = `
(SELECT ` + pageColumns + ` FROM (
	SELECT *, sum(` + contentBytes + `) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING) AS total
	FROM (SELECT * FROM %[1]s WHERE position > $1 AND position <= $2 ORDER BY position LIMIT $3) AS candidate
) AS counted
WHERE total - ` + contentBytes + ` < $4 ORDER BY position)`

	// The same for one segment, with a cached plan. The planner does not know the
	// value of a subquery such as (SELECT $1), so it has no reason for a custom plan
	// for each set of values.
	readSegmentFmt = `
(SELECT ` + messageColumns + ` FROM %[1]s
WHERE position > (SELECT $1::bigint) AND position <= (SELECT $2::bigint) ORDER BY position LIMIT (SELECT $3::bigint))`
	readSegmentPageFmt = `
(SELECT ` + pageColumns + ` FROM (
	SELECT *, sum(` + contentBytes + `) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING) AS total
	FROM (SELECT * FROM %[1]s
		WHERE position > (SELECT $1::bigint) AND position <= (SELECT $2::bigint) ORDER BY position LIMIT (SELECT $3::bigint)) AS candidate
) AS counted
WHERE total - ` + contentBytes + ` < (SELECT $4::bigint) ORDER BY position)`

	findSegmentSQL = `SELECT first, last FROM tidewire.segment WHERE stream = $1 AND first <= $2 AND last >= $2`

	// For a search by time, which has no index. probeTimeFmt: the first message
	// after $1 up to $2. scanTimeFmt: the first with the time $3 or later, and the
	// last of all.
	probeTimeFmt = `SELECT position, created_at FROM %s WHERE position > $1 AND position <= $2 ORDER BY position LIMIT 1`
	scanTimeFmt  = `
SELECT min(position) FILTER (WHERE created_at >= $3), max(position) FROM %s WHERE position > $1 AND position <= $2`

	readKeySQL = `SELECT ` + messageColumns + ` FROM tidewire.read_key($1, $2, $3, $4, $5, $6)`

	// The head is read from the table and not from the sequence, which moves before
	// the commit.
	endsSQL  = `SELECT s.head, s.oldest, pg_sequence_last_value('tidewire.history_seq') >> 32 << 18 FROM tidewire.stream_state($1) AS s`
	stateSQL = `SELECT s.head, s.oldest, EXISTS (SELECT FROM tidewire.stream WHERE id = $1 AND NOT shared) FROM tidewire.stream_state($1) AS s`
)

const (
	lostUpToSQL = `SELECT * FROM (
	SELECT s.id, u.upto, tidewire.last_kept(s.id, u.upto) AS last FROM unnest($1::int[], $2::bigint[]) AS u (id, upto) JOIN tidewire.stream AS s ON s.id = u.id
) AS k WHERE k.last < k.upto ORDER BY k.upto` // losses are counted from the lowest position on
	// lostGapSQL returns the position after which the messages up to a position are lost, and the number of
	// lost positions. It counts only those of the last one's history: messages of earlier histories were lost
	// before that history began.
	lostGapSQL = `SELECT k.last, $2 - greatest(k.last, (SELECT max(base) FROM tidewire.bases() AS base WHERE base < $2))
FROM tidewire.last_kept($1, $2) AS k (last) WHERE k.last < $2`
	// baseBeforeSQL returns the base of the history in which a position was allocated.
	baseBeforeSQL = `SELECT coalesce(max(base), 0) FROM tidewire.bases() AS base WHERE base < $1`
	gapsSQL       = `SELECT after, upto FROM tidewire.gaps($1)`
	lostSinceSQL  = `SELECT tidewire.lost_since($1, $2, $3)`
	checkSQL      = `SELECT tidewire.lost_since($1, $2, s.head + 1) FROM tidewire.stream_state($1) AS s`

	headsSQL = `SELECT id, reserved, head FROM tidewire.stream_heads($1::int[], $2::bigint[])`

	enterHistorySQL = `SELECT tidewire.enter_history()`
	// growthSQL returns the value of the sequence that moves when a stream grows, and
	// the lowest ID of a transaction under way; transactionSQL allocates the next
	// transaction ID.
	growthSQL      = `SELECT tidewire.enter_history(), coalesce(pg_sequence_last_value('tidewire.growth_seq'), 0), pg_snapshot_xmin(pg_current_snapshot())::text::bigint`
	transactionSQL = `SELECT pg_current_xact_id()::text::bigint`

	// announceSQL sends a NOTIFY hint that streams have grown: the sender's ID, then
	// the streams' IDs, separated by spaces. With synchronous_commit=off it does not
	// wait for the disk: a poll makes up for a lost hint.
	announceSQL = `SELECT set_config('synchronous_commit', 'off', true), pg_notify('` + pg.StreamChannel + `', $1)`
)

// Partitioned streams.
const (
	ensurePartitionedSQL = `SELECT ` + streamColumns + ` FROM tidewire.ensure_partitioned($1, $2, $3, $4)`
	makePartitionsSQL    = `SELECT tidewire.make_partitions($1, $2)`
	partitionsSQL        = `SELECT ` + streamColumns + ` FROM tidewire.stream WHERE parent = $1 ORDER BY partition`
	beginDropSQL         = `SELECT tidewire.begin_drop($1)`
	lastPartitionSQL     = `SELECT tidewire.last_partition($1)`
	dropPartitionSQL     = `SELECT tidewire.drop_partition($1)`
	retentionSQL         = `
SELECT r.max_age, r.max_bytes, coalesce(r.consumed, false)
FROM tidewire.stream AS s LEFT JOIN tidewire.retention AS r ON r.stream = s.id WHERE s.id = $1`
)

// Coordinators, and the offsets of readers with a fencing token: to be run in READ
// COMMITTED as well.
const (
	joinShareSQL   = `SELECT share_id, member_id FROM tidewire.join_share($1, $2, $3, $4, $5)`
	beatShareSQL   = `SELECT alive, quota, numbers, tokens FROM tidewire.beat_share($1, $2, $3, $4, $5)`
	leaveShareSQL  = `SELECT tidewire.leave_share($1, $2)`
	listMembersSQL = `
SELECT m.name, m.until, ARRAY(SELECT n.number FROM tidewire.share_number AS n WHERE n.share = s.id AND n.owner = m.id ORDER BY n.number)
FROM tidewire.share AS s JOIN tidewire.share_member AS m ON m.share = s.id
WHERE s.name = $1 AND m.until >= clock_timestamp() ORDER BY m.id`
	commitOwnedSQL = `WITH done AS MATERIALIZED (SELECT id, committed, written, token FROM tidewire.commit_owned($1, $2, $3))` + waitIfUnwrittenSQL
)

// Retention.
const (
	setRetentionSQL = `SELECT tidewire.set_retention($1, $2, $3, $4, $5)`
	listPoliciesSQL = `SELECT s.id, s.name FROM tidewire.retention AS r JOIN tidewire.stream AS s ON s.id = r.stream
	WHERE NOT s.shared AND s.partitions = 0 ORDER BY s.id`

	// infoSQL reads the size of each file, and no message. For a shared stream it
	// reads the last thousand messages, and assumes that the others have the same
	// average size.
	infoSQL = `
SELECT s.head, s.oldest, g.segments, g.bytes, r.max_age, r.max_bytes, coalesce(r.consumed, false)
FROM tidewire.stream_state($1) AS s
CROSS JOIN LATERAL (
	SELECT count(*) AS segments,
		coalesce(sum(pg_total_relation_size(to_regclass(format('tidewire.stream_%s_%s', stream, last)))), (
			SELECT avg(tidewire.shared_bytes(key, headers, payload)) 
				* (s.head - s.oldest + 1 - coalesce((SELECT sum(upto - greatest(after, s.oldest - 1)) FROM tidewire.gaps($1) WHERE upto >= s.oldest), 0))
			FROM (SELECT * FROM tidewire.shared_message WHERE stream = $1 AND position >= s.oldest ORDER BY position DESC LIMIT 1000) AS newest
		), 0)::bigint AS bytes
	FROM tidewire.segment WHERE stream = $1
) AS g
LEFT JOIN tidewire.retention AS r ON r.stream = $1`

	manySegmentsSQL = `
SELECT s.id, (SELECT head FROM tidewire.stream_state(s.id)) FROM tidewire.stream AS s
WHERE s.name = $1 AND (SELECT count(*) FROM tidewire.segment WHERE stream = s.id) > $2`

	// The steps of a RetentionWorker, each in its own READ COMMITTED transaction: first for all shared
	// streams, then for each of the others.
	dueSharedSQL    = `SELECT stream, upto, messages, large, policy FROM tidewire.due_shared($1, $2, $3, $4, $5)`
	dropSharedSQL   = `SELECT stream, dropped FROM tidewire.drop_shared($1, $2, $3)`
	moveSharedSQL   = `SELECT tidewire.own_stream($1)`
	sealSegmentSQL  = `SELECT tidewire.seal_segment($1)`
	expiredSQL      = `SELECT tidewire.expired($1, $2)`
	dropSegmentsSQL = `SELECT tidewire.drop_segments($1, $2)`
	dropExpiredSQL  = `SELECT tidewire.drop_expired($1, $2)`
)

// Offsets of groups: to be run in READ COMMITTED, as migrate/sql says.
const (
	ensureGroupSQL = `SELECT tidewire.ensure_group($1, $2, $3, $4)`
	lookupGroupSQL = `SELECT id FROM tidewire.stream_group WHERE stream = $1 AND name = $2`
	dropGroupSQL   = `DELETE FROM tidewire.stream_group WHERE stream = $1 AND name = $2 RETURNING id`
	listGroupsSQL  = `
SELECT g.name, g.created_at, o.committed
FROM tidewire.read_offsets(ARRAY(SELECT id FROM tidewire.stream_group WHERE stream = $1 AND name > $2 ORDER BY name LIMIT $3)) AS o
JOIN tidewire.stream_group AS g USING (id) ORDER BY g.name`
	readOffsetSQL    = `SELECT committed FROM tidewire.read_offsets(ARRAY[$1::int])`
	commitOffsetsSQL = `WITH done AS MATERIALIZED (SELECT id, committed, written FROM tidewire.commit_offsets($1, $2))` + waitIfUnwrittenSQL
	seekOffsetSQL    = `SELECT tidewire.seek_offset($1, $2)`
	rotateOffsetsSQL = `SELECT tidewire.rotate_offsets($1)`
	clearOffsetsSQL  = `SELECT tidewire.clear_offsets()`

	// vacuumFmt, for an emptied table, frees its blocks, as far as no snapshot sees
	// their rows.
	vacuumFmt = `VACUUM tidewire.%s`
)

// waitIfUnwrittenSQL ends a query that may have nothing to write because an earlier transaction has written
// it. Then its COMMIT waits for the standbys to have that transaction: see pg.WaitSQL.
const waitIfUnwrittenSQL = `, wait AS MATERIALIZED (SELECT ` + pg.WaitSQL + ` WHERE NOT EXISTS (SELECT FROM done WHERE written))
SELECT done.* FROM done LEFT JOIN wait ON true`

const publishBatchSQL = `SELECT tidewire.publish_batch($1, $2, $3::text[]::jsonb[], $4)`
