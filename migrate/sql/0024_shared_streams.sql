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

REVOKE EXECUTE ON FUNCTION tidewire.own_stream(int) FROM PUBLIC;
