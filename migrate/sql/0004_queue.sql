-- Queues: competing consumers on a stream.
--
-- A queue is a stream of the same name and a journal that says who may hand
-- out which positions, and which are done. All that writes to the journal does
-- so under one lock, so the journal has an order, and what the queue is now is
-- a fold over it, which every node makes and keeps for itself. Rows of the
-- journal are never updated or deleted: there are two tables, and when the one
-- in use has grown, what it amounts to is written to the other, as one row, and
-- the old one is truncated. A long transaction elsewhere makes nothing slow.
CREATE TABLE tidewire.queue (
	id int PRIMARY KEY REFERENCES tidewire.stream, -- dropped by drop_queue alone
	active int NOT NULL DEFAULT 0, -- which journal is in use; updated once a rotation
	max_attempts int NOT NULL CHECK (max_attempts >= 1),
	retry_min interval NOT NULL,
	retry_max interval NOT NULL
);

-- What is retried later, delayed, or dead: the slow path, one row for each
-- message, updated in place. The payload stays in the stream. token is the
-- lease of the node that holds the message.
CREATE TABLE tidewire.queue_side (
	queue int NOT NULL,
	position bigint NOT NULL,
	due_at timestamptz NOT NULL,
	token bigint,
	attempts int NOT NULL,
	dead boolean NOT NULL,
	reason text NOT NULL,
	PRIMARY KEY (queue, position)
);
CREATE INDEX queue_side_due_idx ON tidewire.queue_side (queue, due_at) WHERE token IS NULL AND NOT dead;
CREATE INDEX queue_side_token_idx ON tidewire.queue_side (queue, token) WHERE token IS NOT NULL;
CREATE INDEX queue_side_dead_idx ON tidewire.queue_side (queue, position) WHERE dead;

-- ensure_queue makes the queue of a stream, unless it is there, and returns it.
CREATE FUNCTION tidewire.ensure_queue(queue_id int, attempts int, retry_from interval, retry_to interval)
RETURNS tidewire.queue LANGUAGE plpgsql AS $$
DECLARE
	made tidewire.queue;
BEGIN
	INSERT INTO tidewire.queue (id, max_attempts, retry_min, retry_max)
		VALUES (queue_id, attempts, retry_from, retry_to)
		ON CONFLICT (id) DO NOTHING RETURNING * INTO made;
	IF NOT FOUND THEN
		SELECT * INTO made FROM tidewire.queue WHERE id = queue_id;
		RETURN made;
	END IF;
	FOR i IN 0 .. 1 LOOP
		-- top is the highest position claimed, up to and with this row.
		EXECUTE format($sql$
			CREATE TABLE tidewire.%I (
				sequence bigint PRIMARY KEY,
				token bigint NOT NULL,
				lo bigint NOT NULL,
				hi bigint NOT NULL,
				top bigint NOT NULL,
				until timestamptz,
				kind smallint NOT NULL,
				body bytea
			) WITH (autovacuum_enabled = false)$sql$, 'queue_' || queue_id || '_journal_' || i);
	END LOOP;
	EXECUTE format('INSERT INTO tidewire.%I VALUES (1, 0, 0, 0, 0, NULL, 1, NULL)', 'queue_' || queue_id || '_journal_0');
	RETURN made;
END
$$;

-- drop_queue drops a queue with its stream, and tells whether there was one.
-- As drop_stream it gives up soon, and the caller tries again.
CREATE FUNCTION tidewire.drop_queue(queue_name text)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
	queue_id int := (SELECT q.id FROM tidewire.queue AS q JOIN tidewire.stream AS s USING (id) WHERE s.name = queue_name);
BEGIN
	IF queue_id IS NULL THEN
		RETURN false;
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, -queue_id);
	DELETE FROM tidewire.queue WHERE id = queue_id;
	DELETE FROM tidewire.queue_side WHERE queue = queue_id;
	EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I',
		'queue_' || queue_id || '_journal_0', 'queue_' || queue_id || '_journal_1');
	RETURN tidewire.drop_stream(queue_name);
END
$$;

