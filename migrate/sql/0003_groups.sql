-- What readers of streams need, and publishing with the application's own
-- transaction.

-- stream_heads is the poll of a process for all streams that it follows: one
-- query, and only the streams that have moved are looked into. It returns the
-- streams whose sequence does not stand where the caller knows it settled,
-- with where it stands and with the last committed position; a head of NULL
-- says that the stream was dropped.
--
-- The sequence alone would not do, for it is moved before the commit: a caller
-- that read at that moment found nothing, and would never be told again. So a
-- caller takes a stream for settled only once its head has reached the
-- sequence. A gap at the end of a stream costs one index probe a poll.
--
-- It waits for nobody long: a table that somebody is altering is left out.
CREATE FUNCTION tidewire.stream_heads(ids int[], settled bigint[])
RETURNS TABLE (id int, reserved bigint, head bigint)
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
	positions regclass;
BEGIN
	FOR i IN 1 .. cardinality(ids) LOOP
		BEGIN
			id := ids[i];
			head := NULL;
			positions := to_regclass('tidewire.stream_' || id || '_position_seq');
			IF positions IS NOT NULL THEN
				reserved := coalesce(pg_sequence_last_value(positions), 0);
				CONTINUE WHEN reserved = settled[i];
				EXECUTE format('SELECT coalesce(max(position), 0) FROM tidewire.%I', 'stream_' || id) INTO head;
			END IF;
			RETURN NEXT;
		EXCEPTION WHEN undefined_table OR lock_not_available OR internal_error THEN
			NULL; -- being dropped, as the next poll will see, or being altered
		END;
	END LOOP;
END
$$;

-- The groups of the streams. Ids are never used again.
CREATE TABLE tidewire.stream_group (
	id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	stream int NOT NULL REFERENCES tidewire.stream ON DELETE CASCADE,
	name text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
	created_at timestamptz NOT NULL DEFAULT now(),
	UNIQUE (stream, name)
);

-- The offsets that groups committed, one row each time, never updated: the
-- offset of a group is its last row in the order of the key. A row updated in
-- place would leave a dead version with every commit, which a long transaction
-- elsewhere keeps: each commit then walks past all of them.
--
-- A commit adds (sequence of the last row, position); only a seek raises the
-- sequence. So commits that race need no lock and no order among themselves:
-- the highest position wins.
--
-- There are two such tables. One is in use, and when it has grown, the last
-- rows are copied to the other one, which is in use from then on, and the old
-- one is truncated. Nothing is deleted row by row, so there is nothing for
-- autovacuum to do.
CREATE TABLE tidewire.group_offset_0 (
	group_id int NOT NULL,
	sequence bigint NOT NULL,
	position bigint NOT NULL CHECK (position >= 0),
	PRIMARY KEY (group_id, sequence, position)
) WITH (autovacuum_enabled = false);
CREATE TABLE tidewire.group_offset_1 (LIKE tidewire.group_offset_0 INCLUDING ALL)
	WITH (autovacuum_enabled = false);

-- Which of the two is in use: one row, updated once a rotation. rotate_at is
-- the size from which rotating is worth it.
CREATE TABLE tidewire.group_rotation (
	current int NOT NULL,
	rotate_at bigint NOT NULL
);
INSERT INTO tidewire.group_rotation VALUES (0, 0);

-- hold_offsets returns the name of the table in use, which stays so until the
-- end of the transaction: lock 2 is taken by all who read or write offsets,
-- shared, and by a rotation alone. What comes behind it in the transaction has
-- to see what was committed before the lock was granted: only READ COMMITTED
-- does.
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

-- read_offsets returns the offset of each of the groups that exists.
--
-- The statements here and below are made for the table in use and planned each
-- time: a plan kept from a small table is the wrong one for a large.
CREATE FUNCTION tidewire.read_offsets(ids int[])
RETURNS TABLE (id int, committed bigint) LANGUAGE plpgsql AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		SELECT g.id, o.position FROM tidewire.stream_group AS g
		CROSS JOIN LATERAL (
			SELECT position FROM tidewire.%I WHERE group_id = g.id
			ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
		) AS o WHERE g.id = ANY ($1)$sql$, in_use) USING ids;
END
$$;

