-- queue_write as in 0004, which says what it does, at half the cost: most
-- of that was planning. Statements on a journal are planned each time, because
-- its name is, so there are fewer and smaller ones: a row is inserted with
-- VALUES, and returned from what is at hand; the journal is read only if others
-- have written to it.
--
-- Kind 11 is 2, the beginning of a lease, for who wants to be alone: as 5 and 8
-- it is left out if others were faster, here if one began its lease.
CREATE OR REPLACE FUNCTION tidewire.queue_write(
	queue_id int, seen bigint, own bigint, valid_until timestamptz, lease interval,
	kinds smallint[], tokens bigint[], los bigint[], his bigint[], untils timestamptz[], bodies bytea[],
	claim bigint, side jsonb
) RETURNS TABLE (sequence bigint, kind smallint, token bigint, lo bigint, hi bigint, until timestamptz, body bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '2s' AS $$
DECLARE
	journal text := 'queue_' || queue_id || '_journal_' || tidewire.hold_queue(queue_id);
	insert_row text := format('INSERT INTO tidewire.%I (sequence, kind, token, lo, hi, until, body, top)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)', journal);
	at timestamptz := clock_timestamp();
	outcome int := 0;
	last bigint;
	old_top bigint;
	new_top bigint;
	own_moved boolean := false;
	moved boolean := false;
	leased boolean := false;
	writers bigint[] := '{}';
BEGIN
	EXECUTE format('SELECT sequence, top FROM tidewire.%I ORDER BY sequence DESC LIMIT 1', journal) INTO last, old_top;
	IF last > seen THEN
		EXECUTE format($sql$
			SELECT bool_or(kind = 1 OR token = $2 AND $2 <> 0), bool_or(kind IN (1, 3, 5, 7, 8)), bool_or(kind = 2), array_agg(DISTINCT token)
			FROM tidewire.%I WHERE sequence > $1$sql$, journal) INTO own_moved, moved, leased, writers USING seen, own;
	END IF;
	IF cardinality(kinds) = 0 AND claim = 0 THEN
		NULL; -- only looks
	ELSIF own_moved THEN
		outcome := 3;
	ELSIF valid_until <= at THEN
		outcome := 2;
	ELSIF kinds && '{3,5,8,11}'::smallint[] AND EXISTS (
		SELECT FROM unnest(kinds, tokens, untils) AS e (kind, token, until)
		WHERE (e.kind IN (5, 8, 11) OR e.kind = 3 AND e.token <> own)
			AND (moved OR e.kind = 11 AND leased OR e.kind = 3 AND (e.until > at OR e.token = ANY (writers)))
	) THEN
		outcome := 1;
	END IF;

	sequence := last; kind := outcome; token := 0; lo := 0; hi := 0; until := at; body := NULL;
	RETURN NEXT;
	IF last > seen THEN
		RETURN QUERY EXECUTE format($sql$
			SELECT sequence, kind, token, lo, hi, until, body FROM tidewire.%I WHERE sequence > $1 ORDER BY sequence$sql$, journal)
			USING seen;
	END IF;
	IF outcome < 2 THEN
		new_top := old_top + claim;
		FOR n IN 1 .. cardinality(kinds) LOOP
			IF kinds[n] = 8 AND outcome = 0 THEN
				new_top := greatest(new_top, his[n]);
			END IF;
		END LOOP;
		sequence := last;
		FOR n IN 1 .. cardinality(kinds) LOOP
			CONTINUE WHEN outcome = 1 AND (kinds[n] IN (5, 8, 11) OR kinds[n] = 3 AND tokens[n] <> own);
			sequence := sequence + 1; kind := CASE kinds[n] WHEN 11 THEN 2 ELSE kinds[n] END; token := tokens[n]; lo := los[n]; hi := his[n]; body := bodies[n];
			until := CASE kind WHEN 2 THEN at + lease ELSE untils[n] END;
			EXECUTE insert_row USING sequence, kind, token, lo, hi, until, body, new_top;
			RETURN NEXT;
			IF kind = 3 AND token <> own THEN
				PERFORM tidewire.queue_end_side(queue_id, token, true);
			END IF;
		END LOOP;
		IF claim > 0 THEN
			sequence := sequence + 1; kind := 4; token := own; lo := old_top + 1; hi := old_top + claim; until := NULL; body := NULL;
			EXECUTE insert_row USING sequence, kind, token, lo, hi, until, body, new_top;
			RETURN NEXT;
		END IF;
		IF side IS NOT NULL THEN
			RETURN QUERY SELECT * FROM tidewire.queue_write_side(queue_id, own, at, side);
		END IF;
		FOR n IN 1 .. cardinality(kinds) LOOP
			IF kinds[n] = 3 AND tokens[n] = own THEN
				PERFORM tidewire.queue_end_side(queue_id, own, false);
			END IF;
		END LOOP;
	END IF;
END
$$;
