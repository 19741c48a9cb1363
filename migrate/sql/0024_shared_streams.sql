-- Streams share a table, until they have so many messages that they get tables of their own.

-- The messages of all streams whose row says that they are shared. Such a stream
-- has no table, index or sequence: making one is a row, and a transaction with
-- messages for many of them is one INSERT. The rest, as retention, the records of
-- producers and queues, is done with tables of a stream's own: see own_stream.
--
-- keyed is that of the stream, for the index. Columns of a fixed width come first.
CREATE TABLE tidewire.shared_message (
	position bigint NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	stream int NOT NULL,
	keyed boolean NOT NULL,
	key text COLLATE "C",
	headers jsonb,
	payload bytea NOT NULL,
	PRIMARY KEY (stream, position)
);
CREATE INDEX shared_message_key_idx ON tidewire.shared_message (stream, key, position) WHERE keyed AND key IS NOT NULL;
ALTER TABLE tidewire.stream ADD COLUMN shared boolean NOT NULL DEFAULT false;

-- shared_top_seq is never before the head of any shared stream. A transaction with an
-- old snapshot, which does not see where a stream ends, goes on after it.
CREATE SEQUENCE tidewire.shared_top_seq START WITH 1024 INCREMENT BY 1024 CACHE 1;

CREATE FUNCTION tidewire.raise_shared_top(upto bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	WHILE coalesce(pg_sequence_last_value('tidewire.shared_top_seq'), 0) < upto LOOP
		PERFORM nextval('tidewire.shared_top_seq');
	END LOOP;
END
$$;

-- shared_head is the position of the last message of a shared stream, or 0. Whoever has
-- the stream's lock, in READ COMMITTED, sees the last there is.
--
-- Plans of functions are kept. One that was made while the table was small might sort all
-- rows of a stream, or scan the table, long after that: so these all have to use an index.
CREATE FUNCTION tidewire.shared_head(stream_id int) RETURNS bigint
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
	RETURN coalesce((SELECT m.position FROM tidewire.shared_message AS m WHERE m.stream = stream_id ORDER BY m.position DESC LIMIT 1), 0);
END
$$;

-- read_shared returns most messages of a stream after one position, and up to another,
-- in order: those with which a page reaches so many bytes, or all if bytes is NULL. The row
-- after them is no message: -1, with the end of the stream as its key, and headers if the
-- stream has tables of its own. There is none without the stream. All is of one snapshot.
--
-- A message counts with what it holds at least, told without fetching it: see
-- contentBytes in package stream.
CREATE FUNCTION tidewire.read_shared(stream_id int, after bigint, upto bigint, most bigint, bytes bigint)
RETURNS TABLE ("position" bigint, key text, headers jsonb, payload bytea, created_at timestamptz)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
	IF bytes IS NULL THEN
		RETURN QUERY SELECT m.position, coalesce(m.key, ''), m.headers, m.payload, m.created_at FROM tidewire.shared_message AS m
			WHERE m.stream = stream_id AND m.position > after AND m.position <= upto ORDER BY m.position LIMIT most;
	ELSE
		RETURN QUERY SELECT c.position, coalesce(c.key, ''), c.headers, c.payload, c.created_at FROM (
			SELECT m.*, sum(octet_length(m.payload) + coalesce(pg_column_size(m.headers), 0) / 8)
				OVER (ORDER BY m.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM (
				SELECT * FROM tidewire.shared_message AS m
				WHERE m.stream = stream_id AND m.position > after AND m.position <= upto ORDER BY m.position LIMIT most
			) AS m
		) AS c WHERE coalesce(c.before, 0) < bytes ORDER BY c.position;
	END IF;
	RETURN QUERY SELECT -1::bigint, tidewire.shared_head(s.id)::text, CASE WHEN NOT s.shared THEN '{}'::jsonb END, ''::bytea, 'epoch'::timestamptz
		FROM tidewire.stream AS s WHERE s.id = stream_id;
END
$$;

-- grant_as lets those who may use a relation, by GRANT or as its owner, use another one in
-- the same way.
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

-- own_stream gives a shared stream tables of its own, with its messages. It takes the row before the lock, as drop_stream does.
-- READ COMMITTED.
--
-- Runs with the rights of who migrated, who owns the tables. A role of its own
-- for Tidewire needs EXECUTE on this.
CREATE FUNCTION tidewire.own_stream(stream_id int) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	s tidewire.stream;
	head bigint;
BEGIN
	SELECT * INTO s FROM tidewire.stream WHERE id = stream_id FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stream % was dropped', stream_id USING ERRCODE = 'undefined_table';
	ELSIF NOT s.shared THEN
		RETURN;
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	head := tidewire.shared_head(stream_id);
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
			SELECT position, created_at, key, headers, payload FROM tidewire.shared_message WHERE stream = $1 ORDER BY position',
			'stream_' || stream_id) USING stream_id;
		DELETE FROM tidewire.shared_message WHERE stream = stream_id;
	END IF;
END
$$;

-- take_shared is take_positions for a shared stream: the rows come next, in the same
-- transaction. It fails with TW010 if the stream has tables of its own.
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
	head := tidewire.shared_head(stream_id);
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	PERFORM tidewire.raise_shared_top(head + size);
	PERFORM tidewire.note_growth();
	RETURN head + 1;
END
$$;

-- append_together as before. The batches of shared streams are stored by one INSERT,
-- after those of the others; one with requests is left out.
CREATE OR REPLACE FUNCTION tidewire.append_together(
	writer bigint, number bigint, streams int[], sizes int[], payloads bytea[], keys text[], headers jsonb[],
	request_sizes int[], producers text[], sequences bigint[], rows bigint[], counts int[],
	OUT firsts bigint[], OUT at timestamptz, OUT slowest int, OUT slowest_ms bigint
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	began timestamptz;
	ended timestamptz;
	took bigint;
	from_row int := 1;
	to_row int;
	from_request int := 1;
	to_request int;
	from_rows int[];
	from_requests int[];
	locked int[];
	shared int[];
	top bigint := 0;
	one record;
	positions regclass;
	head bigint;
BEGIN
	firsts := array_fill(0::bigint, ARRAY[cardinality(streams)]);
	at := now();
	slowest := 1;
	slowest_ms := 0;
	FOR i IN 1 .. cardinality(streams) LOOP
		from_rows[i] := from_row;
		from_row := from_row + sizes[i];
		from_requests[i] := from_request;
		from_request := from_request + request_sizes[i];
		IF pg_try_advisory_xact_lock(1953064037, streams[i]) THEN
			locked := locked || i;
		END IF;
	END LOOP;
	began := clock_timestamp();
	-- Begins after the locks were granted, and so sees all that was committed under them.
	FOR one IN
		SELECT l.i, s.id, s.shared, h.position FROM unnest(locked) AS l (i)
		JOIN tidewire.stream AS s ON s.id = streams[l.i]
		LEFT JOIN LATERAL (
			SELECT m.position FROM tidewire.shared_message AS m WHERE m.stream = s.id AND s.shared ORDER BY m.position DESC LIMIT 1
		) AS h ON true ORDER BY l.i
	LOOP
		from_row := from_rows[one.i];
		to_row := from_row + sizes[one.i] - 1;
		from_request := from_requests[one.i];
		to_request := from_request + request_sizes[one.i] - 1;
		IF one.shared THEN
			IF to_request < from_request THEN
				head := coalesce(one.position, 0);
				firsts[one.i] := head + 1;
				top := greatest(top, head + sizes[one.i]);
				shared := shared || one.i;
			END IF;
			CONTINUE;
		END IF;
		positions := to_regclass('tidewire.stream_' || one.id || '_position_seq');
		CONTINUE WHEN positions IS NULL; -- it has partitions
		IF to_request >= from_request THEN
			PERFORM FROM tidewire.find_requests(one.id, producers[from_request:to_request], sequences[from_request:to_request]) AS f
				WHERE f.first IS NOT NULL OR f.too_old;
			CONTINUE WHEN FOUND;
		END IF;
		head := coalesce(pg_sequence_last_value(positions), 0);
		IF head + sizes[one.i] >= (SELECT grow_at FROM tidewire.segment WHERE stream = one.id ORDER BY last DESC LIMIT 1) THEN
			PERFORM tidewire.make_room(one.id, head, head + sizes[one.i]);
		END IF;
		PERFORM setval(positions, head + sizes[one.i]);
		IF to_request >= from_request THEN
			PERFORM tidewire.record_requests(one.id, sizes[one.i], producers[from_request:to_request],
				sequences[from_request:to_request], rows[from_request:to_request], counts[from_request:to_request]);
		END IF;
		IF sizes[one.i] = 1 THEN
			EXECUTE format('INSERT INTO tidewire.%I (position, payload, key, headers) VALUES ($1, $2, $3, $4)', 'stream_' || one.id)
				USING head + 1, payloads[from_row], keys[from_row], headers[from_row];
		ELSE
			EXECUTE format('INSERT INTO tidewire.%I (position, payload, key, headers)
				SELECT $1 + n, p, k, h FROM unnest($2, $3, $4) WITH ORDINALITY AS t (p, k, h, n)', 'stream_' || one.id)
				USING head, payloads[from_row:to_row], keys[from_row:to_row], headers[from_row:to_row];
		END IF;
		firsts[one.i] := head + 1;
		ended := clock_timestamp();
		took := 1000 * extract(epoch FROM ended - began);
		IF took > slowest_ms THEN
			slowest := one.i;
			slowest_ms := took;
		END IF;
		began := ended;
	END LOOP;
	IF shared IS NOT NULL THEN
		PERFORM tidewire.raise_shared_top(top);
		INSERT INTO tidewire.shared_message (stream, position, keyed, payload, key, headers)
			SELECT b.stream, b.first + r.n - b.from_row, b.keyed, r.p, r.k, r.h
			FROM (
				SELECT streams[i] AS stream, firsts[i] AS first, from_rows[i] AS from_row, s.keyed, from_rows[i] + g AS n
				FROM unnest(shared) AS i JOIN tidewire.stream AS s ON s.id = streams[i], generate_series(0, sizes[i] - 1) AS g
			) AS b
			JOIN unnest(payloads, keys, headers) WITH ORDINALITY AS r (p, k, h, n) USING (n);
	END IF;
	INSERT INTO tidewire.batch (writer, number, first_position, firsts) VALUES (writer, number, 0, firsts);
	PERFORM tidewire.note_growth();
END
$$;

-- ensure_stream as before. With own, the stream gets tables of its own if it is made.
DROP FUNCTION tidewire.ensure_stream(text, boolean);
CREATE FUNCTION tidewire.ensure_stream(stream_name text, stream_keyed boolean, own boolean DEFAULT false)
RETURNS tidewire.stream LANGUAGE plpgsql AS $$
DECLARE
	found_or_made tidewire.stream;
BEGIN
	LOOP
		SELECT * INTO found_or_made FROM tidewire.stream WHERE name = stream_name;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
		INSERT INTO tidewire.stream (name, keyed, shared) VALUES (stream_name, stream_keyed, NOT own)
			ON CONFLICT (name) DO NOTHING RETURNING * INTO found_or_made;
		IF FOUND THEN
			IF own THEN
				PERFORM tidewire.create_stream_table(found_or_made.id, stream_keyed);
			END IF;
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;

-- ensure_partitioned as before. The row of a partitioned stream says of its partitions
-- whether they are made shared.
DROP FUNCTION tidewire.ensure_partitioned(text, boolean, int);
CREATE FUNCTION tidewire.ensure_partitioned(stream_name text, stream_keyed boolean, count int, own boolean DEFAULT false)
RETURNS tidewire.stream LANGUAGE plpgsql AS $$
DECLARE
	found_or_made tidewire.stream;
	taken text;
BEGIN
	LOOP
		SELECT * INTO found_or_made FROM tidewire.stream WHERE name = stream_name;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
		SELECT name INTO taken FROM tidewire.stream
			WHERE name = ANY (ARRAY(SELECT stream_name || '/' || n FROM generate_series(0, count - 1) AS n)) LIMIT 1;
		IF FOUND THEN
			RAISE EXCEPTION 'stream % exists and is no partition', quote_ident(taken) USING ERRCODE = 'TW006';
		END IF;
		INSERT INTO tidewire.stream (name, keyed, partitions, state, shared) VALUES (stream_name, stream_keyed, count, 'making', NOT own)
			ON CONFLICT (name) DO NOTHING RETURNING * INTO found_or_made;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION tidewire.make_partitions(stream_id int, most int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	whole tidewire.stream;
	made int;
	id int;
BEGIN
	SELECT * INTO whole FROM tidewire.stream AS s WHERE s.id = stream_id FOR UPDATE;
	IF NOT FOUND OR whole.state <> 'making' THEN
		RETURN coalesce(whole.state, 'dropping'); -- another one has dropped it
	END IF;
	SELECT count(*) INTO made FROM tidewire.stream AS s WHERE s.parent = stream_id;
	FOR n IN made .. least(made + most, whole.partitions) - 1 LOOP
		INSERT INTO tidewire.stream (name, keyed, parent, partition, shared)
			VALUES (whole.name || '/' || n, whole.keyed, stream_id, n, whole.shared) RETURNING tidewire.stream.id INTO id;
		IF NOT whole.shared THEN
			PERFORM tidewire.create_stream_table(id, whole.keyed);
		END IF;
	END LOOP;
	IF made + most < whole.partitions THEN
		RETURN 'making';
	END IF;
	UPDATE tidewire.stream AS s SET state = 'ready' WHERE s.id = stream_id;
	RETURN 'ready';
END
$$;

CREATE OR REPLACE FUNCTION tidewire.drop_stream_tables(stream_id int) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	PERFORM tidewire.note_growth();
	DELETE FROM tidewire.shared_message WHERE stream = stream_id;
	EXECUTE format('DROP TABLE IF EXISTS tidewire.%I', 'stream_' || stream_id);
	DELETE FROM tidewire.segment WHERE stream = stream_id;
	DELETE FROM tidewire.producer_window WHERE stream = stream_id;
	IF FOUND THEN
		EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I, tidewire.%I', 'producer_' || stream_id || '_0',
			'producer_' || stream_id || '_1', 'producer_' || stream_id || '_floor');
	END IF;
END
$$;

-- move_outbox as before. LOCK TABLE has PostgreSQL look the name up anew: a table that was
-- made while the lock was waited for is not known here yet.
CREATE OR REPLACE FUNCTION tidewire.move_outbox() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	target record;
	positions regclass;
	head bigint;
BEGIN
	-- First, and the messages last: what is published behind this, by another
	-- trigger or with constraints set immediate, is due again.
	DELETE FROM pg_temp.tidewire_outbox_due;
	PERFORM tidewire.note_growth();
	FOR target IN SELECT stream, count(*) AS size FROM pg_temp.tidewire_outbox GROUP BY stream ORDER BY stream LOOP
		PERFORM pg_advisory_xact_lock(1953064037, target.stream);
		IF tidewire.move_outbox_shared(target.stream, target.size) THEN
			CONTINUE;
		END IF;
		BEGIN
			EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ROW EXCLUSIVE MODE', 'stream_' || target.stream);
			positions := ('tidewire.stream_' || target.stream || '_position_seq')::regclass;
			head := coalesce(pg_sequence_last_value(positions), 0);
		EXCEPTION WHEN undefined_table OR internal_error THEN -- the latter while it was waited for
			RAISE EXCEPTION 'stream % was dropped', target.stream USING ERRCODE = 'TW003';
		END;
		PERFORM tidewire.make_room(target.stream, head, head + target.size);
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

-- move_outbox_shared moves the messages of one stream, whose lock the caller has, and
-- returns false if it has tables of its own.
--
-- A snapshot that is older than the lock may not show that, nor where the stream ends. Then
-- FOR SHARE fails if the stream was moved or dropped since, and the messages come after
-- shared_top_seq, which leaves a gap. It does not wait: who has locked the row waits for the
-- stream's lock, and then finds what is stored here.
CREATE FUNCTION tidewire.move_outbox_shared(stream_id int, size bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	s tidewire.stream;
	head bigint;
BEGIN
	SELECT * INTO s FROM tidewire.stream WHERE id = stream_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stream % was dropped', stream_id USING ERRCODE = 'TW003';
	ELSIF NOT s.shared THEN
		RETURN false;
	END IF;
	IF current_setting('transaction_isolation') = 'read committed' THEN
		head := tidewire.shared_head(stream_id);
	ELSE
		BEGIN
			PERFORM FROM tidewire.stream WHERE id = stream_id FOR SHARE NOWAIT;
		EXCEPTION
			WHEN lock_not_available THEN
				NULL;
			WHEN serialization_failure THEN
				BEGIN
					EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ROW EXCLUSIVE MODE', 'stream_' || stream_id);
					RETURN false;
				EXCEPTION WHEN undefined_table THEN
					RAISE EXCEPTION 'could not serialize access to stream %, which may be dropped', stream_id USING ERRCODE = 'serialization_failure';
				END;
		END;
		head := coalesce(pg_sequence_last_value('tidewire.shared_top_seq'), 0);
	END IF;
	PERFORM tidewire.raise_shared_top(head + size);
	INSERT INTO tidewire.shared_message (stream, position, created_at, keyed, key, headers, payload)
		SELECT stream_id, head + row_number() OVER (ORDER BY number), clock_timestamp(), s.keyed, key, headers, payload
		FROM pg_temp.tidewire_outbox WHERE stream = stream_id;
	RETURN true;
END
$$;

-- stream_state as before. Of a shared stream nothing was dropped, and nothing is said to
-- be reserved that is not committed.
CREATE OR REPLACE FUNCTION tidewire.stream_state(stream_id int, OUT head bigint, OUT oldest bigint, OUT reserved bigint)
LANGUAGE plpgsql AS $$
DECLARE
	name text := 'stream_' || stream_id;
	back bigint := 1024;
BEGIN
	SELECT tidewire.shared_head(id) INTO head FROM tidewire.stream WHERE id = stream_id AND shared AND partitions = 0;
	IF FOUND THEN
		oldest := 1;
		reserved := head;
		RETURN;
	END IF;
	-- Holds off a drop, without which the sequences could vanish.
	EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS SHARE MODE', name);
	reserved := coalesce(pg_sequence_last_value(('tidewire.' || name || '_position_seq')::regclass), 0);
	oldest := coalesce(pg_sequence_last_value(('tidewire.' || name || '_oldest_seq')::regclass), 1);
	LOOP
		EXECUTE format('SELECT max(position) FROM tidewire.%I WHERE position > %s', name, reserved - back) INTO head;
		EXIT WHEN head IS NOT NULL OR reserved - back < oldest;
		back := 16 * back;
	END LOOP;
	head := coalesce(head, oldest - 1);
END
$$;

-- stream_heads as before. All shared streams take one query. One that gets tables of its
-- own between the two is told by the next look: growth_seq moves with that.
CREATE OR REPLACE FUNCTION tidewire.stream_heads(ids int[], settled bigint[])
RETURNS TABLE (id int, reserved bigint, head bigint)
LANGUAGE plpgsql SET lock_timeout = '100ms' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	positions regclass;
	others int[] := ARRAY(SELECT n FROM generate_subscripts(ids, 1) AS n
		WHERE NOT EXISTS (SELECT FROM tidewire.stream AS s WHERE s.id = ids[n] AND s.shared));
	i int;
BEGIN
	RETURN QUERY
		SELECT s.id, coalesce(h.position, 0), coalesce(h.position, 0) FROM unnest(ids, settled) AS u (stream, seen)
		JOIN tidewire.stream AS s ON s.id = u.stream AND s.shared
		LEFT JOIN LATERAL (
			SELECT m.position FROM tidewire.shared_message AS m WHERE m.stream = s.id ORDER BY m.position DESC LIMIT 1
		) AS h ON true WHERE coalesce(h.position, 0) <> u.seen;
	FOREACH i IN ARRAY others LOOP
		BEGIN
			id := ids[i];
			head := NULL;
			positions := to_regclass('tidewire.stream_' || id || '_position_seq');
			IF positions IS NOT NULL THEN
				reserved := coalesce(pg_sequence_last_value(positions), 0);
				CONTINUE WHEN reserved = settled[i];
				SELECT s.head INTO head FROM tidewire.stream_state(id) AS s;
			ELSIF EXISTS (SELECT FROM tidewire.stream AS s WHERE s.id = ids[i]) THEN
				reserved := -1; -- its tables were made just now
				head := 0;
			END IF;
			RETURN NEXT;
		EXCEPTION WHEN undefined_table OR lock_not_available OR internal_error THEN
			reserved := -1;
			head := 0;
			RETURN NEXT;
		END;
	END LOOP;
END
$$;

-- stream_reserved is a position before which nothing is given out any more. A stream that is
-- moved while a query runs may be shared to that, and not here, or the other way round. LOCK
-- TABLE is as in move_outbox; it also fails if there is no such stream.
CREATE FUNCTION tidewire.stream_reserved(stream_id int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	head bigint;
BEGIN
	SELECT tidewire.shared_head(id) INTO head FROM tidewire.stream WHERE id = stream_id AND shared;
	IF FOUND THEN
		RETURN head;
	END IF;
	IF to_regclass('tidewire.stream_' || stream_id || '_position_seq') IS NULL THEN
		EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS SHARE MODE', 'stream_' || stream_id);
	END IF;
	RETURN coalesce(pg_sequence_last_value(('tidewire.stream_' || stream_id || '_position_seq')::regclass), 0);
EXCEPTION WHEN undefined_table OR internal_error THEN
	RETURN 0; -- dropped
END
$$;

-- commit_offsets as before, by where the stream ends. EXECUTE plans anew each time.
CREATE OR REPLACE FUNCTION tidewire.commit_offsets(ids int[], positions bigint[])
RETURNS TABLE (id int, committed bigint, written boolean) LANGUAGE plpgsql AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		WITH given AS MATERIALIZED (
			SELECT DISTINCT ON (w.id) * FROM (
				SELECT g.id, o.sequence, o.position, u.position AS wanted,
					u.position > o.position AND u.position > CASE WHEN s.shared THEN coalesce((
						SELECT m.position FROM tidewire.shared_message AS m WHERE m.stream = g.stream ORDER BY m.position DESC LIMIT 1
					), 0) ELSE tidewire.stream_reserved(g.stream) END AS ahead
				FROM unnest($1, $2) AS u (id, position)
				JOIN tidewire.stream_group AS g ON g.id = u.id
				JOIN tidewire.stream AS s ON s.id = g.stream
				LEFT JOIN LATERAL (
					SELECT sequence, position FROM tidewire.%1$I WHERE group_id = g.id
					ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
				) AS o ON true
			) AS w ORDER BY w.id, w.ahead, w.wanted DESC
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

-- read_key as before. A shared stream that gets tables of its own meanwhile is read there:
-- one query sees all of its shared messages, or none.
CREATE OR REPLACE FUNCTION tidewire.read_key(
	stream_id int, the_key text, after bigint, upto bigint, most int, backward boolean
) RETURNS TABLE ("position" bigint, key text, headers jsonb, payload bytea, created_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	parent text := 'stream_' || stream_id;
	direction text := CASE WHEN backward THEN 'DESC' ELSE 'ASC' END;
	segment_last bigint;
	found_here int;
BEGIN
	PERFORM FROM tidewire.stream WHERE id = stream_id AND shared;
	IF FOUND THEN
		RETURN QUERY EXECUTE format($sql$
			SELECT position, key, headers, payload, created_at FROM tidewire.shared_message
			WHERE keyed AND key IS NOT NULL AND stream = $5 AND (key, position) > ($1, $2) AND (key, position) <= ($1, $3)
			ORDER BY key %s, position %s LIMIT $4$sql$, direction, direction)
			USING the_key, after, upto, most, stream_id;
		IF FOUND THEN
			RETURN;
		END IF;
		PERFORM FROM tidewire.stream WHERE id = stream_id AND shared;
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;
	-- Holds off a drop. An old snapshot shows segments that are gone already.
	EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS SHARE MODE', parent);
	FOR segment_last IN SELECT last FROM tidewire.segment
		WHERE stream = stream_id AND last > after AND first <= upto
		ORDER BY CASE WHEN backward THEN -last ELSE last END
	LOOP
		CONTINUE WHEN to_regclass(format('tidewire.%I', parent || '_' || segment_last)) IS NULL;
		RETURN QUERY EXECUTE format($sql$
			SELECT position, key, headers, payload, created_at FROM tidewire.%I
			WHERE key IS NOT NULL AND (key, position) > ($1, $2) AND (key, position) <= ($1, $3)
			ORDER BY key %s, position %s LIMIT $4$sql$, parent || '_' || segment_last, direction, direction)
			USING the_key, after, upto, most;
		GET DIAGNOSTICS found_here = ROW_COUNT;
		most := most - found_here;
		EXIT WHEN most = 0;
	END LOOP;
END
$$;

-- seal_segment as before, after giving a stream that has a retention policy tables of its
-- own: these are what is dropped.
CREATE OR REPLACE FUNCTION tidewire.seal_segment(stream_id int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	policy tidewire.retention;
	positions regclass;
	head bigint;
	s tidewire.segment;
	name text;
	since timestamptz;
BEGIN
	IF NOT tidewire.hold_retention() THEN
		RETURN NULL;
	END IF;
	PERFORM tidewire.own_stream(stream_id);
	positions := ('tidewire.stream_' || stream_id || '_position_seq')::regclass;
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	SELECT * INTO policy FROM tidewire.retention WHERE stream = stream_id;
	head := coalesce(pg_sequence_last_value(positions), 0);
	SELECT * INTO s FROM tidewire.segment
		WHERE stream = stream_id AND head BETWEEN first AND last - 1 ORDER BY last LIMIT 1;
	IF NOT FOUND THEN
		RETURN head; -- none, or its end has been reached
	END IF;
	name := 'stream_' || stream_id || '_' || s.last;
	EXECUTE format('SELECT created_at FROM tidewire.%I ORDER BY position LIMIT 1', name) INTO since;
	IF (since <= clock_timestamp() - policy.max_age / 8) IS NOT TRUE
		AND (pg_total_relation_size(to_regclass('tidewire.' || name)) >= 2 * tidewire.segment_bytes(stream_id)) IS NOT TRUE THEN
		RETURN head;
	END IF;
	PERFORM tidewire.make_room(stream_id, head, s.last + 1);
	PERFORM setval(positions, s.last);
	RETURN s.last;
END
$$;

-- ensure_group as before. Of a shared stream the row is what keeps the messages where they are.
CREATE OR REPLACE FUNCTION tidewire.ensure_group(stream_id int, group_name text, start bigint, skip_dropped boolean DEFAULT false)
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
				PERFORM FROM tidewire.stream WHERE id = stream_id FOR SHARE; -- it does not move, either
				start := greatest(start, (SELECT oldest - 1 FROM tidewire.stream_state(stream_id)));
			END IF;
			EXECUTE format('INSERT INTO tidewire.%I VALUES ($1, 1, $2)', in_use) USING group_id, start;
			RETURN group_id;
		END IF;
	END LOOP;
END
$$;

-- ensure_queue as before: its stream has tables of its own.
CREATE OR REPLACE FUNCTION tidewire.ensure_queue(queue_id int, attempts int, retry_from interval, retry_to interval)
RETURNS tidewire.queue LANGUAGE plpgsql AS $$
DECLARE
	made tidewire.queue;
BEGIN
	SELECT * INTO made FROM tidewire.queue WHERE id = queue_id;
	IF FOUND THEN
		RETURN made;
	END IF;
	PERFORM FROM tidewire.stream WHERE id = queue_id FOR UPDATE;
	SELECT * INTO made FROM tidewire.queue WHERE id = queue_id;
	IF FOUND THEN
		RETURN made;
	END IF;
	PERFORM FROM tidewire.stream WHERE id = queue_id AND (partitions > 0 OR parent IS NOT NULL);
	IF FOUND THEN
		RAISE EXCEPTION 'stream % has partitions, or is one: a queue with lanes is what shares out keys',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = queue_id) USING ERRCODE = 'TW006';
	END IF;
	PERFORM FROM tidewire.retention WHERE stream = queue_id;
	IF FOUND THEN
		RAISE EXCEPTION 'stream % has a retention policy, which would drop messages that a queue still needs: have it keep everything first',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = queue_id) USING ERRCODE = 'TW008';
	END IF;
	-- Fails if the stream was dropped.
	INSERT INTO tidewire.queue (id, max_attempts, retry_min, retry_max)
		VALUES (queue_id, attempts, retry_from, retry_to) RETURNING * INTO made;
	PERFORM pg_advisory_xact_lock(1953064037, queue_id);
	PERFORM FROM tidewire.stream_state(queue_id) AS s
		WHERE s.head > 0 OR EXISTS (SELECT FROM tidewire.stream_group WHERE stream = queue_id);
	IF FOUND THEN
		RAISE EXCEPTION 'stream % has messages or groups: choose another name for the queue, or drop the stream first',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = queue_id) USING ERRCODE = 'TW009';
	END IF;
	PERFORM tidewire.own_stream(queue_id); -- a stream that there was
	-- top is the highest position claimed, up to and with this row.
	EXECUTE format($sql$
		CREATE TABLE %s (
			sequence bigint PRIMARY KEY,
			token bigint NOT NULL,
			lo bigint NOT NULL,
			hi bigint NOT NULL,
			top bigint NOT NULL,
			until timestamptz,
			kind smallint NOT NULL,
			body bytea,
			base bigint NOT NULL
		)$sql$, tidewire.journal_of(queue_id));
	PERFORM tidewire.tend_journal(queue_id);
	EXECUTE format('INSERT INTO %s VALUES (1, 0, 0, 0, 0, NULL, 1, NULL, 1)', tidewire.journal_of(queue_id));
	RETURN made;
END
$$;

REVOKE EXECUTE ON FUNCTION tidewire.own_stream(int) FROM PUBLIC;