-- commit_offsets moves offsets forward, to the position given for each group,
-- and returns what the offsets are then, of the groups that exist. A position
-- that is not higher than the offset writes nothing.
CREATE FUNCTION tidewire.commit_offsets(ids int[], positions bigint[])
RETURNS TABLE (id int, committed bigint, written boolean) LANGUAGE plpgsql AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		WITH given AS (
			SELECT g.id, o.sequence, o.position, u.position AS wanted
			FROM unnest($1, $2) AS u (id, position)
			JOIN tidewire.stream_group AS g ON g.id = u.id
			CROSS JOIN LATERAL (
				SELECT sequence, position FROM tidewire.%1$I WHERE group_id = g.id
				ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
			) AS o
		), added AS (
			INSERT INTO tidewire.%1$I (group_id, sequence, position)
			SELECT g.id, g.sequence, g.wanted FROM given AS g WHERE g.wanted > g.position
			ORDER BY g.id -- as all do, so that equal rows cannot deadlock
			ON CONFLICT DO NOTHING
		)
		SELECT g.id, greatest(g.wanted, g.position), g.wanted > g.position FROM given AS g$sql$, in_use)
		USING ids, positions;
END
$$;

-- seek_offset sets the offset of a group to any position, above everything
-- that is committed, and tells whether the group exists.
CREATE FUNCTION tidewire.seek_offset(group_id int, to_position bigint)
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
		USING group_id, last_sequence + 1, to_position;
	RETURN true;
END
$$;

-- ensure_group returns the id of a stream's group of that name, as it is or
-- newly made, at the position given. The loop is as in ensure_stream.
CREATE FUNCTION tidewire.ensure_group(stream_id int, group_name text, start bigint)
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
			EXECUTE format('INSERT INTO tidewire.%I VALUES ($1, 1, $2)', in_use) USING group_id, start;
			RETURN group_id;
		END IF;
	END LOOP;
END
$$;

-- rotate_offsets copies the offsets to the other table, which is in use from
-- then on, if the one in use holds about max_rows, and tells whether it did.
-- Rows of groups that were dropped stay behind.
--
-- It waits for the commits under way, and new ones wait for it: for 100 ms at
-- most, then it gives up, and the caller tries again later. The other table
-- must have been truncated; until it can be, the one in use grows.
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
		RETURN false; -- another process was first, or the old rows are still there
	END IF;
	EXECUTE format($sql$
		INSERT INTO tidewire.%I
		SELECT o.* FROM tidewire.stream_group AS g
		CROSS JOIN LATERAL (
			SELECT * FROM tidewire.%I WHERE group_id = g.id
			ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
		) AS o$sql$, 'group_offset_' || 1 - in_use, 'group_offset_' || in_use);
	GET DIAGNOSTICS copied = ROW_COUNT;
	-- Many groups alone fill a table: it is to double before it is worth it.
	UPDATE tidewire.group_rotation SET current = 1 - in_use, rotate_at = 2 * copied * row_size;
	RETURN true;
END
$$;

-- truncate_offsets empties the table that is not in use, in a transaction of
-- its own behind the rotation. A transaction that has read the table, and goes
-- on, makes it give up at once; nobody waits behind it, for nobody needs that
-- table.
CREATE FUNCTION tidewire.truncate_offsets()
RETURNS void LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
	old text := CASE tidewire.hold_offsets() WHEN 'group_offset_0' THEN 'group_offset_1' ELSE 'group_offset_0' END;
BEGIN
	IF pg_relation_size(('tidewire.' || old)::regclass) > 0 THEN
		EXECUTE format('LOCK TABLE tidewire.%I IN ACCESS EXCLUSIVE MODE NOWAIT', old);
		EXECUTE format('TRUNCATE tidewire.%I', old);
	END IF;
END
$$;

-- The outbox: messages that a transaction of the application publishes, which
-- get their positions, under the lock, only when it commits. Until then nobody
-- waits for it, however long it is idle.
--
-- It is a temporary table of the session that is emptied by truncation at the
-- end of each transaction. A table shared by all would have to be emptied row
-- by row, and a long transaction elsewhere would keep all of the dead rows;
-- and its rows would go through the WAL twice. Behind a pooler the table is
-- that of the server's session, which is right: a transaction never changes
-- sessions. It is made at a session's first message, and rules out PREPARE
-- TRANSACTION. The second table holds at most one row: its trigger is to fire
-- once a transaction, and not once a message.
--
-- The functions run with the rights of who migrated: the application needs
-- USAGE on this schema and EXECUTE on publish, and a session may change its
-- role between messages.
CREATE FUNCTION tidewire.open_outbox() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	CREATE TEMPORARY TABLE tidewire_outbox (
		number bigint GENERATED ALWAYS AS IDENTITY, -- order of the calls
		stream int NOT NULL,
		key text,
		headers jsonb,
		payload bytea NOT NULL
	) ON COMMIT DELETE ROWS;
	CREATE TEMPORARY TABLE tidewire_outbox_due (due boolean) ON COMMIT DELETE ROWS;
	CREATE CONSTRAINT TRIGGER tidewire_move_outbox AFTER INSERT ON pg_temp.tidewire_outbox_due
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tidewire.move_outbox();
END
$$;

