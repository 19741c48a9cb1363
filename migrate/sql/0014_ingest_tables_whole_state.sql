-- Tables for what is ingested, and state that every snapshot sees whole.

-- What is ingested goes to a table of any name, which is made where somebody
-- ingests: an application may have a table messages of its own.

DROP FUNCTION IF EXISTS tidewire.create_messages();

-- ensure_ingest_table makes the table that the ingest endpoint fills, unless it is
-- there, and tells whether it did. It fails with TW002 if there is something else
-- of that name, or of its view's. What is there is Tidewire's if it has the
-- columns and the sequence of positions.
--
-- BRIN and not a B-tree on position: rows arrive in position order, and the
-- B-tree would be half of the cost of loading them. The index serves readers
-- only as far as it is summarised, which the writer sees to every 50,000 rows;
-- 128 pages a range is about 7,000 rows of 100 bytes.
CREATE FUNCTION tidewire.ensure_ingest_table(in_schema text, name text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	existing regclass := to_regclass(format('%I.%I', in_schema, name));
BEGIN
	IF existing IS NOT NULL AND to_regclass(format('%I.%I', in_schema, name || '_position_seq')) IS NOT NULL
		AND 2 = (SELECT count(*) FROM pg_attribute AS a WHERE a.attrelid = existing AND NOT a.attisdropped
			AND (a.attname, a.atttypid) IN (('position', 'bigint'::regtype), ('payload', 'bytea'::regtype)))
	THEN
		RETURN false;
	END IF;
	IF existing IS NOT NULL OR to_regclass(format('%I.%I', in_schema, name || '_text')) IS NOT NULL THEN
		RAISE EXCEPTION '%.% or %.%_text exists already', in_schema, name, in_schema, name
			USING ERRCODE = 'TW002', HINT = 'Choose another name for the table of what is ingested.';
	END IF;
	EXECUTE format($sql$
		CREATE TABLE %1$I.%2$I (
			position bigint NOT NULL,
			payload bytea NOT NULL,
			created_at timestamptz NOT NULL DEFAULT now()
		);
		COMMENT ON TABLE %1$I.%2$I IS 'tidewire: messages as /ws/ingest received them';
		ALTER TABLE %1$I.%2$I REPLICA IDENTITY FULL; -- it has no key, and who publishes it may delete from it
		CREATE SEQUENCE %1$I.%3$I OWNED BY %1$I.%2$I.position;
		CREATE INDEX %4$I ON %1$I.%2$I USING brin (position) WITH (pages_per_range = 128);
		CREATE VIEW %1$I.%5$I AS
			SELECT position AS id, tidewire.utf8_text(payload) AS payload, created_at FROM %1$I.%2$I$sql$,
		in_schema, name, name || '_position_seq', name || '_position_idx', name || '_text');
	RETURN true;
END
$$;

-- State that every snapshot sees whole: a backup's, too. TRUNCATE empties a table
-- for snapshots from before as well, and these know of no other table yet that has
-- the rows. So what is not needed any more is deleted, which leaves it to the
-- snapshots that still see it, and vacuumed when there are none. A table with rows
-- that some snapshot may see is not used again: what is in use has no dead rows to
-- walk past, however long the snapshot lasts.

-- Rows of tables that a publication has can be updated and deleted only if they
-- have a key.
ALTER TABLE tidewire.group_rotation ADD COLUMN single boolean PRIMARY KEY DEFAULT true CHECK (single);

-- Whoever has deleted vacuums; autovacuum does where that may not. Statistics of a
-- table that is filled and emptied would only mislead.
ALTER TABLE tidewire.group_offset_0 SET (autovacuum_enabled = true, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647);
ALTER TABLE tidewire.group_offset_1 SET (autovacuum_enabled = true, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647);

DROP FUNCTION tidewire.truncate_offsets();

-- clear_offsets deletes the rows of the table that is not in use, whose groups have
-- newer ones in the other, and returns its name if it is to be vacuumed, which no
-- function can do. rotate_offsets waits until it has no block any more.
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

-- read_offsets as before, but of a group that has no offset it returns NULL: the
-- database was restored from a backup that lacks it.
CREATE OR REPLACE FUNCTION tidewire.read_offsets(ids int[])
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

-- commit_offsets as before, but of a group that has no offset it returns NULL, and
-- -1 for a position after the last that the stream has given out. Neither is
-- written.
CREATE OR REPLACE FUNCTION tidewire.commit_offsets(ids int[], positions bigint[])
RETURNS TABLE (id int, committed bigint, written boolean) LANGUAGE plpgsql AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		WITH given AS MATERIALIZED (
			SELECT g.id, o.sequence, o.position, u.position AS wanted, u.position > o.position
				AND u.position > coalesce(pg_sequence_last_value(to_regclass(format('tidewire.stream_%%s_position_seq', g.stream))), 0) AS ahead
			FROM unnest($1, $2) AS u (id, position)
			JOIN tidewire.stream_group AS g ON g.id = u.id
			LEFT JOIN LATERAL (
				SELECT sequence, position FROM tidewire.%1$I WHERE group_id = g.id
				ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
			) AS o ON true
		), added AS (
			INSERT INTO tidewire.%1$I (group_id, sequence, position)
			SELECT g.id, g.sequence, g.wanted FROM given AS g WHERE g.wanted > g.position AND NOT g.ahead
			ORDER BY g.id -- as all do, so that equal rows cannot deadlock
			ON CONFLICT DO NOTHING
		)
		SELECT g.id, CASE WHEN g.ahead THEN -1 WHEN g.position IS NOT NULL THEN greatest(g.wanted, g.position) END,
			coalesce(g.wanted > g.position AND NOT g.ahead, false) FROM given AS g$sql$, in_use)
		USING ids, positions;
