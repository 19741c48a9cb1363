-- Streams that share a table stay there when producers repeat requests: their records share tables, too.

-- The records of requests to shared streams, as producer_<id>_0, _1 and _floor are those of
-- a stream with tables of its own. A request is recorded in the table in use and looked
-- for in both tables, and in the floor, with one snapshot that was taken after the
-- stream's lock was granted. So nothing is wrong if a writer still writes to a table
-- that has just gone out of use, and writers need no lock that they all share.
CREATE TABLE tidewire.shared_request_0 (
	sequence bigint NOT NULL,
	position bigint NOT NULL, -- of the first message
	stream int NOT NULL,
	count int NOT NULL, -- of messages
	producer text COLLATE "C" NOT NULL,
	PRIMARY KEY (stream, producer, sequence)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647);
CREATE TABLE tidewire.shared_request_1 (LIKE tidewire.shared_request_0 INCLUDING INDEXES)
	WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647);
CREATE TABLE tidewire.shared_request_floor (
	sequence bigint NOT NULL,
	stream int NOT NULL,
	producer text COLLATE "C" NOT NULL,
	PRIMARY KEY (stream, producer)
);

-- One row, as producer_window has one for each stream with records of its own. It is not a
-- row of that table, each of which stands for three tables by the stream's number. Table
-- turn % 2 is in use.
CREATE TABLE tidewire.shared_request_window (
	id int PRIMARY KEY CHECK (id = 0),
	turn bigint NOT NULL,
	since timestamptz NOT NULL DEFAULT clock_timestamp(),
	seen timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO tidewire.shared_request_window (id, turn) VALUES (0, 0);

-- find_shared_requests tells of each request, in their order, what find_requests does.
--
-- It and the functions below run with the rights of who migrated, as record_requests
-- does, and have to use an index, as shared_head does.
CREATE FUNCTION tidewire.find_shared_requests(streams int[], producers text[], sequences bigint[])
RETURNS TABLE (stream int, first bigint, too_old boolean, count int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY
		SELECT t.i, coalesce(a.position, b.position),
			coalesce(t.s <= (SELECT f.sequence FROM tidewire.shared_request_floor AS f WHERE f.stream = t.i AND f.producer = t.p), false),
			coalesce(a.count, b.count)
		FROM unnest(streams, producers, sequences) WITH ORDINALITY AS t (i, p, s, n)
		LEFT JOIN LATERAL (
			SELECT r.position, r.count FROM tidewire.shared_request_0 AS r
			WHERE r.stream = t.i AND r.producer = t.p AND r.sequence = t.s LIMIT 1
		) AS a ON true
		LEFT JOIN LATERAL (
			SELECT r.position, r.count FROM tidewire.shared_request_1 AS r
			WHERE r.stream = t.i AND r.producer = t.p AND r.sequence = t.s LIMIT 1
		) AS b ON true
		ORDER BY t.n;
END
$$;

-- record_shared_requests records requests to shared streams, whose locks the caller has, in READ
-- COMMITTED: request n is to streams[n], and its first message is at positions[n]. It
-- returns the streams that it leaves out: one of their requests is recorded already,
-- or too old. It fails with a unique violation if a request is there twice.
CREATE FUNCTION tidewire.record_shared_requests(streams int[], positions bigint[], producers text[], sequences bigint[], counts int[])
RETURNS int[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	left_out int[] := ARRAY(SELECT DISTINCT f.stream FROM tidewire.find_shared_requests(streams, producers, sequences) AS f
		WHERE f.first IS NOT NULL OR f.too_old);
BEGIN
	IF (SELECT w.turn % 2 FROM tidewire.shared_request_window AS w WHERE w.id = 0) = 0 THEN
		INSERT INTO tidewire.shared_request_0 (stream, producer, sequence, position, count)
			SELECT t.i, t.p, t.s, t.at, t.c FROM unnest(streams, producers, sequences, positions, counts) AS t (i, p, s, at, c)
			WHERE t.i <> ALL (left_out);
	ELSE
		INSERT INTO tidewire.shared_request_1 (stream, producer, sequence, position, count)
			SELECT t.i, t.p, t.s, t.at, t.c FROM unnest(streams, producers, sequences, positions, counts) AS t (i, p, s, at, c)
			WHERE t.i <> ALL (left_out);
	END IF;
	RETURN left_out;
END
$$;

-- record_requests as before. The batch of a shared stream comes after take_shared and
-- before its rows.
CREATE OR REPLACE FUNCTION tidewire.record_requests(
	stream_id int, size bigint, producers text[], sequences bigint[], rows bigint[], counts int[] DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	in_use int;
	first bigint;
	recorded bigint := 0;
BEGIN
	IF (SELECT s.shared FROM tidewire.stream AS s WHERE s.id = stream_id) THEN
		first := tidewire.shared_head(stream_id) + 1;
		IF tidewire.record_shared_requests(array_fill(stream_id, ARRAY[cardinality(producers)]),
			ARRAY(SELECT first + r FROM unnest(rows) WITH ORDINALITY AS t (r, n) ORDER BY n), producers, sequences, counts) = '{}' THEN
			RETURN;
		END IF;
	ELSE
		in_use := (SELECT current FROM tidewire.producer_window WHERE stream = stream_id);
		first := currval(format('tidewire.stream_%s_position_seq', stream_id)::regclass) - size + 1;
		IF in_use IS NULL THEN
			PERFORM tidewire.open_producers(stream_id);
			in_use := 0;
		END IF;
		EXECUTE format($sql$
			INSERT INTO tidewire.%I (producer, sequence, position, count)
			SELECT p, s, $1 + r, c FROM unnest($2, $3, $4, $5) AS t (p, s, r, c)
			WHERE (SELECT true FROM tidewire.%I AS o WHERE o.producer = p AND o.sequence = s) IS NULL
				AND (s <= (SELECT f.sequence FROM tidewire.%I AS f WHERE f.producer = p)) IS NOT TRUE$sql$,
			'producer_' || stream_id || '_' || in_use, 'producer_' || stream_id || '_' || 1 - in_use,
			'producer_' || stream_id || '_floor') USING first, producers, sequences, rows, counts;
		GET DIAGNOSTICS recorded = ROW_COUNT;
	END IF;
	IF recorded < cardinality(producers) THEN
		RAISE EXCEPTION 'some requests of the batch are recorded already, or too old' USING ERRCODE = 'TW005';
	END IF;
END
$$;

-- find_requests as before. Of a stream that gets tables of its own between the two queries it
-- finds nothing: an append is then refused by record_requests, and its writer looks again.
CREATE OR REPLACE FUNCTION tidewire.find_requests(stream_id int, producers text[], sequences bigint[])
RETURNS TABLE (first bigint, too_old boolean, count int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF (SELECT s.shared FROM tidewire.stream AS s WHERE s.id = stream_id) THEN
		RETURN QUERY SELECT f.first, f.too_old, f.count
			FROM tidewire.find_shared_requests(array_fill(stream_id, ARRAY[cardinality(producers)]), producers, sequences) AS f;
		RETURN;
	END IF;
	IF to_regclass(format('tidewire.producer_%s_floor', stream_id)) IS NULL THEN -- one batch held a request twice
		RETURN QUERY SELECT NULL::bigint, false, NULL::int FROM unnest(producers);
		RETURN;
	END IF;
	RETURN QUERY EXECUTE format($sql$
		SELECT coalesce(a.position, b.position),
			coalesce(s <= (SELECT f.sequence FROM tidewire.%3$I AS f WHERE f.producer = p), false),
			coalesce(a.count, b.count)
		FROM unnest($1, $2) WITH ORDINALITY AS t (p, s, n)
		LEFT JOIN LATERAL (SELECT r.position, r.count FROM tidewire.%1$I AS r WHERE r.producer = p AND r.sequence = s LIMIT 1) AS a ON true
		LEFT JOIN LATERAL (SELECT r.position, r.count FROM tidewire.%2$I AS r WHERE r.producer = p AND r.sequence = s LIMIT 1) AS b ON true
		ORDER BY n$sql$,
		'producer_' || stream_id || '_0', 'producer_' || stream_id || '_1', 'producer_' || stream_id || '_floor')
		USING producers, sequences;
END
$$;

-- fold_shared_requests has the records in some blocks of the table that is not in use give way
-- to the highest sequences of their producers, in the floor, if the other table has been
-- in use for that long; of the time while nobody looked, two minutes count, as for
-- fold_requests. It returns the turn that is to end, and how many blocks the table has, or NULL
-- if it is not time, or another process is at it.
--
-- A record and its floor change in one transaction, so every snapshot has one of them. A
-- stream that is moved or dropped has its records locked before its floors: they are
-- skipped here, so neither waits for the other in turn. READ COMMITTED.
CREATE FUNCTION tidewire.fold_shared_requests(keep interval, from_block bigint, to_block bigint, OUT turn bigint, OUT blocks bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	at timestamptz := clock_timestamp();
	w tidewire.shared_request_window;
	old text;
BEGIN
	SELECT * INTO w FROM tidewire.shared_request_window WHERE id = 0 FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	IF at > w.seen + interval '20 s' THEN -- another node looked just now, else
		UPDATE tidewire.shared_request_window
			SET since = w.since + greatest(at - greatest(w.seen, w.since) - interval '2 min', interval '0'), seen = at
			WHERE id = 0 RETURNING since INTO w.since;
	END IF;
	IF w.since > at - keep THEN
		RETURN;
	END IF;
	old := 'shared_request_' || (w.turn + 1) % 2;
	EXECUTE format($sql$
		WITH gone AS (
			DELETE FROM tidewire.%1$I WHERE ctid = ANY (ARRAY(
				SELECT ctid FROM tidewire.%1$I WHERE ctid >= $1 AND ctid < $2 FOR UPDATE SKIP LOCKED
			)) RETURNING stream, producer, sequence
		)
		INSERT INTO tidewire.shared_request_floor AS f (stream, producer, sequence)
		SELECT stream, producer, max(sequence) FROM gone GROUP BY stream, producer ORDER BY stream, producer
		ON CONFLICT (stream, producer) DO UPDATE SET sequence = excluded.sequence WHERE f.sequence < excluded.sequence$sql$, old)
		USING format('(%s,0)', from_block)::tid, format('(%s,0)', to_block)::tid;
	turn := w.turn;
	blocks := pg_relation_size(('tidewire.' || old)::regclass) / current_setting('block_size')::bigint;
END
$$;

-- old_shared_requests returns the table that is not in use, if it is to be vacuumed.
CREATE FUNCTION tidewire.old_shared_requests()
RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
	SELECT old FROM (SELECT 'shared_request_' || (turn + 1) % 2 AS old FROM tidewire.shared_request_window WHERE id = 0) AS w
	WHERE pg_relation_size(to_regclass('tidewire.' || old)) > 0
$$;

-- swap_shared_requests has the other table in use from now on, which was folded in this turn. Records
-- that are still there are kept longer.
CREATE FUNCTION tidewire.swap_shared_requests(folded_in bigint)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	UPDATE tidewire.shared_request_window SET turn = turn + 1, since = clock_timestamp() WHERE id = 0 AND turn = folded_in;
	RETURN FOUND;
END
$$;

-- own_shared_requests moves the records and floors of a stream to tables of its own, which it makes if
-- there are any. The caller has the stream's lock, and the right to make tables. Records
-- go to the table of the same number, and to the floor last: see fold_shared_requests.
CREATE FUNCTION tidewire.own_shared_requests(stream_id int) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off AS $$
BEGIN
	IF NOT (EXISTS (SELECT FROM tidewire.shared_request_0 WHERE stream = stream_id)
		OR EXISTS (SELECT FROM tidewire.shared_request_1 WHERE stream = stream_id)
		OR EXISTS (SELECT FROM tidewire.shared_request_floor WHERE stream = stream_id)) THEN
		RETURN;
	END IF;
	PERFORM tidewire.open_producers(stream_id);
	FOR i IN 0 .. 1 LOOP
		EXECUTE format($sql$
			WITH gone AS (DELETE FROM tidewire.%I WHERE stream = $1 RETURNING producer, sequence, position, count)
			INSERT INTO tidewire.%I (producer, sequence, position, count)
			SELECT producer, sequence, position, count FROM gone ORDER BY producer, sequence$sql$,
			'shared_request_' || i, 'producer_' || stream_id || '_' || i) USING stream_id;
	END LOOP;
	EXECUTE format($sql$
		WITH gone AS (DELETE FROM tidewire.shared_request_floor WHERE stream = $1 RETURNING producer, sequence)
		INSERT INTO tidewire.%I (producer, sequence) SELECT producer, sequence FROM gone ORDER BY producer$sql$,
		'producer_' || stream_id || '_floor') USING stream_id;
	UPDATE tidewire.producer_window AS w SET current = s.turn % 2, since = s.since, seen = s.seen
		FROM tidewire.shared_request_window AS s WHERE w.stream = stream_id AND s.id = 0;
END
$$;

-- own_stream as before, with the records of requests.
CREATE OR REPLACE FUNCTION tidewire.own_stream(stream_id int) RETURNS void LANGUAGE plpgsql
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
		PERFORM tidewire.own_shared_requests(stream_id);
	END IF;
END
$$;

-- drop_shared_requests deletes the records and floors of a stream, whose lock the caller has.
CREATE FUNCTION tidewire.drop_shared_requests(stream_id int) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
	DELETE FROM tidewire.shared_request_0 WHERE stream = stream_id;
	DELETE FROM tidewire.shared_request_1 WHERE stream = stream_id;
	DELETE FROM tidewire.shared_request_floor WHERE stream = stream_id; -- last: see fold_shared_requests
END
$$;

CREATE OR REPLACE FUNCTION tidewire.drop_stream_tables(stream_id int) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	PERFORM tidewire.note_growth();
	DELETE FROM tidewire.shared_message WHERE stream = stream_id;
	PERFORM tidewire.drop_shared_requests(stream_id);
	EXECUTE format('DROP TABLE IF EXISTS tidewire.%I', 'stream_' || stream_id);
	DELETE FROM tidewire.segment WHERE stream = stream_id;
	DELETE FROM tidewire.producer_window WHERE stream = stream_id;
	IF FOUND THEN
		EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I, tidewire.%I', 'producer_' || stream_id || '_0',
			'producer_' || stream_id || '_1', 'producer_' || stream_id || '_floor');
	END IF;
END
$$;

-- A role of its own for Tidewire that was granted record_requests is granted these.
REVOKE EXECUTE ON FUNCTION tidewire.find_shared_requests(int[], text[], bigint[]),
	tidewire.record_shared_requests(int[], bigint[], text[], bigint[], int[]), tidewire.fold_shared_requests(interval, bigint, bigint),
	tidewire.old_shared_requests(), tidewire.swap_shared_requests(bigint), tidewire.drop_shared_requests(int) FROM PUBLIC;
DO $$
DECLARE
	granted text;
BEGIN
	FOR granted IN
		SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
		FROM pg_proc AS p, aclexplode(p.proacl) AS a
		WHERE p.oid = 'tidewire.record_requests'::regproc AND a.privilege_type = 'EXECUTE' AND a.grantee <> p.proowner
	LOOP
		EXECUTE format('GRANT EXECUTE ON FUNCTION tidewire.find_shared_requests, tidewire.record_shared_requests,
			tidewire.fold_shared_requests, tidewire.old_shared_requests, tidewire.swap_shared_requests, tidewire.drop_shared_requests TO %s', granted);
	END LOOP;
END
$$;
