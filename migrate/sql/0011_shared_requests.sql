-- The records of requests to shared streams, like request_<id>_0, _1 and _floor of a
-- stream with separate tables. A request is recorded in the table in use, and looked up in
-- both tables and the floor, with one snapshot that is taken after the stream's lock was
-- granted. So it is correct even if a writer still writes to a table that has just gone
-- out of use, and writers need no common lock.
CREATE TABLE tidewire.shared_request_0 (
	sequence bigint NOT NULL,
	position bigint NOT NULL, -- of the first message
	stream int NOT NULL,
	count int NOT NULL, -- of messages
	client text COLLATE "C" NOT NULL,
	PRIMARY KEY (stream, client, sequence)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647);
CREATE TABLE tidewire.shared_request_1 (LIKE tidewire.shared_request_0 INCLUDING INDEXES)
	WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647);
CREATE TABLE tidewire.shared_request_floor (
	sequence bigint NOT NULL,
	stream int NOT NULL,
	client text COLLATE "C" NOT NULL,
	PRIMARY KEY (stream, client)
);

-- This table has one row, as request_window has one for each stream with separate tables
-- for its records. It is not a row of that table, in which each row stands for three
-- tables named by the stream's id. Table turn % 2 is in use.
CREATE TABLE tidewire.shared_request_window (
	id int PRIMARY KEY CHECK (id = 0),
	turn bigint NOT NULL,
	since timestamptz NOT NULL DEFAULT clock_timestamp(),
	seen timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO tidewire.shared_request_window (id, turn) VALUES (0, 0);

-- find_shared_requests returns for each request, in their order, what find_requests does.
--
-- This function and those below run with the rights of the role that migrated, as
-- record_requests does, and are forced to use an index, as shared_head is.
CREATE FUNCTION tidewire.find_shared_requests(streams int[], clients text[], sequences bigint[])
RETURNS TABLE (stream int, first bigint, too_old boolean, count int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
	at bigint := 1000000 * extract(epoch FROM clock_timestamp());
BEGIN
	RETURN QUERY
		SELECT t.i, coalesce(a.position, b.position),
			coalesce(t.s >= 0 AND t.s <= (SELECT f.sequence FROM tidewire.shared_request_floor AS f WHERE f.stream = t.i AND f.client = t.p), false),
			coalesce(a.count, b.count)
		FROM (
			SELECT u.*, CASE WHEN u.s < 0 THEN at + u.s + 1 ELSE u.s END AS low, CASE WHEN u.s < 0 THEN 9223372036854775807 ELSE u.s END AS high
			FROM unnest(streams, clients, sequences) WITH ORDINALITY AS u (i, p, s, n)
		) AS t
		LEFT JOIN LATERAL (
			SELECT r.position, r.count FROM tidewire.shared_request_0 AS r
			WHERE r.stream = t.i AND r.client = t.p AND r.sequence BETWEEN t.low AND t.high ORDER BY r.sequence DESC LIMIT 1
		) AS a ON true
		LEFT JOIN LATERAL (
			SELECT r.position, r.count FROM tidewire.shared_request_1 AS r
			WHERE r.stream = t.i AND r.client = t.p AND r.sequence BETWEEN t.low AND t.high ORDER BY r.sequence DESC LIMIT 1
		) AS b ON true
		ORDER BY t.n;
END
$$;

-- record_shared_requests records requests to shared streams, whose locks the caller has, in READ
-- COMMITTED: request n is to streams[n], and its first message is at positions[n]. It returns
-- the streams that it leaves out: one of their requests is already recorded, or too old. It
-- fails with a unique violation if a request occurs twice.
CREATE FUNCTION tidewire.record_shared_requests(streams int[], positions bigint[], clients text[], sequences bigint[], counts int[])
RETURNS int[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
DECLARE
	left_out int[] := ARRAY(SELECT DISTINCT f.stream FROM tidewire.find_shared_requests(streams, clients, sequences) AS f
		WHERE f.first IS NOT NULL OR f.too_old);
	now_us bigint := 1000000 * extract(epoch FROM clock_timestamp()); -- a unique message is recorded with it: see open_requests
BEGIN
	IF (SELECT w.turn % 2 FROM tidewire.shared_request_window AS w WHERE w.id = 0) = 0 THEN
		INSERT INTO tidewire.shared_request_0 (stream, client, sequence, position, count)
			SELECT t.i, t.p, CASE WHEN t.s < 0 THEN now_us ELSE t.s END, t.at, t.c FROM unnest(streams, clients, sequences, positions, counts) AS t (i, p, s, at, c)
			WHERE t.i <> ALL (left_out);
	ELSE
		INSERT INTO tidewire.shared_request_1 (stream, client, sequence, position, count)
			SELECT t.i, t.p, CASE WHEN t.s < 0 THEN now_us ELSE t.s END, t.at, t.c FROM unnest(streams, clients, sequences, positions, counts) AS t (i, p, s, at, c)
			WHERE t.i <> ALL (left_out);
	END IF;
	RETURN left_out;
END
$$;

-- fold_shared_requests moves the highest sequences of clients to the floor, and deletes the
-- records, in some blocks of the table that is not in use, if the other table has been in use
-- for that long. The time between two checks counts for at most two minutes, as in
-- fold_requests. It returns the turn that has to end, and how many blocks the table has, or
-- NULL if it is not time, or another process is doing it.
--
-- A record and its floor change in one transaction, so every snapshot has one of them.
-- A session that moves or drops a stream locks its records before its floors; locked
-- records are skipped here, so there is no deadlock. READ COMMITTED.
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
	IF at > w.seen + interval '20 s' THEN -- no other node has checked just now
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
			)) RETURNING stream, client, sequence
		)
		INSERT INTO tidewire.shared_request_floor AS f (stream, client, sequence)
		SELECT stream, client, max(sequence) FROM gone GROUP BY stream, client ORDER BY stream, client
		ON CONFLICT (stream, client) DO UPDATE SET sequence = excluded.sequence WHERE f.sequence < excluded.sequence$sql$, old)
		USING format('(%s,0)', from_block)::tid, format('(%s,0)', to_block)::tid;
	turn := w.turn;
	blocks := pg_relation_size(('tidewire.' || old)::regclass) / current_setting('block_size')::bigint;
