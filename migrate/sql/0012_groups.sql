-- The groups of the streams.
CREATE TABLE tidewire.stream_group (
	id int PRIMARY KEY DEFAULT tidewire.next_id('tidewire.stream_group_id_seq'),
	stream int NOT NULL REFERENCES tidewire.stream ON DELETE CASCADE,
	name text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
	created_at timestamptz NOT NULL DEFAULT now(),
	UNIQUE (stream, name)
);
ALTER SEQUENCE tidewire.stream_group_id_seq OWNED BY tidewire.stream_group.id;

-- The offsets that groups committed, one row for each commit, never updated:
-- the offset of a group is its last row in key order. Updating a row in place
-- would leave a dead version with every commit, which a long transaction
-- elsewhere keeps: each commit would then scan all of them.
--
-- A commit adds (sequence of the last row, position); only a seek raises the
-- sequence. So concurrent commits need no lock and no order between them: the
-- highest position wins.
--
-- There are two such tables. One is in use; when it has grown, the last rows are copied to the other one, which is
-- then in use (compaction). The rows of the old one are deleted, so that snapshots, including a backup's, still see
-- them, and vacuumed by the session that deleted them, or by autovacuum if that session lacks the right. A table is
-- not used again while it has rows that a snapshot may see: so the table in use never has dead rows to scan,
-- however long a snapshot lasts. Statistics of a table that is filled and emptied would only mislead the planner.
CREATE TABLE tidewire.group_offset_0 (
	group_id int NOT NULL,
	sequence bigint NOT NULL,
	position bigint NOT NULL CHECK (position >= 0),
	PRIMARY KEY (group_id, sequence, position)
) WITH (autovacuum_enabled = true, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647);
CREATE TABLE tidewire.group_offset_1 (LIKE tidewire.group_offset_0 INCLUDING ALL)
	WITH (autovacuum_enabled = true, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647);

-- Which of the two is in use: one row, updated once a rotation. rotate_at is the size from
-- which a rotation is worthwhile. The table has a primary key, so that it can be in a
-- publication.
CREATE TABLE tidewire.group_rotation (
	current int NOT NULL,
	rotate_at bigint NOT NULL,
	single boolean PRIMARY KEY DEFAULT true CHECK (single)
);
INSERT INTO tidewire.group_rotation VALUES (0, 0);

-- hold_offsets returns the name of the table in use, which does not change until
-- the end of the transaction: all sessions that read or write offsets take lock 2
-- shared, and a rotation takes it exclusively. READ COMMITTED is required, so that
-- later statements of the transaction see everything that was committed before the
-- lock was granted.
CREATE FUNCTION tidewire.hold_offsets() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'offsets of groups need READ COMMITTED'
			USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock_shared(1953064037, 2);
	RETURN (SELECT 'group_offset_' || current FROM tidewire.group_rotation);
END
$$;

-- ensure_group returns the group of that name, existing, or new with that offset. For a shared stream the lock on its row
-- prevents that messages are dropped meanwhile.
CREATE FUNCTION tidewire.ensure_group(stream_id int, group_name text, start bigint, skip_dropped boolean DEFAULT false)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
	group_id int;
BEGIN
	LOOP
		SELECT id INTO group_id FROM tidewire.stream_group WHERE stream = stream_id AND name = group_name;
		IF FOUND THEN
			RETURN group_id;
		END IF;
		INSERT INTO tidewire.stream_group (stream, name) VALUES (stream_id, group_name)
			ON CONFLICT (stream, name) DO NOTHING RETURNING id INTO group_id;
		IF FOUND THEN
			IF skip_dropped THEN
				PERFORM FROM tidewire.stream WHERE id = stream_id FOR SHARE; -- also prevents a move to separate tables
				start := greatest(start, (SELECT oldest - 1 FROM tidewire.stream_state(stream_id)));
			END IF;
			EXECUTE format('INSERT INTO tidewire.%I VALUES ($1, 1, $2)', in_use) USING group_id, start;
			RETURN group_id;
		END IF;
	END LOOP;
END
$$;

-- read_offsets returns the offset of each of the groups that exists, or NULL for a group without
-- one: the database was then restored from a backup that lacks it.
--
-- The statements here and below are built for the table in use and planned each
-- time: a plan that was cached for a small table is wrong for a large one.
CREATE FUNCTION tidewire.read_offsets(ids int[])
RETURNS TABLE (id int, committed bigint) LANGUAGE plpgsql AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		SELECT g.id, o.position FROM tidewire.stream_group AS g
		LEFT JOIN LATERAL (
			SELECT position FROM tidewire.%I WHERE group_id = g.id
			ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
		) AS o ON true WHERE g.id = ANY ($1)$sql$, in_use) USING ids;
END
$$;