-- move_outbox gives the transaction's messages their positions and stores
-- them. Locks are taken in the order of ids, so that two transactions with the
-- same streams do not deadlock; who has other locks may, and gets 40P01.
--
-- It is right under every isolation: it reads nothing of the stream's table,
-- and a sequence shows where it stands, not where it stood when the
-- transaction began. The time is that of the commit and not of the
-- transaction's beginning, which may be hours ago.
CREATE FUNCTION tidewire.move_outbox() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	target record;
	positions regclass;
	head bigint;
BEGIN
	-- First, and the messages last: what is published behind this, by another
	-- trigger or with constraints set immediate, is due again.
	DELETE FROM pg_temp.tidewire_outbox_due;
	FOR target IN SELECT stream, count(*) AS size FROM pg_temp.tidewire_outbox GROUP BY stream ORDER BY stream LOOP
		PERFORM pg_advisory_xact_lock(1953064037, target.stream);
		BEGIN
			positions := ('tidewire.stream_' || target.stream || '_position_seq')::regclass;
			head := coalesce(pg_sequence_last_value(positions), 0);
		EXCEPTION WHEN undefined_table OR internal_error THEN -- the latter while it was waited for
			RAISE EXCEPTION 'stream % was dropped', target.stream USING ERRCODE = 'TW003';
		END;
		PERFORM setval(positions, head + target.size);
		EXECUTE format($sql$
			INSERT INTO tidewire.%I (position, created_at, key, headers, payload)
			SELECT $1 + row_number() OVER (ORDER BY number), $2, key, headers, payload
			FROM pg_temp.tidewire_outbox WHERE stream = $3$sql$, 'stream_' || target.stream)
			USING head, clock_timestamp(), target.stream;
	END LOOP;
	DELETE FROM pg_temp.tidewire_outbox;
	RETURN NULL;
END
$$;

-- publish_batch publishes messages to one stream: element n of the arrays is
-- message n. The caller has looked at what is in them.
CREATE FUNCTION tidewire.publish_batch(stream_id int, keys text[], headers jsonb[], payloads bytea[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM FROM tidewire.stream WHERE id = stream_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no stream %', stream_id USING ERRCODE = 'TW003';
	END IF;
	IF to_regclass('pg_temp.tidewire_outbox') IS NULL THEN
		PERFORM tidewire.open_outbox();
	END IF;
	INSERT INTO pg_temp.tidewire_outbox (stream, key, headers, payload)
		SELECT stream_id, nullif(k, ''), h, p
		FROM unnest(keys, headers, payloads) WITH ORDINALITY AS t (k, h, p, n) ORDER BY n;
	IF NOT EXISTS (SELECT FROM pg_temp.tidewire_outbox_due) THEN
		INSERT INTO pg_temp.tidewire_outbox_due VALUES (true);
	END IF;
END
$$;

-- publish publishes one message with the caller's transaction: it is stored
-- when that commits, and not if it does not. Any language can call it. Key and
-- headers may be NULL. SQLSTATE TW003: there is no such stream; TW004: not a
-- message. The limits are those of package stream.
CREATE FUNCTION tidewire.publish(stream text, key text, headers jsonb, payload bytea)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	stream_id int := (SELECT s.id FROM tidewire.stream AS s WHERE s.name = publish.stream);
BEGIN
	IF stream_id IS NULL THEN
		RAISE EXCEPTION 'there is no stream %', quote_nullable(stream) USING ERRCODE = 'TW003';
	END IF;
	IF payload IS NULL OR octet_length(payload) > 256 * 1024 * 1024 THEN
		RAISE EXCEPTION 'message payload: want 0 to 268435456 bytes' USING ERRCODE = 'TW004';
	END IF;
	IF octet_length(key) > 1024 THEN
		RAISE EXCEPTION 'message key: want at most 1024 bytes' USING ERRCODE = 'TW004';
	END IF;
	IF jsonb_typeof(headers) <> 'object' OR octet_length(headers::text) > 64 * 1024 THEN
		RAISE EXCEPTION 'message headers: want a JSON object of at most 65536 bytes' USING ERRCODE = 'TW004';
	END IF;
	PERFORM tidewire.publish_batch(stream_id, ARRAY[key], ARRAY[headers], ARRAY[payload]);
END
$$;

REVOKE EXECUTE ON FUNCTION tidewire.open_outbox(), tidewire.move_outbox(),
	tidewire.publish_batch(int, text[], jsonb[], bytea[]), tidewire.publish(text, text, jsonb, bytea) FROM PUBLIC;
