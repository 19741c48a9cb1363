-- The journals of all queues are in one table.

-- A row is one entry of the journal of a queue, in the order of sequence. top is the highest
-- position claimed by this row or earlier ones; base is where the journal begins. A
-- transaction that writes to many journals is one INSERT, with a cached plan.
--
-- The journal is compacted in place: one transaction appends a row with the state that
-- results from all rows before, and deletes these. A long snapshot keeps deleted rows, but
-- nothing scans them: reads start at base, or at the end. Columns of a fixed width come
-- first. Statistics of a table that changes so fast would mislead the planner; autovacuum
-- runs only if no node removes deleted rows.
CREATE TABLE tidewire.queue_journal (
	sequence bigint NOT NULL,
	token bigint NOT NULL,
	lo bigint NOT NULL,
	hi bigint NOT NULL,
	top bigint NOT NULL,
	base bigint NOT NULL,
	until timestamptz,
	queue int NOT NULL,
	kind smallint NOT NULL,
	body bytea,
	PRIMARY KEY (queue, sequence)
) WITH (autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_insert_threshold = -1,
	autovacuum_analyze_threshold = 2147483647, autovacuum_analyze_scale_factor = 0);

-- hold_queue takes the queue's lock until the end of the transaction. READ COMMITTED
-- is required, so that statements after the lock see everything that was committed
-- before it was granted.
CREATE FUNCTION tidewire.hold_queue(queue_id int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'queues need READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, -queue_id);
END
$$;

-- queue_write appends to the journal and returns the rows after seen, the last row that
-- the caller has read. Only those rows have to be checked here: what the caller derived
-- from earlier rows stays true (optimistic concurrency).
--
-- own is the token of the caller's lease, or 0; valid_until is when it ends, as
-- far as the caller knows, or NULL with the first row of a lease. Nothing is
-- written if there are rows of the caller after seen (from an attempt whose
-- answer it never got), or the journal was compacted, or the lease is over; the
-- time is read after the lock was taken. The kinds, which package queue names:
--
--   1 state of all before      6 positions are done
--   2 lease begins, is renewed 7 positions are released
--   3 lease ends               8 unclaimed positions are done
--   4 claim after the top     11 lease begins, if no other has begun
--   5 claim of released       12 positions had lo attempts, and hi
--     positions                  deliveries without one
--
-- 5, 8, 11 and the end of another node's lease may conflict with rows of other nodes: they are left out if other
-- nodes have moved positions after seen, if that lease did not end, or, for 11, if another lease began after seen.
-- In addition, the given number (claim) of positions after the top is claimed.
--
-- The first row returned is (last sequence, outcome, now). Outcome 0: everything is written; 1: everything except conflicting
-- rows; 2: nothing, the lease is over; 3: nothing, the caller has to read the rows after seen first; 4: nothing, and the whole
-- journal is returned, because the caller has read rows of a history that was lost. To detect that, the sequence numbers of
-- journals are above the base of the history, too. After the journal's rows come, if side is not NULL, kind 101: when the next
-- deferred message is due, and 102: the deferred messages that the caller got.
CREATE FUNCTION tidewire.queue_write(
	queue_id int, seen bigint, own bigint, valid_until timestamptz, lease interval,
	kinds smallint[], tokens bigint[], los bigint[], his bigint[], untils timestamptz[], bodies bytea[],
	claim bigint, side jsonb
) RETURNS TABLE (sequence bigint, kind smallint, token bigint, lo bigint, hi bigint, until timestamptz, body bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET lock_timeout = '2s' AS $$
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
	IF seen BETWEEN old_base AND 9223372036854775806 AND seen <> last AND NOT EXISTS (SELECT FROM tidewire.queue_journal AS j WHERE j.queue = queue_id AND j.sequence = seen) THEN
		outcome := 4;
		known := old_base - 1;
	END IF;
	IF outcome = 0 AND last > known THEN
		SELECT bool_or(j.kind = 1 OR j.token = own AND own <> 0), bool_or(j.kind IN (1, 3, 5, 7, 8)), bool_or(j.kind = 2), array_agg(DISTINCT j.token)
			INTO own_moved, moved, leased, writers
			FROM tidewire.queue_journal AS j WHERE j.queue = queue_id AND j.sequence > known;
	END IF;
	IF outcome = 4 OR cardinality(kinds) = 0 AND claim = 0 THEN
		NULL; -- only reads
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
		sequence := greatest(last, tidewire.history_base());
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

-- queue_write_side applies side for queue_write: which messages of the lease are done, which are
-- deferred (again), how many more it wants, and how often messages were delivered that the lease
-- keeps. Rows of kind 102 have the attempts in token, the deliveries without one in hi, and 1 in lo if a node that
-- had the message died.
CREATE FUNCTION tidewire.queue_write_side(queue_id int, own bigint, at timestamptz, side jsonb)
RETURNS TABLE (sequence bigint, kind smallint, token bigint, lo bigint, hi bigint, until timestamptz, body bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
	DELETE FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.token = own
		AND s.position = ANY (ARRAY(SELECT jsonb_array_elements_text(side->'done')::bigint));
	-- From the log: the message gets a row here; in the journal it counts as done.
	INSERT INTO tidewire.queue_side (queue, position, due_at, attempts, unbegun, dead, reason)
		SELECT queue_id, p.position, coalesce(p.due, at + p.delay * interval '1 microsecond'), p.attempts, p.unbegun, p.dead, p.reason
		FROM jsonb_to_recordset(side->'put') AS p (position bigint, due timestamptz, delay bigint, attempts int, unbegun int, dead boolean, reason text, fresh boolean)
		WHERE p.fresh ORDER BY p.position
		ON CONFLICT DO NOTHING;
	UPDATE tidewire.queue_side AS s
		SET due_at = at + p.delay * interval '1 microsecond', token = NULL, attempts = p.attempts, unbegun = p.unbegun, dead = p.dead, reason = p.reason
		FROM jsonb_to_recordset(side->'put') AS p (position bigint, delay bigint, attempts int, unbegun int, dead boolean, reason text, fresh boolean)
		WHERE NOT p.fresh AND s.queue = queue_id AND s.position = p.position AND s.token = own;
	UPDATE tidewire.queue_side AS s SET attempts = p.attempts, unbegun = p.unbegun
		FROM jsonb_to_recordset(side->'tried') AS p (position bigint, attempts int, unbegun int)
		WHERE s.queue = queue_id AND s.position = p.position AND s.token = own;
	UPDATE tidewire.queue_side AS s SET token = own WHERE s.queue = queue_id AND s.position = ANY (ARRAY(
		SELECT d.position FROM tidewire.queue_side AS d
		WHERE d.queue = queue_id AND d.token IS NULL AND NOT d.dead AND d.due_at <= at
		ORDER BY d.due_at LIMIT (side->>'want')::int));
	RETURN QUERY SELECT 0::bigint, 101::smallint, 0::bigint, 0::bigint, 0::bigint, min(s.due_at), NULL::bytea
		FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.token IS NULL AND NOT s.dead;
	-- Including those of a call whose answer the caller never got.
	RETURN QUERY SELECT s.position, 102::smallint, s.attempts::bigint, s.suspect::int::bigint, s.unbegun::bigint, s.due_at, NULL::bytea
		FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.token = own AND own <> 0
		AND s.position <> ALL (ARRAY(SELECT jsonb_array_elements_text(side->'known')::bigint)) ORDER BY s.position;
END
$$;

-- queue_end_side releases the deferred messages that a lease held, for any node. died: its node died, so they become suspect.
CREATE FUNCTION tidewire.queue_end_side(queue_id int, ended bigint, died boolean)
RETURNS void LANGUAGE sql SET enable_seqscan = off SET jit = off AS $$
	UPDATE tidewire.queue_side SET token = NULL, suspect = suspect OR died
	WHERE queue = queue_id AND token = ended
$$;

-- record_together writes to the journals of many queues in one transaction (group commit). It leaves out queues in whose journals
-- other rows were written meanwhile, and the first rows in a history: these need queue_write.
CREATE FUNCTION tidewire.record_together(
	queues int[], seens bigint[], untils timestamptz[], leases interval[], owns bigint[], claims bigint[], sizes int[],
	kinds smallint[], los bigint[], his bigint[], bodies bytea[]
) RETURNS TABLE (number int, top bigint, at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
	next_row int := 1;
	from_rows int[];
	locked int[];
	history bigint := tidewire.history_base();
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
			) AS j WHERE j.sequence = seens[l.i] AND j.sequence >= history AND at < untils[l.i]
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

-- look_at_queues returns the state of each queue, so that idle queues cost one query: the last row of the
-- journal, when the next deferred message is due, and the end of the stream, or NULL if its sequence still
-- has the settled value. It takes no lock of a queue, and its result is only a hint. Queues that are being
-- dropped, or are empty for a moment, are left out. Queues whose streams have separate tables and have grown
-- take one more query.
CREATE FUNCTION tidewire.look_at_queues(ids int[], settled bigint[])
RETURNS TABLE (queue int, last bigint, due timestamptz, head bigint, at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET lock_timeout = '100ms' AS $$
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
				CONTINUE; -- the stream is being dropped, or altered
			END;
		END IF;
		RETURN NEXT;
	END LOOP;
END
$$;

-- rotate_queue replaces the rows of the journal by one row with the resulting state
-- (compaction). The caller has held the lock since it read the journal.
CREATE FUNCTION tidewire.rotate_queue(queue_id int, next_sequence bigint, top bigint, body bytea)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	old_base bigint;
BEGIN
	PERFORM tidewire.hold_queue(queue_id);
	next_sequence := greatest(next_sequence, tidewire.history_base() + 1);
	SELECT j.base INTO old_base FROM tidewire.queue_journal AS j WHERE j.queue = queue_id ORDER BY j.sequence DESC LIMIT 1;
	INSERT INTO tidewire.queue_journal (queue, sequence, token, lo, hi, top, kind, body, base)
		VALUES (queue_id, next_sequence, 0, 0, 0, top, 1, body, next_sequence);
	DELETE FROM tidewire.queue_journal AS j WHERE j.queue = queue_id AND j.sequence >= old_base AND j.sequence < next_sequence;
END
$$;

-- refuse_lost_journal is called if a journal has no row. Every journal has a row from the beginning: treating an empty one as new
-- would make a queue that never delivers anything again. It distinguishes a queue that was dropped from one that has lost its
-- journal.
CREATE FUNCTION tidewire.refuse_lost_journal(queue_id int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	queue_name text := (SELECT s.name FROM tidewire.queue AS q JOIN tidewire.stream AS s USING (id) WHERE q.id = queue_id);
BEGIN
	IF queue_name IS NULL THEN
		RAISE EXCEPTION 'queue % was dropped', queue_id USING ERRCODE = 'undefined_table';
	END IF;
	RAISE EXCEPTION 'queue % has lost its journal, which says what was delivered and acknowledged', quote_ident(queue_name)
		USING ERRCODE = 'TW030', DETAIL = 'A backup made by an earlier version may lack it.',
		HINT = format('Restore a backup that has rows in tidewire.queue_journal for queue %s, or begin a new journal: '
			'SELECT tidewire.restart_queue(%L, after), '
			'where messages up to position "after" count as done and all later ones are delivered, 0 being all.',
			queue_id, queue_name);
END
$$;

-- restart_queue begins a new journal for a queue, or a priority or partition of one,
-- that has lost its journal. Messages up to the position count as done. All later
-- messages are delivered, even if they were acknowledged or dead.
CREATE FUNCTION tidewire.restart_queue(queue_name text, after bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	queue_id int := (SELECT q.id FROM tidewire.queue AS q JOIN tidewire.stream AS s USING (id) WHERE s.name = queue_name);
BEGIN
	IF queue_id IS NULL THEN
		RAISE EXCEPTION 'there is no queue %', quote_ident(queue_name) USING ERRCODE = 'TW003';
	END IF;
	PERFORM tidewire.hold_queue(queue_id);
	PERFORM FROM tidewire.queue_journal AS j WHERE j.queue = queue_id;
	IF FOUND THEN
		RAISE EXCEPTION 'queue % has its journal', quote_ident(queue_name) USING ERRCODE = 'TW030';
	END IF;
	IF after IS NULL OR after < 0 THEN
		RAISE EXCEPTION 'after is %, want a position, or 0', after USING ERRCODE = 'invalid_parameter_value';
	END IF;
	DELETE FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.position > after;
	UPDATE tidewire.queue_side AS s SET token = NULL WHERE s.queue = queue_id;
	INSERT INTO tidewire.queue_journal (queue, sequence, token, lo, hi, top, kind, body, base)
		VALUES (queue_id, 1, 0, 0, 0, after, 1, convert_to(json_build_object('top', after)::text, 'UTF8'), 1);
END
$$;
