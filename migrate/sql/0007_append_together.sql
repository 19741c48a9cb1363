-- Small batches of many streams share a transaction.

-- append_together stores batches of many streams in one transaction (group commit): it takes the locks of the streams that are
-- free, assigns positions, and inserts the rows. It returns the first position of each batch, or 0 for a batch that is left out.
CREATE FUNCTION tidewire.append_together(
	writer bigint, number bigint, streams int[], heads bigint[], sizes int[],
	batches int[], payloads bytea[], keys text[], headers jsonb[],
	request_sizes int[], clients text[], sequences bigint[], rows bigint[], counts int[],
	OUT firsts bigint[], OUT at timestamptz, OUT slowest int, OUT slowest_ms bigint
) LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
DECLARE
	locked boolean[];
	keyed boolean[];
	from_rows int[];
	from_requests int[];
	request_batches int[];
	shared_firsts bigint[];
	top bigint;
	own int[];
	left_out int[];
	one int;
	to_row int;
	from_request int;
	to_request int;
	written record;
BEGIN
	at := now();
	slowest := 1;
	slowest_ms := 0;
	locked := ARRAY(SELECT pg_try_advisory_xact_lock(1953064037, s) FROM unnest(streams) AS s);
	-- This statement begins after the locks were granted, so it sees everything that was committed
	-- under them.
	SELECT * INTO firsts, top, keyed, own FROM tidewire.look_for_ends(streams, heads, sizes, locked);
	shared_firsts := firsts;
	IF own IS NOT NULL OR cardinality(clients) > 0 OR cardinality(batches) > cardinality(streams) THEN
		from_rows := tidewire.starts(sizes);
		from_requests := tidewire.starts(request_sizes);
	END IF;
	FOREACH one IN ARRAY coalesce(own, '{}') LOOP
		to_row := from_rows[one] + sizes[one] - 1;
		from_request := from_requests[one];
		to_request := from_request + request_sizes[one] - 1;
		SELECT * INTO written FROM tidewire.append_own(streams[one],
			payloads[from_rows[one]:to_row], keys[from_rows[one]:to_row], headers[from_rows[one]:to_row],
			clients[from_request:to_request], sequences[from_request:to_request],
			rows[from_request:to_request], counts[from_request:to_request]);
		firsts[one] := written.first;
		IF written.ms > slowest_ms THEN
			slowest := one;
			slowest_ms := written.ms;
		END IF;
	END LOOP;
	IF top IS NOT NULL AND cardinality(clients) > 0 THEN
		request_batches := ARRAY(SELECT i FROM generate_subscripts(request_sizes, 1) AS i, generate_series(1, request_sizes[i]) ORDER BY i);
		SELECT tidewire.record_shared_requests(array_agg(streams[q.b]), array_agg(shared_firsts[q.b] + q.r), array_agg(q.p), array_agg(q.s), array_agg(q.c))
			INTO left_out
			FROM unnest(request_batches, clients, sequences, rows, counts) AS q (b, p, s, r, c)
			WHERE shared_firsts[q.b] > 0;
		FOR one IN SELECT i FROM generate_subscripts(streams, 1) AS i WHERE streams[i] = ANY (left_out) LOOP
			firsts[one] := 0;
			shared_firsts[one] := 0;
		END LOOP;
	END IF;
	IF top IS NOT NULL THEN
		PERFORM tidewire.raise_shared_top(top);
	END IF;
	IF top IS NOT NULL AND cardinality(batches) = cardinality(streams) THEN
		INSERT INTO tidewire.shared_message (stream, position, keyed, payload, key, headers)
			SELECT r.stream, r.first, r.keyed, r.p, r.k, r.h
			FROM unnest(streams, shared_firsts, keyed, payloads, keys, headers) AS r (stream, first, keyed, p, k, h)
			WHERE r.first > 0;
	ELSIF top IS NOT NULL THEN
		INSERT INTO tidewire.shared_message (stream, position, keyed, payload, key, headers)
			SELECT streams[r.b], shared_firsts[r.b] + r.n - from_rows[r.b], keyed[r.b], r.p, r.k, r.h
			FROM unnest(batches, payloads, keys, headers) WITH ORDINALITY AS r (b, p, k, h, n)
			WHERE shared_firsts[r.b] > 0;
	END IF;
	INSERT INTO tidewire.batch (writer, number, first_position, firsts) VALUES (writer, number, 0, firsts);
	PERFORM tidewire.note_growth();
