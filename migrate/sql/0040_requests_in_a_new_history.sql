-- The first batch of a stream that shares a table, in a history that a failover began, was placed after the base, and its
-- producers' requests were recorded as of the positions after the last message: a repetition was told a position that
-- is of a message that is lost.

-- record_requests as before. The first position of a shared stream is that which take_shared has given out.
CREATE OR REPLACE FUNCTION tidewire.record_requests(
	stream_id int, size bigint, producers text[], sequences bigint[], rows bigint[], counts int[] DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	in_use int;
	first bigint;
	recorded bigint := 0;
BEGIN
	IF (SELECT s.shared FROM tidewire.stream AS s WHERE s.id = stream_id) THEN
		first := greatest(tidewire.shared_head(stream_id), tidewire.history_base()) + 1;
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