-- hold_queue takes the queue's lock until the end of the transaction and
-- returns the number of the journal in use. The lock's number is the negative
-- of the stream's, whose own lock orders appends and has nothing to do with
-- this one. What comes behind the lock has to see what was committed before it
-- was granted: only READ COMMITTED does.
CREATE FUNCTION tidewire.hold_queue(queue_id int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	in_use int;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'queues need READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, -queue_id);
	SELECT active INTO in_use FROM tidewire.queue WHERE id = queue_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no queue %', queue_id USING ERRCODE = 'TW003';
	END IF;
	RETURN in_use;
END
$$;

-- queue_write appends to the journal and returns what stands behind row seen,
-- up to which the caller knows the journal. Only that needs to be looked at
-- here: what the caller derived from the rows before stays true.
--
-- own is the token of the caller's lease, or 0; valid_until is when it ends, as
-- far as the caller knows, or NULL with the first row of a lease. Nothing is
-- written if the caller has rows of its own behind seen (an attempt of which it
-- never heard), or the journal began anew, or the lease is over: the time is
-- asked for after the lock was taken. The kinds, which package queue names:
--
--   1 all that was before      5 claim of positions given up
--   2 lease begins, or goes on 6 positions are done
--   3 lease ends               7 positions are given up
--   4 claim behind the top     8 positions nobody has are done
--
-- 5, 8 and the end of another's lease depend on what others do: they are left
-- out if others have moved positions behind seen, or if that lease did not end.
-- claim positions behind the top are claimed besides.
--
-- The first row returned is (last sequence, outcome, now), with outcome 0 all is
-- written, 1 all but 5, 8 and ends of others, 2 nothing: the lease is over, 3
-- nothing: look behind seen first. Behind the journal's rows come, if side is
-- not NULL, kind 101, when the next message aside is due, and 102, those that
-- the caller got.
--
-- The statements are planned each time; without statistics, which tables this
-- short-lived do not have, the planner would walk through all of the journal.
CREATE FUNCTION tidewire.queue_write(
	queue_id int, seen bigint, own bigint, valid_until timestamptz, lease interval,
	kinds smallint[], tokens bigint[], los bigint[], his bigint[], untils timestamptz[], bodies bytea[],
	claim bigint, side jsonb
) RETURNS TABLE (sequence bigint, kind smallint, token bigint, lo bigint, hi bigint, until timestamptz, body bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '2s' AS $$
DECLARE
	journal text := 'queue_' || queue_id || '_journal_' || tidewire.hold_queue(queue_id);
	at timestamptz := clock_timestamp();
	outcome int := 0;
	last bigint;
	old_top bigint;
	own_moved boolean := false;
	moved boolean := false;
	writers bigint[] := '{}';
BEGIN
	EXECUTE format('SELECT sequence, top FROM tidewire.%I ORDER BY sequence DESC LIMIT 1', journal) INTO last, old_top;
	IF last > seen THEN
		EXECUTE format($sql$
			SELECT bool_or(kind = 1 OR token = $2 AND $2 <> 0), bool_or(kind IN (1, 3, 5, 7, 8)), array_agg(DISTINCT token)
			FROM tidewire.%I WHERE sequence > $1$sql$, journal) INTO own_moved, moved, writers USING seen, own;
	END IF;
	IF cardinality(kinds) > 0 OR claim > 0 THEN
		IF own_moved THEN
			outcome := 3;
		ELSIF valid_until <= at THEN
			outcome := 2;
		ELSE
			IF EXISTS (
				SELECT FROM unnest(kinds, tokens, untils) AS e (kind, token, until)
				WHERE (e.kind IN (5, 8) OR e.kind = 3 AND e.token <> own)
					AND (moved OR e.kind = 3 AND (e.until > at OR e.token = ANY (writers)))
			) THEN
				outcome := 1;
			END IF;
			EXECUTE format($sql$
				INSERT INTO tidewire.%I (sequence, kind, token, lo, hi, until, body, top)
				SELECT $1 + row_number() OVER (ORDER BY n), e.kind, e.token, e.lo, e.hi,
					CASE e.kind WHEN 2 THEN $2 + $3 ELSE e.until END, e.body,
					greatest($4 + $5, max(CASE e.kind WHEN 8 THEN e.hi END) OVER ())
				FROM (
					SELECT * FROM unnest($6, $7, $8, $9, $10, $11) WITH ORDINALITY AS e (kind, token, lo, hi, until, body, n)
					WHERE $12 = 0 OR NOT (e.kind IN (5, 8) OR e.kind = 3 AND e.token <> $13)
					UNION ALL
					SELECT 4, $13, $4 + 1, $4 + $5, NULL, NULL, cardinality($6) + 1 WHERE $5 > 0
				) AS e$sql$, journal)
				USING last, at, lease, old_top, claim, kinds, tokens, los, his, untils, bodies, outcome, own;
			PERFORM tidewire.queue_end_side(queue_id, tokens[n], true)
				FROM generate_subscripts(kinds, 1) AS n WHERE kinds[n] = 3 AND tokens[n] <> own AND outcome = 0;
		END IF;
	END IF;
	RETURN QUERY SELECT last, outcome::smallint, 0::bigint, 0::bigint, 0::bigint, at, NULL::bytea;
	RETURN QUERY EXECUTE format($sql$
		SELECT sequence, kind, token, lo, hi, until, body FROM tidewire.%I WHERE sequence > $1 ORDER BY sequence$sql$, journal)
		USING seen;
	IF side IS NOT NULL AND outcome < 2 THEN
		RETURN QUERY SELECT * FROM tidewire.queue_write_side(queue_id, own, at, side);
	END IF;
	IF outcome < 2 THEN
		PERFORM tidewire.queue_end_side(queue_id, own, false)
			FROM generate_subscripts(kinds, 1) AS n WHERE kinds[n] = 3 AND tokens[n] = own;
	END IF;
END
$$;

-- queue_end_side lets go of the messages aside that a lease held. A lease that
-- others ended may have handed them out.
CREATE FUNCTION tidewire.queue_end_side(queue_id int, ended bigint, tried boolean)
RETURNS void LANGUAGE sql SET enable_seqscan = off AS $$
	UPDATE tidewire.queue_side SET token = NULL, attempts = attempts + tried::int
	WHERE queue = queue_id AND token = ended
$$;

-- queue_write_side does for queue_write what side says: which of the lease's
-- messages are done, which go (back) aside, how many more it wants.
CREATE FUNCTION tidewire.queue_write_side(queue_id int, own bigint, at timestamptz, side jsonb)
RETURNS TABLE (sequence bigint, kind smallint, token bigint, lo bigint, hi bigint, until timestamptz, body bytea)
LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
	DELETE FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.token = own
		AND s.position = ANY (ARRAY(SELECT jsonb_array_elements_text(side->'done')::bigint));
	-- From the log: a row of its own, though the journal says it is done.
	INSERT INTO tidewire.queue_side (queue, position, due_at, attempts, dead, reason)
		SELECT queue_id, p.position, coalesce(p.due, at + p.delay * interval '1 microsecond'), p.attempts, p.dead, p.reason
		FROM jsonb_to_recordset(side->'put') AS p (position bigint, due timestamptz, delay bigint, attempts int, dead boolean, reason text, fresh boolean)
		WHERE p.fresh ORDER BY p.position
		ON CONFLICT DO NOTHING;
	UPDATE tidewire.queue_side AS s
		SET due_at = at + p.delay * interval '1 microsecond', token = NULL, attempts = p.attempts, dead = p.dead, reason = p.reason
		FROM jsonb_to_recordset(side->'put') AS p (position bigint, delay bigint, attempts int, dead boolean, reason text, fresh boolean)
		WHERE NOT p.fresh AND s.queue = queue_id AND s.position = p.position AND s.token = own;
	UPDATE tidewire.queue_side AS s SET token = own WHERE s.queue = queue_id AND s.position = ANY (ARRAY(
		SELECT d.position FROM tidewire.queue_side AS d
		WHERE d.queue = queue_id AND d.token IS NULL AND NOT d.dead AND d.due_at <= at
		ORDER BY d.due_at LIMIT (side->>'want')::int));
	RETURN QUERY SELECT 0::bigint, 101::smallint, 0::bigint, 0::bigint, 0::bigint, min(s.due_at), NULL::bytea
		FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.token IS NULL AND NOT s.dead;
	-- Also those of a call whose answer the caller never got.
	RETURN QUERY SELECT s.position, 102::smallint, s.attempts::bigint, 0::bigint, 0::bigint, s.due_at, NULL::bytea
		FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.token = own AND own <> 0
		AND s.position <> ALL (ARRAY(SELECT jsonb_array_elements_text(side->'known')::bigint)) ORDER BY s.position;
END
$$;

-- rotate_queue writes the one row that says what the journal amounts to into
-- the other table, which is in use from then on, and tells whether it did: that
-- table must have been truncated. The caller holds the lock since it read the
-- journal.
CREATE FUNCTION tidewire.rotate_queue(queue_id int, next_sequence bigint, top bigint, body bytea)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	other int := 1 - tidewire.hold_queue(queue_id);
	journal text := 'queue_' || queue_id || '_journal_' || other;
BEGIN
	IF pg_relation_size(('tidewire.' || journal)::regclass) > 0 THEN
		RETURN false;
	END IF;
	EXECUTE format('INSERT INTO tidewire.%I VALUES ($1, 0, 0, 0, $2, NULL, 1, $3)', journal)
		USING next_sequence, top, body;
	UPDATE tidewire.queue SET active = other WHERE id = queue_id;
	RETURN true;
END
$$;

-- truncate_queue empties the journal that is not in use. A transaction that has
-- read it, and goes on, makes it fail at once: nobody ever waits behind it.
CREATE FUNCTION tidewire.truncate_queue(queue_id int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	old text := 'queue_' || queue_id || '_journal_' || (1 - tidewire.hold_queue(queue_id));
BEGIN
	IF pg_relation_size(('tidewire.' || old)::regclass) > 0 THEN
		EXECUTE format('LOCK TABLE tidewire.%I IN ACCESS EXCLUSIVE MODE NOWAIT', old);
		EXECUTE format('TRUNCATE tidewire.%I', old);
	END IF;
END
$$;