-- commit_offsets moves offsets forward to the position given for each group, and returns the
-- resulting offsets of the groups that exist. A position that is not higher than the offset writes
-- nothing. A group may be given more than once: its highest position that is not after the end of the
-- stream counts.
--
-- For a group without an offset it returns NULL; for a position after the last one that the stream has assigned, or one that a
-- failover has lost, it returns -1. Neither is written. For a shared stream it checks whether there is a message at the
-- position or after it, and is forced to use an index for that; a stream of which nothing is kept ends at its floor.
CREATE FUNCTION tidewire.commit_offsets(ids int[], positions bigint[])
RETURNS TABLE (id int, committed bigint, written boolean) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
	base bigint := tidewire.history_base();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		WITH given AS MATERIALIZED (
			SELECT DISTINCT ON (w.id) * FROM (
				SELECT g.id, o.sequence, o.position, u.position AS wanted,
					u.position > o.position AND (CASE WHEN s.shared THEN u.position > low.floor AND NOT EXISTS (
						SELECT FROM tidewire.shared_message AS m WHERE m.stream = g.stream AND m.position >= u.position AND m.position > low.floor
					) ELSE u.position > tidewire.stream_reserved(g.stream) END
						OR u.position <= $3 AND tidewire.lost_since(g.stream, u.position, $3 + 1) IS NOT NULL) AS ahead
				FROM unnest($1, $2) AS u (id, position)
				JOIN tidewire.stream_group AS g ON g.id = u.id
				JOIN tidewire.stream AS s ON s.id = g.stream
				LEFT JOIN LATERAL (
					SELECT sequence, position FROM tidewire.%1$I WHERE group_id = g.id
					ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
				) AS o ON true
				CROSS JOIN LATERAL (
					SELECT coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = g.stream ORDER BY f.floor DESC LIMIT 1), 0) AS floor
				) AS low
			) AS w ORDER BY w.id, w.ahead, w.wanted DESC
		), added AS (
			INSERT INTO tidewire.%1$I (group_id, sequence, position)
			SELECT g.id, g.sequence, g.wanted FROM given AS g WHERE g.wanted > g.position AND NOT g.ahead
			ORDER BY g.id -- the same order in every session, so that equal rows cannot deadlock
			ON CONFLICT DO NOTHING
		)
		SELECT g.id, CASE WHEN g.ahead THEN -1 WHEN g.position IS NOT NULL THEN greatest(g.wanted, g.position) END,
			coalesce(g.wanted > g.position AND NOT g.ahead, false) FROM given AS g$sql$, in_use)
		USING ids, positions, base;
END
$$;

-- seek_offset sets the offset of a group to any position, overriding everything that is committed, and returns whether the group
-- exists. It also repairs a group without an offset. It waits for a drop_shared under way, and a later one sees the new offset.
CREATE FUNCTION tidewire.seek_offset(group_id int, to_position bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	in_use text;
	last_sequence bigint;
BEGIN
	PERFORM FROM tidewire.stream WHERE id = (SELECT stream FROM tidewire.stream_group WHERE id = group_id) FOR SHARE;
	in_use := tidewire.hold_offsets();
	PERFORM FROM tidewire.stream_group WHERE id = group_id;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	EXECUTE format('SELECT max(sequence) FROM tidewire.%I WHERE group_id = $1', in_use)
		INTO last_sequence USING group_id;
	EXECUTE format('INSERT INTO tidewire.%I VALUES ($1, $2, $3) ON CONFLICT DO NOTHING', in_use)
		USING group_id, coalesce(last_sequence, 0) + 1, to_position;
	RETURN true;
END
$$;

-- rotate_offsets copies the offsets to the other table, which is then in use
-- (compaction), if the one in use has about max_rows, and returns whether it
-- did. Rows of dropped groups are not copied.
--
-- It waits for the commits under way, for at most 100 ms, and new ones wait for
-- it; then it fails, and the caller tries again later. The other table must be
-- empty and truncated; until it is, the one in use keeps growing.
CREATE FUNCTION tidewire.rotate_offsets(max_rows bigint)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
	in_use int;
	at_size bigint;
	copied bigint;
	row_size CONSTANT int := 52; -- on the page, with its line pointer
BEGIN
	SELECT current, rotate_at INTO in_use, at_size FROM tidewire.group_rotation;
	IF pg_relation_size(('tidewire.group_offset_' || in_use)::regclass) < greatest(at_size, max_rows * row_size) THEN
		RETURN false;
	END IF;
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'offsets of groups need READ COMMITTED'
			USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, 2);
	PERFORM FROM tidewire.group_rotation WHERE current = in_use;
	IF NOT FOUND OR pg_relation_size(('tidewire.group_offset_' || 1 - in_use)::regclass) > 0 THEN
		RETURN false; -- another process was faster, or the old rows still exist
	END IF;
	EXECUTE format($sql$
		INSERT INTO tidewire.%I
		SELECT o.* FROM tidewire.stream_group AS g
		CROSS JOIN LATERAL (
			SELECT * FROM tidewire.%I WHERE group_id = g.id
			ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
		) AS o$sql$, 'group_offset_' || 1 - in_use, 'group_offset_' || in_use);
	GET DIAGNOSTICS copied = ROW_COUNT;
	-- If the groups alone fill a table, it has to double before a rotation is worthwhile.
	UPDATE tidewire.group_rotation SET current = 1 - in_use, rotate_at = 2 * copied * row_size;
	RETURN true;
END
$$;

-- clear_offsets deletes the rows of the table that is not in use, whose groups have
-- newer ones in the other, and returns its name if it has to be vacuumed, because
-- no function can run VACUUM. rotate_offsets waits until the table has no blocks.
CREATE FUNCTION tidewire.clear_offsets() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	old text := CASE tidewire.hold_offsets() WHEN 'group_offset_0' THEN 'group_offset_1' ELSE 'group_offset_0' END;
BEGIN
	IF pg_relation_size(('tidewire.' || old)::regclass) = 0 THEN
		RETURN NULL;
	END IF;
	EXECUTE format('DELETE FROM tidewire.%I', old);
	RETURN old;
END
$$;
