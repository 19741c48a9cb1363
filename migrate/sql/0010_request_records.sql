-- Safe retry (deduplication): a request to append may carry a client and a sequence (an idempotency key), and
-- is then stored once.

-- The requests of a stream that carried a client are recorded in tables of that stream, which the
-- first such request makes: request_<id>_0 and _1, one row for each request, never updated, and
-- request_<id>_floor. This table says which of the two is in use, and since when; folded: the
-- highest sequences of the other one are in the floor; seen: when a node last checked whether
-- records are old enough, which a node does every minute while it records requests. One row for
-- each stream with clients, updated once a rotation.
--
-- No foreign key, for the reason that tidewire.segment gives.
CREATE TABLE tidewire.request_window (
	stream int PRIMARY KEY,
	current int NOT NULL,
	since timestamptz NOT NULL,
	folded boolean NOT NULL,
	seen timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- open_requests makes the tables of a stream's records. The caller has the stream's lock.
--
-- The floor holds, for each client, the highest sequence whose record was deleted: a
-- request that is not above it, and not recorded, may have been stored long ago. It is
-- kept as long as the stream: without it an old request would be taken for a new one. A
-- record says how many messages its request has stored, so that a repeated request gets
-- the result of the first one, whatever messages it has itself.
--
-- A request of a unique message has a negative sequence: minus its period, in microseconds. It is recorded with the time of
-- its record as the sequence, and repeated by every one of its client until the period is over. So a period begins with its
-- first message, and only one process finds that there is none.
CREATE FUNCTION tidewire.open_requests(stream_id int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 0 .. 1 LOOP
		EXECUTE format($sql$
			CREATE TABLE tidewire.%1$I (
				sequence bigint NOT NULL,
				position bigint NOT NULL, -- of the first message
				count int, -- of messages; for requests of a stream
				client text COLLATE "C" NOT NULL,
				CONSTRAINT %2$I PRIMARY KEY (client, sequence)
			) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
				autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647)$sql$,
			'request_' || stream_id || '_' || i, 'request_' || stream_id || '_' || i || '_pkey');
	END LOOP;
	EXECUTE format('CREATE TABLE tidewire.%I (client text COLLATE "C" PRIMARY KEY, sequence bigint NOT NULL)',
		'request_' || stream_id || '_floor');
	INSERT INTO tidewire.request_window VALUES (stream_id, 0, clock_timestamp(), false);
END
$$;

-- record_requests records the requests of the batch that the caller has begun, with the number of messages of each, in the
-- batch's transaction. It fails if one of them is already recorded, or too old. For a shared stream it must be called after
-- take_shared, which has assigned the first position, and before the rows are inserted.
CREATE FUNCTION tidewire.record_requests(
	stream_id int, size bigint, clients text[], sequences bigint[], rows bigint[], counts int[] DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	in_use int;
	first bigint;
	recorded bigint := 0;
	at bigint := 1000000 * extract(epoch FROM clock_timestamp());
BEGIN
	IF (SELECT s.shared FROM tidewire.stream AS s WHERE s.id = stream_id) THEN
		first := greatest(tidewire.shared_head(stream_id), tidewire.history_base()) + 1;
		IF tidewire.record_shared_requests(array_fill(stream_id, ARRAY[cardinality(clients)]),
			ARRAY(SELECT first + r FROM unnest(rows) WITH ORDINALITY AS t (r, n) ORDER BY n), clients, sequences, counts) = '{}' THEN
			RETURN;
		END IF;
	ELSE
		in_use := (SELECT current FROM tidewire.request_window WHERE stream = stream_id);
		first := currval(format('tidewire.stream_%s_position_seq', stream_id)::regclass) - size + 1;
		IF in_use IS NULL THEN
			PERFORM tidewire.open_requests(stream_id);
			in_use := 0;
		END IF;
		EXECUTE format($sql$
			INSERT INTO tidewire.%I (client, sequence, position, count)
			SELECT p, CASE WHEN s < 0 THEN $6 ELSE s END, $1 + r, c FROM unnest($2, $3, $4, $5) AS t (p, s, r, c)
			WHERE CASE WHEN s < 0
				THEN (SELECT true FROM tidewire.%1$I AS o WHERE o.client = p AND o.sequence > $6 + s LIMIT 1) IS NULL
					AND (SELECT true FROM tidewire.%2$I AS o WHERE o.client = p AND o.sequence > $6 + s LIMIT 1) IS NULL
				ELSE (SELECT true FROM tidewire.%2$I AS o WHERE o.client = p AND o.sequence = s) IS NULL
					AND (s <= (SELECT f.sequence FROM tidewire.%3$I AS f WHERE f.client = p)) IS NOT TRUE END$sql$,
			'request_' || stream_id || '_' || in_use, 'request_' || stream_id || '_' || 1 - in_use,
			'request_' || stream_id || '_floor') USING first, clients, sequences, rows, counts, at;
		GET DIAGNOSTICS recorded = ROW_COUNT;
	END IF;
	IF recorded < cardinality(clients) THEN
		RAISE EXCEPTION 'some requests of the batch are recorded already, or too old' USING ERRCODE = 'TW005';
	END IF;
END
$$;

-- find_requests returns for each request where it is stored and with how many messages, if it is recorded, or that it is too old.
-- If a stream moves to separate tables between its two queries, it finds nothing: record_requests then rejects the append, and
-- its writer calls find_requests again.
CREATE FUNCTION tidewire.find_requests(stream_id int, clients text[], sequences bigint[])
RETURNS TABLE (first bigint, too_old boolean, count int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	at bigint := 1000000 * extract(epoch FROM clock_timestamp());
BEGIN
	IF (SELECT s.shared FROM tidewire.stream AS s WHERE s.id = stream_id) THEN
		RETURN QUERY SELECT f.first, f.too_old, f.count
			FROM tidewire.find_shared_requests(array_fill(stream_id, ARRAY[cardinality(clients)]), clients, sequences) AS f;
		RETURN;
	END IF;
	IF to_regclass(format('tidewire.request_%s_floor', stream_id)) IS NULL THEN -- a batch had the same request twice
		RETURN QUERY SELECT NULL::bigint, false, NULL::int FROM unnest(clients);
		RETURN;
	END IF;
	RETURN QUERY EXECUTE format($sql$
		SELECT coalesce(a.position, b.position),
			coalesce(s >= 0 AND s <= (SELECT f.sequence FROM tidewire.%3$I AS f WHERE f.client = p), false),
			coalesce(a.count, b.count)
		FROM (
			SELECT u.*, CASE WHEN s < 0 THEN $3 + s + 1 ELSE s END AS low, CASE WHEN s < 0 THEN $4 ELSE s END AS high
			FROM unnest($1, $2) WITH ORDINALITY AS u (p, s, n)
		) AS t
		LEFT JOIN LATERAL (
			SELECT r.position, r.count FROM tidewire.%1$I AS r
			WHERE r.client = p AND r.sequence BETWEEN low AND high ORDER BY r.sequence DESC LIMIT 1
		) AS a ON true
		LEFT JOIN LATERAL (
			SELECT r.position, r.count FROM tidewire.%2$I AS r
			WHERE r.client = p AND r.sequence BETWEEN low AND high ORDER BY r.sequence DESC LIMIT 1
		) AS b ON true
		ORDER BY n$sql$,
		'request_' || stream_id || '_0', 'request_' || stream_id || '_1', 'request_' || stream_id || '_floor')
		USING clients, sequences, at, 9223372036854775807;
END
$$;

-- record_duplicates records requests whose unique message an earlier one has stored, at firsts, so that a repetition gets the same
-- answer after the end of the period. It returns what find_requests does: one may have been recorded meanwhile. READ COMMITTED.
CREATE FUNCTION tidewire.record_duplicates(stream_id int, clients text[], sequences bigint[], firsts bigint[])
RETURNS TABLE (first bigint, too_old boolean, count int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	fresh int[];
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	fresh := ARRAY(SELECT DISTINCT ON (clients[f.n], sequences[f.n]) f.n
		FROM tidewire.find_requests(stream_id, clients, sequences) WITH ORDINALITY AS f (first, too_old, count, n)
		WHERE f.first IS NULL AND NOT f.too_old);
	IF (SELECT s.shared FROM tidewire.stream AS s WHERE s.id = stream_id) THEN
		PERFORM tidewire.record_shared_requests(array_fill(stream_id, ARRAY[cardinality(fresh)]),
			ARRAY(SELECT firsts[n] FROM unnest(fresh) AS n), ARRAY(SELECT clients[n] FROM unnest(fresh) AS n),
			ARRAY(SELECT sequences[n] FROM unnest(fresh) AS n), array_fill(1, ARRAY[cardinality(fresh)]));
	ELSE
		EXECUTE format('INSERT INTO tidewire.%I (client, sequence, position, count) SELECT $1[n], $2[n], $3[n], 1 FROM unnest($4) AS n',
			'request_' || stream_id || '_' || (SELECT w.current FROM tidewire.request_window AS w WHERE w.stream = stream_id))
			USING clients, sequences, firsts, fresh;
	END IF;
	RETURN QUERY SELECT f.first, f.too_old, f.count FROM tidewire.find_requests(stream_id, clients, sequences) AS f;
END
$$;

-- fold_requests prepares a rotation: if the table in use has been in use for that long, it moves the highest sequences of the
-- other one to the floor, and deletes the records of that one. No session writes to that one, so none waits. It returns
-- whether swap_requests is due. The time between two checks counts for at most two minutes: while PostgreSQL was away, no
-- client could repeat anything.
--
-- The window's row is locked, so that only one process rotates; writers, which only
-- read it, are not blocked.
CREATE FUNCTION tidewire.fold_requests(stream_id int, keep interval)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	at timestamptz := clock_timestamp();
	w tidewire.request_window;
	old text;
BEGIN
	SELECT * INTO w FROM tidewire.request_window WHERE stream = stream_id FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	IF at > w.seen + interval '20 s' THEN -- no other node has checked just now
		UPDATE tidewire.request_window
			SET since = w.since + greatest(at - greatest(w.seen, w.since) - interval '2 min', interval '0'), seen = at
			WHERE stream = stream_id RETURNING since INTO w.since;
	END IF;
	IF w.since > at - keep THEN
		RETURN false;
	END IF;
	IF NOT w.folded THEN
		old := 'request_' || stream_id || '_' || 1 - w.current;
		EXECUTE format($sql$
			INSERT INTO tidewire.%1$I AS f (client, sequence)
			SELECT client, max(sequence) FROM tidewire.%2$I GROUP BY client
			ON CONFLICT (client) DO UPDATE SET sequence = excluded.sequence WHERE f.sequence < excluded.sequence$sql$,
			'request_' || stream_id || '_floor', old);
		EXECUTE format('DELETE FROM tidewire.%I', old);
		UPDATE tidewire.request_window SET folded = true WHERE stream = stream_id;
	END IF;
	RETURN true;
END
$$;

-- old_requests returns the table of the stream's records that is not in use, if it
-- has to be vacuumed: no function can run VACUUM.
CREATE FUNCTION tidewire.old_requests(stream_id int)
RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
	SELECT old FROM (
		SELECT 'request_' || stream || '_' || 1 - current AS old FROM tidewire.request_window
		WHERE stream = stream_id AND folded
	) AS w WHERE pg_relation_size(to_regclass('tidewire.' || old)) > 0
$$;

-- swap_requests switches to the table that is not in use, which fold_requests has emptied. It fails at once if another session
-- reads the table, and has to be tried again later: until then more records are kept. If that table is large, it must be vacuumed
-- first; the dead rows of a small one do no harm, because each has a different key. The stream's lock excludes writers. READ
-- COMMITTED is required, so that statements after the lock see everything that was committed before it was granted.
CREATE FUNCTION tidewire.swap_requests(stream_id int, keep interval)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	w tidewire.request_window;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'records of clients need READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	SELECT * INTO w FROM tidewire.request_window
		WHERE stream = stream_id AND since <= clock_timestamp() - keep AND folded FOR UPDATE SKIP LOCKED;
	IF NOT FOUND OR pg_relation_size(to_regclass(format('tidewire.request_%s_%s', stream_id, 1 - w.current))) > 1024 * 1024 THEN
		RETURN false; -- another process was faster, or the stream was dropped, or old rows still exist
	END IF;
	UPDATE tidewire.request_window SET current = 1 - w.current, since = clock_timestamp(), folded = false
		WHERE stream = stream_id;
	RETURN true;
END
$$;
