-- What retention drops of a stream that shares its table are rows, and a floor says how far.

-- The position up to which the messages of a shared stream were dropped, if any were: that of the
-- last one, and all that are kept come after it. One transaction deletes messages, adds a row here and deletes
-- the one before. So each snapshot sees messages, or a floor that says that they are gone.
--
-- Not in the row of the stream: a transaction with an old snapshot that publishes locks that
-- row, which fails if it was updated since; and under a long snapshot each append would walk past
-- all versions of it. Here a new floor comes after the old ones in the index, and a look for
-- it begins at the end. A stream that moves takes its floor along.
CREATE TABLE tidewire.shared_floor (
	floor bigint NOT NULL,
	stream int NOT NULL,
	PRIMARY KEY (stream, floor)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647);
SELECT tidewire.grant_as('tidewire.shared_message', 'tidewire.shared_floor');

-- Deleted rows give their space back before they are a tenth of the table.
ALTER TABLE tidewire.shared_message SET (autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_scale_factor = 0.05,
	toast.autovacuum_vacuum_threshold = 10000, toast.autovacuum_vacuum_scale_factor = 0.05);

-- shared_head as before: it is also the floor, if nothing is kept. Deleted messages, which a
-- long snapshot may still see, are not walked past.
CREATE OR REPLACE FUNCTION tidewire.shared_head(stream_id int) RETURNS bigint
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	low bigint := coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = stream_id ORDER BY f.floor DESC LIMIT 1), 0);
BEGIN
	RETURN coalesce((SELECT m.position FROM tidewire.shared_message AS m
		WHERE m.stream = stream_id AND m.position > low ORDER BY m.position DESC LIMIT 1), low);
END
$$;

-- read_shared as before. The position of the last row is minus the oldest that may be kept. There
-- are no messages if some after the one given were dropped.
CREATE OR REPLACE FUNCTION tidewire.read_shared(stream_id int, after bigint, upto bigint, most bigint, bytes bigint)
RETURNS TABLE ("position" bigint, key text, headers jsonb, payload bytea, created_at timestamptz)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
	low bigint := coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = stream_id ORDER BY f.floor DESC LIMIT 1), 0);
BEGIN
	IF after < low THEN
		NULL; -- too old
	ELSIF bytes IS NULL THEN
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
	RETURN QUERY SELECT -1 - low, tidewire.shared_head(s.id)::text, CASE WHEN NOT s.shared THEN '{}'::jsonb END, ''::bytea, 'epoch'::timestamptz
		FROM tidewire.stream AS s WHERE s.id = stream_id;
END
$$;

-- stream_state as before, with the floor of a shared stream.
CREATE OR REPLACE FUNCTION tidewire.stream_state(stream_id int, OUT head bigint, OUT oldest bigint, OUT reserved bigint)
LANGUAGE plpgsql AS $$
DECLARE
	name text := 'stream_' || stream_id;
	back bigint := 1024;
BEGIN
	SELECT tidewire.shared_head(id), 1 + coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = id ORDER BY f.floor DESC LIMIT 1), 0)
		INTO head, oldest FROM tidewire.stream WHERE id = stream_id AND shared AND partitions = 0;
	IF FOUND THEN
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

-- stream_heads as before, with the floors.
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
		SELECT s.id, h.position, h.position FROM unnest(ids, settled) AS u (stream, seen)
		JOIN tidewire.stream AS s ON s.id = u.stream AND s.shared
		CROSS JOIN LATERAL (
			SELECT coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = s.id ORDER BY f.floor DESC LIMIT 1), 0) AS position
		) AS low
		CROSS JOIN LATERAL (
			SELECT coalesce((SELECT m.position FROM tidewire.shared_message AS m
				WHERE m.stream = s.id AND m.position > low.position ORDER BY m.position DESC LIMIT 1), low.position) AS position
		) AS h WHERE h.position <> u.seen;
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

-- commit_offsets as before. A shared stream of which nothing is kept ends at its floor.
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
					), (
						SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = g.stream ORDER BY f.floor DESC LIMIT 1
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

-- read_key as before. It does not walk past what was dropped.
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
	low bigint;
BEGIN
	PERFORM FROM tidewire.stream WHERE id = stream_id AND shared;
	IF FOUND THEN
		low := (SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = stream_id ORDER BY f.floor DESC LIMIT 1);
		RETURN QUERY EXECUTE format($sql$
			SELECT position, key, headers, payload, created_at FROM tidewire.shared_message
			WHERE keyed AND key IS NOT NULL AND stream = $5 AND (key, position) > ($1, $2) AND (key, position) <= ($1, $3)
			ORDER BY key %s, position %s LIMIT $4$sql$, direction, direction)
			USING the_key, greatest(after, low), upto, most, stream_id;
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

-- append_together as before. The floor of a shared stream is looked for only if no message of it is
-- kept.
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
	carry_requests boolean := false;
	left_out int[];
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
		SELECT l.i, s.id, s.shared, CASE WHEN s.shared THEN coalesce(
			(SELECT m.position FROM tidewire.shared_message AS m WHERE m.stream = s.id ORDER BY m.position DESC LIMIT 1),
			(SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = s.id ORDER BY f.floor DESC LIMIT 1), 0) END AS head
		FROM unnest(locked) AS l (i) JOIN tidewire.stream AS s ON s.id = streams[l.i] ORDER BY l.i
	LOOP
		from_row := from_rows[one.i];
		to_row := from_row + sizes[one.i] - 1;
		from_request := from_requests[one.i];
		to_request := from_request + request_sizes[one.i] - 1;
		IF one.shared THEN
			firsts[one.i] := one.head + 1;
			shared := shared || one.i;
			carry_requests := carry_requests OR to_request >= from_request;
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
	IF carry_requests THEN
		SELECT tidewire.record_shared_requests(array_agg(streams[b.i]), array_agg(firsts[b.i] + q.r), array_agg(q.p), array_agg(q.s), array_agg(q.c))
			INTO left_out
			FROM (
				SELECT i, from_requests[i] + g AS n FROM unnest(shared) AS i, generate_series(0, request_sizes[i] - 1) AS g
			) AS b
			JOIN unnest(producers, sequences, rows, counts) WITH ORDINALITY AS q (p, s, r, c, n) USING (n);
		FOR one IN SELECT i FROM unnest(shared) AS i WHERE streams[i] = ANY (left_out) LOOP
			firsts[one.i] := 0;
		END LOOP;
	END IF;
	IF shared IS NOT NULL THEN
		PERFORM tidewire.raise_shared_top((SELECT max(firsts[i] + sizes[i] - 1) FROM unnest(shared) AS i WHERE firsts[i] > 0));
		INSERT INTO tidewire.shared_message (stream, position, keyed, payload, key, headers)
			SELECT b.stream, b.first + r.n - b.from_row, b.keyed, r.p, r.k, r.h
			FROM (
				SELECT streams[i] AS stream, firsts[i] AS first, from_rows[i] AS from_row, s.keyed, from_rows[i] + g AS n
				FROM unnest(shared) AS i JOIN tidewire.stream AS s ON s.id = streams[i], generate_series(0, sizes[i] - 1) AS g
				WHERE firsts[i] > 0
			) AS b
			JOIN unnest(payloads, keys, headers) WITH ORDINALITY AS r (p, k, h, n) USING (n);
	END IF;
	INSERT INTO tidewire.batch (writer, number, first_position, firsts) VALUES (writer, number, 0, firsts);
	PERFORM tidewire.note_growth();
END
$$;