END
$$;

-- old_shared_requests returns the table that is not in use, if it has to be vacuumed.
CREATE FUNCTION tidewire.old_shared_requests()
RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
	SELECT old FROM (SELECT 'shared_request_' || (turn + 1) % 2 AS old FROM tidewire.shared_request_window WHERE id = 0) AS w
	WHERE pg_relation_size(to_regclass('tidewire.' || old)) > 0
$$;

-- swap_shared_requests switches to the other table, which was folded in this turn. Records that it
-- still has are kept longer.
CREATE FUNCTION tidewire.swap_shared_requests(folded_in bigint)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	UPDATE tidewire.shared_request_window SET turn = turn + 1, since = clock_timestamp() WHERE id = 0 AND turn = folded_in;
	RETURN FOUND;
END
$$;

-- own_shared_requests moves the records and floors of a stream to separate tables, which it makes if
-- there are any. The caller holds the stream's lock, and has the right to make tables. Records go to
-- the table of the same number, and floors are moved last: see fold_shared_requests.
CREATE FUNCTION tidewire.own_shared_requests(stream_id int) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off AS $$
BEGIN
	IF NOT (EXISTS (SELECT FROM tidewire.shared_request_0 WHERE stream = stream_id)
		OR EXISTS (SELECT FROM tidewire.shared_request_1 WHERE stream = stream_id)
		OR EXISTS (SELECT FROM tidewire.shared_request_floor WHERE stream = stream_id)) THEN
		RETURN;
	END IF;
	PERFORM tidewire.open_requests(stream_id);
	FOR i IN 0 .. 1 LOOP
		EXECUTE format($sql$
			WITH gone AS (DELETE FROM tidewire.%I WHERE stream = $1 RETURNING client, sequence, position, count)
			INSERT INTO tidewire.%I (client, sequence, position, count)
			SELECT client, sequence, position, count FROM gone ORDER BY client, sequence$sql$,
			'shared_request_' || i, 'request_' || stream_id || '_' || i) USING stream_id;
	END LOOP;
	EXECUTE format($sql$
		WITH gone AS (DELETE FROM tidewire.shared_request_floor WHERE stream = $1 RETURNING client, sequence)
		INSERT INTO tidewire.%I (client, sequence) SELECT client, sequence FROM gone ORDER BY client$sql$,
		'request_' || stream_id || '_floor') USING stream_id;
	UPDATE tidewire.request_window AS w SET current = s.turn % 2, since = s.since, seen = s.seen
		FROM tidewire.shared_request_window AS s WHERE w.stream = stream_id AND s.id = 0;
END
$$;

-- drop_shared_requests deletes the records and floors of a stream. The caller holds the stream's
-- lock.
CREATE FUNCTION tidewire.drop_shared_requests(stream_id int) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	DELETE FROM tidewire.shared_request_0 WHERE stream = stream_id;
	DELETE FROM tidewire.shared_request_1 WHERE stream = stream_id;
	DELETE FROM tidewire.shared_request_floor WHERE stream = stream_id; -- last: see fold_shared_requests
END
$$;
