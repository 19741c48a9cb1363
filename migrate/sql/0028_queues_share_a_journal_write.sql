-- The functions that write to journals, and look at them, with the table that they share.

-- queue_write as before.
CREATE OR REPLACE FUNCTION tidewire.queue_write(
	queue_id int, seen bigint, own bigint, valid_until timestamptz, lease interval,
	kinds smallint[], tokens bigint[], los bigint[], his bigint[], untils timestamptz[], bodies bytea[],
	claim bigint, side jsonb
) RETURNS TABLE (sequence bigint, kind smallint, token bigint, lo bigint, hi bigint, until timestamptz, body bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
	at timestamptz;
	outcome int := 0;
	last bigint;
	known bigint;
	old_top bigint;
	old_base bigint;
	new_top bigint;
	own_moved boolean := false;
	moved boolean := false;
	leased boolean := false;
	writers bigint[] := '{}';
BEGIN
	PERFORM tidewire.hold_queue(queue_id);
	at := clock_timestamp();
	SELECT j.sequence, j.top, j.base INTO last, old_top, old_base
		FROM tidewire.queue_journal AS j WHERE j.queue = queue_id ORDER BY j.sequence DESC LIMIT 1;
	IF last IS NULL THEN
		PERFORM tidewire.refuse_lost_journal(queue_id);
	END IF;
	known := greatest(seen, old_base - 1);
	IF last > known THEN
		SELECT bool_or(j.kind = 1 OR j.token = own AND own <> 0), bool_or(j.kind IN (1, 3, 5, 7, 8)), bool_or(j.kind = 2), array_agg(DISTINCT j.token)
			INTO own_moved, moved, leased, writers
			FROM tidewire.queue_journal AS j WHERE j.queue = queue_id AND j.sequence > known;
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
	IF last > known THEN
		RETURN QUERY SELECT j.sequence, j.kind, j.token, j.lo, j.hi, j.until, j.body
			FROM tidewire.queue_journal AS j WHERE j.queue = queue_id AND j.sequence > known ORDER BY j.sequence;
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
			INSERT INTO tidewire.queue_journal (queue, sequence, kind, token, lo, hi, until, body, top, base)
				VALUES (queue_id, sequence, kind, token, lo, hi, until, body, new_top, old_base);
			RETURN NEXT;
			IF kind = 3 AND token <> own THEN
				PERFORM tidewire.queue_end_side(queue_id, token, true);
			END IF;
		END LOOP;
		IF claim > 0 THEN
			sequence := sequence + 1; kind := 4; token := own; lo := old_top + 1; hi := old_top + claim; until := NULL; body := NULL;
			INSERT INTO tidewire.queue_journal (queue, sequence, kind, token, lo, hi, until, body, top, base)
				VALUES (queue_id, sequence, kind, token, lo, hi, until, body, new_top, old_base);
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

-- record_together as before, in two statements for all queues. The second one begins after
-- the locks were granted, and so sees all that was committed under them. It also renews leases:
-- a row of kind 2 has one that lasts for leases[i] from now.
DROP FUNCTION tidewire.record_together(int[], bigint[], timestamptz[], bigint[], bigint[], int[], smallint[], bigint[], bigint[], bytea[]);
CREATE FUNCTION tidewire.record_together(
	queues int[], seens bigint[], untils timestamptz[], leases interval[], owns bigint[], claims bigint[], sizes int[],
	kinds smallint[], los bigint[], his bigint[], bodies bytea[]
) RETURNS TABLE (number int, top bigint, at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
	next_row int := 1;
	from_rows int[];
	locked int[];
BEGIN
	FOR i IN 1 .. cardinality(queues) LOOP
		from_rows[i] := next_row;
		next_row := next_row + sizes[i];
		IF pg_try_advisory_xact_lock(1953064037, -queues[i]) THEN
			locked := locked || i;
		END IF;
	END LOOP;
	at := clock_timestamp();
	RETURN QUERY
		WITH head AS MATERIALIZED (
			SELECT l.i, j.sequence, j.top, j.base FROM unnest(locked) AS l (i), LATERAL (
				SELECT * FROM tidewire.queue_journal AS j WHERE j.queue = queues[l.i] ORDER BY j.sequence DESC LIMIT 1
			) AS j WHERE j.sequence = seens[l.i] AND at < untils[l.i]
		), written AS (
			INSERT INTO tidewire.queue_journal (queue, sequence, kind, token, lo, hi, until, body, top, base)
			SELECT queues[h.i], h.sequence + 1 + r.n - from_rows[h.i], r.kind, owns[h.i],
				r.lo + above.top, r.hi + above.top, CASE r.kind WHEN 2 THEN at + leases[h.i] END, r.body, h.top + claims[h.i], h.base
			FROM (SELECT head.*, from_rows[head.i] + g AS n FROM head, generate_series(0, sizes[head.i] - 1) AS g) AS h
			JOIN unnest(kinds, los, his, bodies) WITH ORDINALITY AS r (kind, lo, hi, body, n) USING (n),
			LATERAL (SELECT CASE r.kind WHEN 4 THEN h.top ELSE 0 END AS top) AS above
		)
		SELECT head.i, head.top, at FROM head;
END
$$;

-- look_at_queues as before, in one query for all, but for those with streams that have
-- tables of their own and have grown.
CREATE OR REPLACE FUNCTION tidewire.look_at_queues(ids int[], settled bigint[])
RETURNS TABLE (queue int, last bigint, due timestamptz, head bigint, at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
DECLARE
	one record;
BEGIN
	at := clock_timestamp();
	FOR one IN
		SELECT q.id, s.shared, u.settled, j.sequence AS last, d.due_at, m.position AS head
		FROM unnest(ids, settled) AS u (id, settled)
		JOIN tidewire.queue AS q ON q.id = u.id
		JOIN tidewire.stream AS s ON s.id = u.id
		LEFT JOIN LATERAL (
			SELECT j.sequence FROM tidewire.queue_journal AS j WHERE j.queue = q.id ORDER BY j.sequence DESC LIMIT 1
		) AS j ON true
		LEFT JOIN LATERAL (
			SELECT d.due_at FROM tidewire.queue_side AS d
			WHERE d.queue = q.id AND d.token IS NULL AND NOT d.dead ORDER BY d.due_at LIMIT 1
		) AS d ON true
		LEFT JOIN LATERAL (
			SELECT m.position FROM tidewire.shared_message AS m WHERE m.stream = s.id AND s.shared ORDER BY m.position DESC LIMIT 1
		) AS m ON true
	LOOP
		queue := one.id;
		last := one.last;
		due := one.due_at;
		head := one.head;
		IF NOT one.shared THEN
			BEGIN
				IF coalesce(pg_sequence_last_value(('tidewire.stream_' || one.id || '_position_seq')::regclass), 0) <> one.settled THEN
					head := (SELECT s.head FROM tidewire.stream_state(one.id) AS s);
				END IF;
			EXCEPTION WHEN undefined_table OR lock_not_available OR internal_error THEN
				CONTINUE; -- it is being dropped, or altered
			END;
		END IF;
		RETURN NEXT;
	END LOOP;
END
$$;