END
$$;

-- seek_offset as before. It also mends a group that has no offset.
CREATE OR REPLACE FUNCTION tidewire.seek_offset(group_id int, to_position bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
	last_sequence bigint;
BEGIN
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

-- expired as before, but a group without an offset has read nothing.
CREATE OR REPLACE FUNCTION tidewire.expired(stream_id int, settled bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	policy tidewire.retention;
	s tidewire.segment;
	oldest bigint;
	bytes bigint;
	newest record;
	read_by_all bigint;
	upto bigint := 0;
BEGIN
	SELECT * INTO policy FROM tidewire.retention WHERE stream = stream_id;
	IF NOT FOUND OR NOT tidewire.hold_retention() THEN
		RETURN 0;
	END IF;
	oldest := coalesce(pg_sequence_last_value(('tidewire.stream_' || stream_id || '_oldest_seq')::regclass), 1);
	IF policy.consumed THEN -- NULL, which is past nothing, without groups
		SELECT min(coalesce(committed, 0)) INTO read_by_all
			FROM tidewire.read_offsets(ARRAY(SELECT id FROM tidewire.stream_group WHERE stream = stream_id));
	END IF;
	IF policy.max_bytes IS NOT NULL THEN
		SELECT sum(pg_total_relation_size(to_regclass(format('tidewire.stream_%s_%s', stream_id, last)))) INTO bytes
			FROM tidewire.segment WHERE stream = stream_id;
	END IF;
	FOR s IN SELECT * FROM tidewire.segment WHERE stream = stream_id AND last <= settled ORDER BY last LOOP
		EXECUTE format('SELECT position, created_at FROM tidewire.%I ORDER BY position DESC LIMIT 1',
			'stream_' || stream_id || '_' || s.last) INTO newest;
		-- Below the oldest that is kept: PostgreSQL crashed while it was dropped.
		IF newest.position >= oldest THEN
			EXIT WHEN policy.consumed AND (newest.position <= read_by_all) IS NOT TRUE;
			EXIT WHEN (policy.max_age IS NOT NULL OR policy.max_bytes IS NOT NULL)
				AND (newest.created_at <= clock_timestamp() - policy.max_age) IS NOT TRUE
				AND (bytes > policy.max_bytes) IS NOT TRUE;
		END IF;
		bytes := bytes - pg_total_relation_size(to_regclass(format('tidewire.stream_%s_%s', stream_id, s.last)));
		upto := s.last;
	END LOOP;
	RETURN upto;
END
$$;

-- dump_under_way tells whether a pg_dump is connected to this database. It fails if
-- a table is dropped between its first look and its lock on the table, which may be
-- long, for it waits for other locks in between. What everybody may see of other
-- sessions is enough to know it by its name. A backup by another program holds
-- retention's lock meanwhile:
--
--	SELECT pg_advisory_lock_shared(1953064037, 3)
CREATE FUNCTION tidewire.dump_under_way() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_stat_clear_snapshot();
	RETURN EXISTS (SELECT FROM pg_stat_activity
		WHERE application_name = 'pg_dump' AND datname = current_database());
END
$$;

-- drop_segments as before, but not while a dump is under way, which would fail. It
-- looks again when it has its locks.
CREATE OR REPLACE FUNCTION tidewire.drop_segments(stream_id int, upto bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	parent text := 'stream_' || stream_id;
	oldest regclass;
	gone bigint[];
	last_one bigint;
	highest bigint;
BEGIN
	IF tidewire.dump_under_way() OR NOT tidewire.hold_retention() THEN
		RETURN 0;
	END IF;
	EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS EXCLUSIVE MODE', parent);
	gone := ARRAY(SELECT last FROM tidewire.segment WHERE stream = stream_id AND last <= upto ORDER BY last LIMIT 32);
	FOREACH last_one IN ARRAY gone LOOP
		EXECUTE format('LOCK TABLE tidewire.%I IN ACCESS EXCLUSIVE MODE', parent || '_' || last_one);
		EXECUTE format('SELECT greatest(max(position), $1) FROM tidewire.%I', parent || '_' || last_one) INTO highest USING highest;
	END LOOP;
	IF tidewire.dump_under_way() THEN
		RETURN 0;
	END IF;
	oldest := ('tidewire.' || parent || '_oldest_seq')::regclass;
	IF highest >= coalesce(pg_sequence_last_value(oldest), 1) THEN
		PERFORM setval(oldest, highest + 1);
	END IF;
	FOREACH last_one IN ARRAY gone LOOP
		EXECUTE format('DROP TABLE tidewire.%I', parent || '_' || last_one);
	END LOOP;
	DELETE FROM tidewire.segment WHERE stream = stream_id AND last = ANY (gone);
	RETURN cardinality(gone);
END
$$;

-- fold_requests as before; then it deletes what is in the floor. That was in use
-- before the other table came into use, and so is older than keep.
CREATE OR REPLACE FUNCTION tidewire.fold_requests(stream_id int, keep interval)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	w tidewire.producer_window;
	old text;
BEGIN
	SELECT * INTO w FROM tidewire.producer_window
		WHERE stream = stream_id AND since <= clock_timestamp() - keep FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	IF NOT w.folded THEN
		old := 'producer_' || stream_id || '_' || 1 - w.current;
		EXECUTE format($sql$
			INSERT INTO tidewire.%1$I AS f (producer, sequence)
			SELECT producer, max(sequence) FROM tidewire.%2$I GROUP BY producer
			ON CONFLICT (producer) DO UPDATE SET sequence = excluded.sequence WHERE f.sequence < excluded.sequence$sql$,
			'producer_' || stream_id || '_floor', old);
		EXECUTE format('DELETE FROM tidewire.%I', old);
		UPDATE tidewire.producer_window SET folded = true WHERE stream = stream_id;
	END IF;
	RETURN true;
END
$$;

-- old_requests returns the table of the stream's records that is not in use, if it
-- is to be vacuumed, which no function can do.
CREATE FUNCTION tidewire.old_requests(stream_id int)
RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
	SELECT old FROM (
		SELECT 'producer_' || stream || '_' || 1 - current AS old FROM tidewire.producer_window
		WHERE stream = stream_id AND folded
	) AS w WHERE pg_relation_size(to_regclass('tidewire.' || old)) > 0
$$;

-- swap_requests as before, but the table it takes into use was emptied by
-- fold_requests. If that table is large, it waits until it was vacuumed; the dead
-- rows of a small one are in nobody's way, for each has a key of its own.
CREATE OR REPLACE FUNCTION tidewire.swap_requests(stream_id int, keep interval)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	w tidewire.producer_window;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'records of producers need READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	SELECT * INTO w FROM tidewire.producer_window
		WHERE stream = stream_id AND since <= clock_timestamp() - keep AND folded FOR UPDATE SKIP LOCKED;
	IF NOT FOUND OR pg_relation_size(to_regclass(format('tidewire.producer_%s_%s', stream_id, 1 - w.current))) > 1024 * 1024 THEN
		RETURN false; -- another process was first, or the stream was dropped, or old rows are still there
	END IF;
	UPDATE tidewire.producer_window SET current = 1 - w.current, since = clock_timestamp(), folded = false
		WHERE stream = stream_id;
	RETURN true;
END
$$;

-- open_producers as before, but autovacuum may do what the nodes may not.
CREATE OR REPLACE FUNCTION tidewire.open_producers(stream_id int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 0 .. 1 LOOP
		EXECUTE format($sql$
			CREATE TABLE tidewire.%1$I (
				sequence bigint NOT NULL,
				position bigint NOT NULL, -- of the first message
				producer text COLLATE "C" NOT NULL,
				CONSTRAINT %2$I PRIMARY KEY (producer, sequence)
			) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
				autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647)$sql$,
			'producer_' || stream_id || '_' || i, 'producer_' || stream_id || '_' || i || '_pkey');
	END LOOP;
	EXECUTE format('CREATE TABLE tidewire.%I (producer text COLLATE "C" PRIMARY KEY, sequence bigint NOT NULL)',
		'producer_' || stream_id || '_floor');
	INSERT INTO tidewire.producer_window VALUES (stream_id, 0, clock_timestamp(), false);
END
$$;

-- A window that was folded before has rows that are in the floor, and to be deleted;
-- folding it once more does both.
UPDATE tidewire.producer_window SET folded = false;
DO $$
DECLARE
	name text;
BEGIN
	FOR name IN SELECT format('producer_%s_%s', stream, i) FROM tidewire.producer_window, generate_series(0, 1) AS i LOOP
		EXECUTE format('ALTER TABLE tidewire.%I SET (autovacuum_enabled = true, autovacuum_vacuum_threshold = 1000,
			autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647)', name);
	END LOOP;
END
$$;

REVOKE EXECUTE ON FUNCTION tidewire.old_requests(int) FROM PUBLIC;
