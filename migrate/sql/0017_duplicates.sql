-- Records of requests note how many messages a request has stored, so that a
-- repetition is told that of the first, whatever it has itself. Records from before
-- have no count.

-- open_producers as before, with the count.
CREATE OR REPLACE FUNCTION tidewire.open_producers(stream_id int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 0 .. 1 LOOP
		EXECUTE format($sql$
			CREATE TABLE tidewire.%1$I (
				sequence bigint NOT NULL,
				position bigint NOT NULL, -- of the first message
				count int, -- of messages, of a stream's requests
				producer text COLLATE "C" NOT NULL,
				CONSTRAINT %2$I PRIMARY KEY (producer, sequence)
			) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
				autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2147483647)$sql$,
			'producer_' || stream_id || '_' || i, 'producer_' || stream_id || '_' || i || '_pkey');
	END LOOP;
	EXECUTE format('CREATE TABLE tidewire.%I (producer text COLLATE "C" PRIMARY KEY, sequence bigint NOT NULL)',
		'producer_' || stream_id || '_floor');
	INSERT INTO tidewire.producer_window VALUES (stream_id, 0, clock_timestamp(), false);
END
$$;

DO $$
DECLARE
	name text;
BEGIN
	FOR name IN SELECT format('producer_%s_%s', stream, i) FROM tidewire.producer_window, generate_series(0, 1) AS i LOOP
		EXECUTE format('ALTER TABLE tidewire.%I ADD COLUMN count int', name);
	END LOOP;
END
$$;

-- A function that gets another parameter or result is another function. Who was
-- granted the old one is granted the new one.
CREATE TEMPORARY TABLE tidewire_granted ON COMMIT DROP AS
	SELECT p.proname AS name, a.grantee::regrole AS grantee FROM pg_proc AS p, aclexplode(p.proacl) AS a
	WHERE p.pronamespace = 'tidewire'::regnamespace AND p.proname IN ('record_requests', 'find_requests')
		AND a.privilege_type = 'EXECUTE' AND a.grantee NOT IN (0, p.proowner);

DROP FUNCTION tidewire.record_requests(int, bigint, text[], bigint[], bigint[]);
DROP FUNCTION tidewire.find_requests(int, text[], bigint[]);

-- record_requests as before, with the number of messages of each request. A node
-- that was started before the migration gives none.
CREATE FUNCTION tidewire.record_requests(
	stream_id int, size bigint, producers text[], sequences bigint[], rows bigint[], counts int[] DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	in_use int := (SELECT current FROM tidewire.producer_window WHERE stream = stream_id);
	first bigint := currval(format('tidewire.stream_%s_position_seq', stream_id)::regclass) - size + 1;
	recorded bigint;
BEGIN
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
	IF recorded < cardinality(producers) THEN
		RAISE EXCEPTION 'some requests of the batch are recorded already, or too old' USING ERRCODE = 'TW005';
	END IF;
END
$$;

-- find_requests as before, with the number of messages of each request, if its
-- record says so.
CREATE FUNCTION tidewire.find_requests(stream_id int, producers text[], sequences bigint[])
RETURNS TABLE (first bigint, too_old boolean, count int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
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

REVOKE EXECUTE ON FUNCTION tidewire.record_requests(int, bigint, text[], bigint[], bigint[], int[]),
	tidewire.find_requests(int, text[], bigint[]) FROM PUBLIC;
DO $$
DECLARE
	granted record;
BEGIN
	FOR granted IN SELECT DISTINCT name, grantee FROM tidewire_granted LOOP
		EXECUTE format('GRANT EXECUTE ON FUNCTION tidewire.%I TO %s', granted.name, granted.grantee);
	END LOOP;
END
$$;
