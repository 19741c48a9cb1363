-- Safe retry: a request to append may carry a producer and a sequence, and is then stored once.

-- The requests of a stream that carried a producer are recorded in tables of
-- that stream, which the first of them makes: producer_<id>_0 and _1, a row
-- each, never updated, and producer_<id>_floor. This says which of the two is
-- in use, and since when; folded, that the highest sequences of the other one
-- are in the floor. One row for each stream with producers, updated once a
-- rotation.
--
-- No foreign key, for the reason that tidewire.segment gives.
CREATE TABLE tidewire.producer_window (
	stream int PRIMARY KEY,
	current int NOT NULL,
	since timestamptz NOT NULL,
	folded boolean NOT NULL
);

-- open_producers makes the tables of a stream. The caller has the stream's lock.
--
-- The floor holds, of each producer, the highest sequence whose record was
-- given up: what is not above it, and not recorded, may have been stored long
-- ago. It is kept as long as the stream: without it an old request would be
-- taken for a new one.
CREATE FUNCTION tidewire.open_producers(stream_id int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 0 .. 1 LOOP
		EXECUTE format($sql$
			CREATE TABLE tidewire.%1$I (
				sequence bigint NOT NULL,
				position bigint NOT NULL, -- of the first message
				producer text COLLATE "C" NOT NULL,
				CONSTRAINT %2$I PRIMARY KEY (producer, sequence)
			) WITH (autovacuum_enabled = false)$sql$,
			'producer_' || stream_id || '_' || i, 'producer_' || stream_id || '_' || i || '_pkey');
	END LOOP;
	EXECUTE format('CREATE TABLE tidewire.%I (producer text COLLATE "C" PRIMARY KEY, sequence bigint NOT NULL)',
		'producer_' || stream_id || '_floor');
	INSERT INTO tidewire.producer_window VALUES (stream_id, 0, clock_timestamp(), false);
END
$$;

-- record_requests records the requests of a batch of size rows, behind
-- take_positions or begin_batch in the same transaction: under the lock, and
-- with the sequence of positions at the batch's last. Request n begins with row
-- rows[n], from 0 on.
--
-- It fails if one of them is recorded already, with a unique violation or
-- TW005, or is at or below its producer's floor, with TW005. So nothing of the
-- batch is stored, and the caller takes these requests out. What it looks up it
-- looks up by scalar subqueries: nothing else is sure to be done by the
-- indexes, and not by reading all records.
--
-- Runs with the rights of who migrated, who owns the tables. A role of its own
-- for Tidewire needs EXECUTE on this, and on the functions below.
CREATE FUNCTION tidewire.record_requests(
	stream_id int, size bigint, producers text[], sequences bigint[], rows bigint[]
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
		INSERT INTO tidewire.%I (producer, sequence, position)
		SELECT p, s, $1 + r FROM unnest($2, $3, $4) AS t (p, s, r)
		WHERE (SELECT true FROM tidewire.%I AS o WHERE o.producer = p AND o.sequence = s) IS NULL
			AND (s <= (SELECT f.sequence FROM tidewire.%I AS f WHERE f.producer = p)) IS NOT TRUE$sql$,
		'producer_' || stream_id || '_' || in_use, 'producer_' || stream_id || '_' || 1 - in_use,
		'producer_' || stream_id || '_floor') USING first, producers, sequences, rows;
	GET DIAGNOSTICS recorded = ROW_COUNT;
	IF recorded < cardinality(producers) THEN
		RAISE EXCEPTION 'some requests of the batch are recorded already, or too old' USING ERRCODE = 'TW005';
	END IF;
END
$$;

-- find_requests tells of each request, in their order, the position of its
-- first message, or else that it is too old to tell. It takes no lock: that a
-- request is new is decided by record_requests alone. What it finds was
-- committed; what it takes for too old has lost its record.
CREATE FUNCTION tidewire.find_requests(stream_id int, producers text[], sequences bigint[])
RETURNS TABLE (first bigint, too_old boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF to_regclass(format('tidewire.producer_%s_floor', stream_id)) IS NULL THEN -- one batch held a request twice
		RETURN QUERY SELECT NULL::bigint, false FROM unnest(producers);
		RETURN;
	END IF;
	RETURN QUERY EXECUTE format($sql$
		SELECT coalesce(
				(SELECT r.position FROM tidewire.%I AS r WHERE r.producer = p AND r.sequence = s),
				(SELECT r.position FROM tidewire.%I AS r WHERE r.producer = p AND r.sequence = s)),
			coalesce(s <= (SELECT f.sequence FROM tidewire.%I AS f WHERE f.producer = p), false)
		FROM unnest($1, $2) WITH ORDINALITY AS t (p, s, n) ORDER BY n$sql$,
		'producer_' || stream_id || '_0', 'producer_' || stream_id || '_1', 'producer_' || stream_id || '_floor')
		USING producers, sequences;
END
$$;

-- fold_requests prepares a rotation: if the table in use has been so for that
-- long, the highest sequences of the other one go to the floor. Nobody writes
-- to that one, so nobody waits. It tells whether swap_requests is due.
--
-- The row of the window is locked, so that one process rotates; who only reads
-- it, as writers do, minds no such lock.
CREATE FUNCTION tidewire.fold_requests(stream_id int, keep interval)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	w tidewire.producer_window;
BEGIN
	SELECT * INTO w FROM tidewire.producer_window
		WHERE stream = stream_id AND since <= clock_timestamp() - keep FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	IF NOT w.folded THEN
		EXECUTE format($sql$
			INSERT INTO tidewire.%1$I AS f (producer, sequence)
			SELECT producer, max(sequence) FROM tidewire.%2$I GROUP BY producer
			ON CONFLICT (producer) DO UPDATE SET sequence = excluded.sequence WHERE f.sequence < excluded.sequence$sql$,
			'producer_' || stream_id || '_floor', 'producer_' || stream_id || '_' || 1 - w.current);
		UPDATE tidewire.producer_window SET folded = true WHERE stream = stream_id;
	END IF;
	RETURN true;
END
$$;

-- swap_requests empties the table that is not in use, all of whose records are
-- older than keep and in the floor, and has it in use from then on. It gives up
-- at once if somebody reads the table, and is tried again later: until then
-- more is kept. The stream's lock keeps writers out, and needs READ COMMITTED,
-- so that what is read behind it is what was committed before it was granted.
CREATE FUNCTION tidewire.swap_requests(stream_id int, keep interval)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	w tidewire.producer_window;
	old text;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'records of producers need READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	SELECT * INTO w FROM tidewire.producer_window
		WHERE stream = stream_id AND since <= clock_timestamp() - keep AND folded FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN false; -- another process was first, or the stream was dropped
	END IF;
	old := 'producer_' || stream_id || '_' || 1 - w.current;
	EXECUTE format('LOCK TABLE tidewire.%I IN ACCESS EXCLUSIVE MODE NOWAIT', old);
	EXECUTE format('TRUNCATE tidewire.%I', old);
	UPDATE tidewire.producer_window SET current = 1 - w.current, since = clock_timestamp(), folded = false
		WHERE stream = stream_id;
	RETURN true;
END
$$;

-- drop_stream as before, with the records of its producers.
CREATE OR REPLACE FUNCTION tidewire.drop_stream(stream_name text)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
	stream_id int;
BEGIN
	DELETE FROM tidewire.stream WHERE name = stream_name RETURNING id INTO stream_id;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM tidewire.drop_stream_tables(stream_id);
	RETURN true;
END
$$;

-- drop_stream_tables drops what a stream has beside its row. The stream's lock
-- comes first: a writer that has it may be making tables.
CREATE FUNCTION tidewire.drop_stream_tables(stream_id int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	EXECUTE format('DROP TABLE tidewire.%I', 'stream_' || stream_id);
	DELETE FROM tidewire.segment WHERE stream = stream_id;
	DELETE FROM tidewire.producer_window WHERE stream = stream_id;
	IF FOUND THEN
		EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I, tidewire.%I', 'producer_' || stream_id || '_0',
			'producer_' || stream_id || '_1', 'producer_' || stream_id || '_floor');
	END IF;
END
$$;

REVOKE EXECUTE ON FUNCTION tidewire.record_requests(int, bigint, text[], bigint[], bigint[]),
	tidewire.find_requests(int, text[], bigint[]), tidewire.fold_requests(int, interval),
	tidewire.swap_requests(int, interval) FROM PUBLIC;