END
$$;

-- look_for_ends returns where batches begin, 0 for those of streams with separate tables; the last position of them
-- all; whether their streams are keyed; and which streams have separate tables. It leaves out streams that are not
-- locked. Batches of shared streams begin after the base of the history.
--
-- Merge and hash joins are off: PostgreSQL does not know how long the arrays are, and would read all streams.
CREATE FUNCTION tidewire.look_for_ends(
	streams int[], heads bigint[], sizes int[], locked boolean[], OUT firsts bigint[], OUT top bigint, OUT keyed boolean[], OUT own int[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off AS $$
DECLARE
	base bigint := tidewire.history_base();
BEGIN
	SELECT array_agg(CASE WHEN b.head IS NULL THEN 0 ELSE b.head + 1 END ORDER BY b.n), max(b.head + b.size),
			array_agg(b.keyed ORDER BY b.n), array_agg(b.n::int ORDER BY b.n) FILTER (WHERE NOT b.shared)
		INTO firsts, top, keyed, own
		FROM (
			SELECT u.n, u.size, s.keyed, s.shared, CASE WHEN s.shared THEN greatest(base, coalesce(
				(SELECT m.position FROM tidewire.shared_message AS m
					WHERE m.stream = s.id AND m.position >= nullif(u.head, 0) ORDER BY m.position DESC LIMIT 1),
				(SELECT m.position FROM tidewire.shared_message AS m WHERE m.stream = s.id AND m.position > coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = s.id ORDER BY f.floor DESC LIMIT 1), 0) ORDER BY m.position DESC LIMIT 1),
				coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = s.id ORDER BY f.floor DESC LIMIT 1), 0))) END AS head
			FROM unnest(streams, heads, sizes, locked) WITH ORDINALITY AS u (id, head, size, locked, n)
			LEFT JOIN tidewire.stream AS s ON s.id = u.id AND u.locked
			OFFSET 0 -- looks up each head once, not once for each use
		) AS b;
END
$$;

-- starts returns the index at which each of several consecutive parts begins, from 1, given their
-- sizes.
CREATE FUNCTION tidewire.starts(sizes int[]) RETURNS int[] LANGUAGE sql IMMUTABLE AS $$
	SELECT ARRAY(SELECT (1 + sum(u.size) OVER (ORDER BY u.n) - u.size)::int FROM unnest(sizes) WITH ORDINALITY AS u (size, n) ORDER BY u.n)
$$;

-- append_own stores a batch in the tables of a stream, whose lock is held, and returns how long that took.
-- first is 0 if the batch is left out: it has a request that was answered before, or the stream has partitions.
CREATE FUNCTION tidewire.append_own(
	stream_id int, payloads bytea[], keys text[], headers jsonb[], clients text[], sequences bigint[], rows bigint[], counts int[],
	OUT first bigint, OUT ms bigint
) LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
	positions regclass := to_regclass('tidewire.stream_' || stream_id || '_position_seq');
	size int := cardinality(payloads);
	head bigint;
BEGIN
	first := 0;
	ms := 0;
	IF positions IS NULL THEN -- it has partitions
		RETURN;
	END IF;
	IF cardinality(clients) > 0 THEN
		PERFORM FROM tidewire.find_requests(stream_id, clients, sequences) AS f WHERE f.first IS NOT NULL OR f.too_old;
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;
	head := greatest(pg_sequence_last_value(positions), tidewire.history_base());
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = stream_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(stream_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
	IF cardinality(clients) > 0 THEN
		PERFORM tidewire.record_requests(stream_id, size, clients, sequences, rows, counts);
	END IF;
	IF size = 1 THEN
		EXECUTE format('INSERT INTO tidewire.%I (position, payload, key, headers) VALUES ($1, $2, $3, $4)', 'stream_' || stream_id)
			USING head + 1, payloads[1], keys[1], headers[1];
	ELSE
		EXECUTE format('INSERT INTO tidewire.%I (position, payload, key, headers)
			SELECT $1 + n, p, k, h FROM unnest($2, $3, $4) WITH ORDINALITY AS t (p, k, h, n)', 'stream_' || stream_id)
			USING head, payloads, keys, headers;
	END IF;
	first := head + 1;
	ms := 1000 * extract(epoch FROM clock_timestamp() - began);
END
$$;
