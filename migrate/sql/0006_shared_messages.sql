-- Small streams share a table; a stream with many messages gets separate tables.

-- The messages of all streams that are marked as shared in their row. Such a
-- stream has no table, index or sequence: making one inserts a row, and a
-- transaction with messages for many of them is one INSERT.
--
-- keyed is a copy of the stream's, for the index. Columns of a fixed width come first. Autovacuum reclaims the space of deleted
-- rows before they are a tenth of the table.
CREATE TABLE tidewire.shared_message (
	position bigint NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	stream int NOT NULL,
	keyed boolean NOT NULL,
	key text COLLATE "C",
	headers jsonb,
	payload bytea NOT NULL,
	PRIMARY KEY (stream, position)
) WITH (autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_scale_factor = 0.05,
	toast.autovacuum_vacuum_threshold = 10000, toast.autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX shared_message_key_idx ON tidewire.shared_message (stream, key, position) WHERE keyed AND key IS NOT NULL;

-- The position of the last message of a shared stream that was dropped (its floor), if any were: all kept
-- messages come after it. One transaction deletes messages, adds a row here and deletes the row before. So
-- each snapshot sees either the messages, or a floor that says that they are gone.
--
-- The floor is not in the stream's row: a publishing transaction with an old snapshot locks that
-- row, which fails if the row was updated since; and during a long snapshot each append would
-- scan all versions of the row. Here a new floor comes after the old ones in the index, and a
-- lookup begins at the end. A stream that moves to separate tables takes its floor along.
CREATE TABLE tidewire.shared_floor (
	floor bigint NOT NULL,
	stream int NOT NULL,
	PRIMARY KEY (stream, floor)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647);

-- shared_top_seq is never lower than the head of any shared stream. A transaction
-- with an old snapshot, which does not see where a stream ends, continues after it.
CREATE SEQUENCE tidewire.shared_top_seq START WITH 1024 INCREMENT BY 1024 CACHE 1;

-- raise_shared_top raises shared_top_seq to the position, unless it is higher already. The position is the end of a batch: one that is
-- 2^30 positions ahead is a mistake, and would take millions of steps.
CREATE FUNCTION tidewire.raise_shared_top(upto bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF upto - coalesce(pg_sequence_last_value('tidewire.shared_top_seq'), 0) > 1 << 30 THEN
		RAISE EXCEPTION 'no stream ends near position %', upto USING ERRCODE = 'TW004';
	END IF;
	WHILE coalesce(pg_sequence_last_value('tidewire.shared_top_seq'), 0) < upto LOOP
		PERFORM nextval('tidewire.shared_top_seq');
	END LOOP;
END
$$;

-- shared_head returns the position of the last message of a shared stream, or its floor if nothing is kept, or 0. A READ
-- COMMITTED transaction that holds the stream's lock sees the last message. It does not scan deleted messages, even those that a
-- long snapshot may still see.
--
-- Plans of functions are cached. One that was made while the table was small could sort
-- all rows of a stream, or scan the table, long after that: so all these functions are
-- forced to use an index.
CREATE FUNCTION tidewire.shared_head(stream_id int) RETURNS bigint
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
DECLARE
	low bigint := coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = stream_id ORDER BY f.floor DESC LIMIT 1), 0);
BEGIN
	RETURN coalesce((SELECT m.position FROM tidewire.shared_message AS m
		WHERE m.stream = stream_id AND m.position > low ORDER BY m.position DESC LIMIT 1), low);
END
$$;

-- take_shared is take_positions for a shared stream: the caller inserts the rows
-- next, in the same transaction. It fails with TW010 if the stream has separate
-- tables.
CREATE FUNCTION tidewire.take_shared(stream_id int, size bigint, writer bigint, number bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	is_shared boolean;
	head bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	SELECT shared INTO is_shared FROM tidewire.stream WHERE id = stream_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stream % was dropped', stream_id USING ERRCODE = 'undefined_table';
	ELSIF NOT is_shared THEN
		RAISE EXCEPTION 'stream % has tables of its own', stream_id USING ERRCODE = 'TW010';
	END IF;
	head := greatest(tidewire.shared_head(stream_id), tidewire.history_base());
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	PERFORM tidewire.raise_shared_top(head + size);
	PERFORM tidewire.note_growth();
	RETURN head + 1;
END
$$;

-- grant_as gives the roles that may use one relation, by GRANT or as its owner, the same
-- rights on another one.
CREATE FUNCTION tidewire.grant_as(model regclass, other regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	one record;
	kind text := (SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END FROM pg_class WHERE oid = other);
BEGIN
	FOR one IN
		SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee, string_agg(a.privilege_type, ', ') AS privileges
		FROM pg_class AS c, aclexplode(c.relacl) AS a WHERE c.oid = model GROUP BY a.grantee
	LOOP
		EXECUTE format('GRANT %s ON %s %s TO %s', one.privileges, kind, other, one.grantee);
	END LOOP;
END
$$;

-- own_stream moves a shared stream to separate tables, with its messages, idempotency records, and floor. It locks the row first
-- and then takes the stream's lock, as drop_stream does; the row lock excludes drop_shared. READ COMMITTED.
--
-- Runs with the rights of the role that migrated, which owns the tables.
CREATE FUNCTION tidewire.own_stream(stream_id int) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	s tidewire.stream;
	head bigint;
	low bigint;
BEGIN
	SELECT * INTO s FROM tidewire.stream WHERE id = stream_id FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stream % was dropped', stream_id USING ERRCODE = 'undefined_table';
	ELSIF NOT s.shared THEN
		RETURN;
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	head := tidewire.shared_head(stream_id);
	low := coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = stream_id ORDER BY f.floor DESC LIMIT 1), 0);
	PERFORM tidewire.note_growth();
	PERFORM tidewire.create_stream_table(stream_id, s.keyed);
	PERFORM tidewire.grant_as('tidewire.shared_message', 'tidewire.stream_' || stream_id);
	PERFORM tidewire.grant_as('tidewire.shared_top_seq', 'tidewire.stream_' || stream_id || '_position_seq');
	PERFORM tidewire.grant_as('tidewire.shared_top_seq', 'tidewire.stream_' || stream_id || '_oldest_seq');
	UPDATE tidewire.stream SET shared = false WHERE id = stream_id;
	IF head > 0 THEN
		PERFORM tidewire.make_room(stream_id, 0, head);
		PERFORM setval(('tidewire.stream_' || stream_id || '_position_seq')::regclass, head);
		EXECUTE format('INSERT INTO tidewire.%I (position, created_at, key, headers, payload)
			SELECT position, created_at, key, headers, payload FROM tidewire.shared_message WHERE stream = $1 AND position > $2 ORDER BY position',
			'stream_' || stream_id) USING stream_id, low;
		DELETE FROM tidewire.shared_message WHERE stream = stream_id AND position > low;
		PERFORM tidewire.own_shared_requests(stream_id);
	END IF;
	IF low > 0 THEN
		PERFORM setval(('tidewire.stream_' || stream_id || '_oldest_seq')::regclass, low + 1);
		DELETE FROM tidewire.shared_floor WHERE stream = stream_id;
	END IF;
END
$$;
