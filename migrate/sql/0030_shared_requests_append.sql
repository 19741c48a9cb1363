-- Streams that share a table, and whose producers repeat requests, share transactions.

-- append_together as before. The requests to all shared streams are looked up, and recorded, by one
-- query each.
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
			firsts[one.i] := coalesce(one.position, 0) + 1;
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

