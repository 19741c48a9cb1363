-- Small batches of many streams share a transaction.

-- firsts is of a transaction with batches of several streams: the first position of
-- each, or 0 if it was left out. NULL says that there is no such transaction, and that
-- there will be none.
ALTER TABLE tidewire.batch ADD COLUMN firsts bigint[];

-- append_together stores a batch for each of the streams given, which are different,
-- and marks the transaction as number of writer. Batch i has sizes[i] messages and
-- request_sizes[i] requests of producers, in the order of the streams; request n
-- begins with message rows[n] of its batch, from 0 on.
--
-- It returns the time that the messages get, and the first position of each batch, or 0 for
-- one that it leaves out:
-- somebody has the stream's lock, the stream is gone, or one of the batch's requests
-- was recorded before. It tells which of the batches took longest, and for how long.
-- It waits for no lock of a stream, and so holds up nobody whose
-- stream is free. Slices of arrays, and not array_agg: that would copy all once more.
CREATE FUNCTION tidewire.append_together(
	writer bigint, number bigint, streams int[], sizes int[], payloads bytea[], keys text[], headers jsonb[],
	request_sizes int[], producers text[], sequences bigint[], rows bigint[], counts int[],
	OUT firsts bigint[], OUT at timestamptz, OUT slowest int, OUT slowest_ms bigint
) LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
	ended timestamptz;
	took bigint;
	from_row int;
	to_row int := 0;
	from_request int;
	to_request int := 0;
	stream_id int;
	positions regclass;
	head bigint;
BEGIN
	firsts := array_fill(0::bigint, ARRAY[cardinality(streams)]);
	at := now();
	slowest := 1;
	slowest_ms := 0;
	FOR i IN 1 .. cardinality(streams) LOOP
		stream_id := streams[i];
		from_row := to_row + 1;
		to_row := to_row + sizes[i];
		from_request := to_request + 1;
		to_request := to_request + request_sizes[i];
		CONTINUE WHEN NOT pg_try_advisory_xact_lock(1953064037, stream_id);
		positions := to_regclass('tidewire.stream_' || stream_id || '_position_seq');
		CONTINUE WHEN positions IS NULL;
		IF to_request >= from_request THEN
			PERFORM FROM tidewire.find_requests(stream_id, producers[from_request:to_request], sequences[from_request:to_request]) AS f
				WHERE f.first IS NOT NULL OR f.too_old;
			CONTINUE WHEN FOUND;
		END IF;
		head := coalesce(pg_sequence_last_value(positions), 0);
		IF head + sizes[i] >= (SELECT grow_at FROM tidewire.segment WHERE stream = stream_id ORDER BY last DESC LIMIT 1) THEN
			PERFORM tidewire.make_room(stream_id, head, head + sizes[i]);
		END IF;
		PERFORM setval(positions, head + sizes[i]);
		IF to_request >= from_request THEN
			PERFORM tidewire.record_requests(stream_id, sizes[i], producers[from_request:to_request],
				sequences[from_request:to_request], rows[from_request:to_request], counts[from_request:to_request]);
		END IF;
		IF sizes[i] = 1 THEN
			EXECUTE format('INSERT INTO tidewire.%I (position, payload, key, headers) VALUES ($1, $2, $3, $4)', 'stream_' || stream_id)
				USING head + 1, payloads[from_row], keys[from_row], headers[from_row];
		ELSE
			EXECUTE format('INSERT INTO tidewire.%I (position, payload, key, headers)
				SELECT $1 + n, p, k, h FROM unnest($2, $3, $4) WITH ORDINALITY AS t (p, k, h, n)', 'stream_' || stream_id)
				USING head, payloads[from_row:to_row], keys[from_row:to_row], headers[from_row:to_row];
		END IF;
		firsts[i] := head + 1;
		ended := clock_timestamp();
		took := 1000 * extract(epoch FROM ended - began);
		IF took > slowest_ms THEN
			slowest := i;
			slowest_ms := took;
		END IF;
		began := ended;
	END LOOP;
	INSERT INTO tidewire.batch (writer, number, first_position, firsts) VALUES (writer, number, 0, firsts);
	PERFORM tidewire.note_growth();
END
$$;

-- settle_together tells what became of a transaction of append_together whose answer
-- was lost: its firsts, or NULL if nothing of it was stored, and will be. It waits
-- for the transaction if that is still under way. If that had not got as far as
-- its mark, the mark made here is in its way. READ COMMITTED, as for all of these.
CREATE FUNCTION tidewire.settle_together(my_writer bigint, my_number bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (my_writer, my_number, 0) ON CONFLICT DO NOTHING;
	RETURN (SELECT firsts FROM tidewire.batch WHERE writer = my_writer AND number = my_number);
END
$$;

-- record_together writes to the journals of the queues given, which are different, what
-- record.go says of one: if nobody else has written since row seens[i], and the lease
-- lasts until later. Queue i has sizes[i] rows, and claims so many positions after the
-- top; rows of kind 4 are counted from there.
--
-- It returns the number and the old top of each queue that it has written to, and the
-- time. The others are left out: somebody has the lock, or has written, or the queue is
-- gone.
CREATE FUNCTION tidewire.record_together(
	queues int[], seens bigint[], untils timestamptz[], owns bigint[], claims bigint[], sizes int[],
	kinds smallint[], los bigint[], his bigint[], bodies bytea[]
) RETURNS TABLE (number int, top bigint, at timestamptz) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
	from_row int;
	to_row int := 0;
	journal text;
	last bigint;
	base bigint;
BEGIN
	FOR i IN 1 .. cardinality(queues) LOOP
		from_row := to_row + 1;
		to_row := to_row + sizes[i];
		CONTINUE WHEN NOT pg_try_advisory_xact_lock(1953064037, -queues[i]);
		journal := tidewire.journal_of(queues[i]);
		CONTINUE WHEN to_regclass(journal) IS NULL;
		EXECUTE format('SELECT sequence, top, base FROM %s ORDER BY sequence DESC LIMIT 1', journal) INTO last, top, base;
		at := clock_timestamp();
		CONTINUE WHEN (last = seens[i] AND at < untils[i]) IS NOT TRUE;
		EXECUTE format($sql$
			INSERT INTO %s (sequence, kind, token, lo, hi, body, top, base)
			SELECT $1 + n, k, $2, l + CASE k WHEN 4 THEN $3 ELSE 0 END, h + CASE k WHEN 4 THEN $3 ELSE 0 END, b, $3 + $4, $5
			FROM unnest($6, $7, $8, $9) WITH ORDINALITY AS t (k, l, h, b, n)$sql$, journal)
			USING last, owns[i], top, claims[i], base,
				kinds[from_row:to_row], los[from_row:to_row], his[from_row:to_row], bodies[from_row:to_row];
		number := i;
		RETURN NEXT;
	END LOOP;
END
$$;
