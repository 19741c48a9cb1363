-- A queue's journal is one table, and every snapshot of the database sees a whole
-- state in it.
--
-- There were two tables that took turns, and the old one was truncated. TRUNCATE
-- is not MVCC: a backup whose snapshot was older than a rotation saw no row in
-- either. Now the journal begins anew in place: one transaction appends the row
-- that says what all before amounts to, and deletes what is before. A snapshot
-- sees the one or the other. Deleted rows stay until VACUUM removes them; the node
-- that began the journal anew asks for it, and autovacuum comes if that fails.
--
-- A long snapshot keeps deleted rows, and nothing may have to pass over them: base,
-- in each row, is where the journal begins. Reads start there, or at the end.

-- journal_of is the name of a queue's journal, as SQL has it.
CREATE FUNCTION tidewire.journal_of(queue_id int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT 'tidewire.queue_' || queue_id || '_journal'
$$;

-- tend_journal has autovacuum come only if nobody else removes deleted rows.
-- Statistics of a table that changes so fast would mislead the planner.
CREATE FUNCTION tidewire.tend_journal(queue_id int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = true,
		autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_insert_threshold = -1,
		autovacuum_analyze_threshold = 2147483647, autovacuum_analyze_scale_factor = 0)', tidewire.journal_of(queue_id));
END
$$;

-- Journals that exist: the one in use stays, under its new name. No node writes
-- meanwhile: all look here first.
LOCK TABLE tidewire.queue IN ACCESS EXCLUSIVE MODE;
DO $$
DECLARE
	q record;
	old text;
	base bigint;
BEGIN
	FOR q IN SELECT id, active FROM tidewire.queue ORDER BY id LOOP
		old := 'queue_' || q.id || '_journal_';
		EXECUTE format('DROP TABLE tidewire.%I', old || 1 - q.active);
		EXECUTE format('SELECT coalesce(min(sequence), 1) FROM tidewire.%I', old || q.active) INTO base;
		EXECUTE format('ALTER TABLE tidewire.%I ADD COLUMN base bigint NOT NULL DEFAULT %s', old || q.active, base);
		EXECUTE format('ALTER TABLE tidewire.%I ALTER COLUMN base DROP DEFAULT', old || q.active);
		EXECUTE format('ALTER TABLE tidewire.%I RENAME CONSTRAINT %I TO %I',
			old || q.active, old || q.active || '_pkey', 'queue_' || q.id || '_journal_pkey');
		EXECUTE format('ALTER TABLE tidewire.%I RENAME TO %I', old || q.active, 'queue_' || q.id || '_journal');
		PERFORM tidewire.tend_journal(q.id);
	END LOOP;
END
$$;
ALTER TABLE tidewire.queue DROP COLUMN active;

-- suspect: a node died that had the message, which may be the reason.
ALTER TABLE tidewire.queue_side ADD COLUMN suspect boolean NOT NULL DEFAULT false;

DROP FUNCTION tidewire.rotate_queue(int, bigint, bigint, bytea);
DROP FUNCTION tidewire.truncate_queue(int);
DROP FUNCTION tidewire.hold_queue(int);

-- hold_queue takes the queue's lock until the end of the transaction and returns
-- the name of the journal. The lock's number is the negative of the stream's,
-- whose own lock orders appends and has nothing to do with this one. What comes
-- after the lock has to see what was committed before it was granted: only READ
-- COMMITTED does.
CREATE FUNCTION tidewire.hold_queue(queue_id int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'queues need READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, -queue_id);
	RETURN tidewire.journal_of(queue_id);
END
$$;

-- refuse_lost_journal is called where a journal has no row, which it has from the
-- first moment on: an empty one would be a queue that delivers nothing for good.
CREATE FUNCTION tidewire.refuse_lost_journal(queue_id int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	queue_name text := (SELECT name FROM tidewire.stream WHERE id = queue_id);
BEGIN
	RAISE EXCEPTION 'queue % has lost its journal, which says what was delivered and acknowledged', quote_ident(queue_name)
		USING ERRCODE = 'TW030', DETAIL = 'A backup made by an earlier version may lack it.',
		HINT = format('Restore a backup that has rows in %s, or begin a new journal: SELECT tidewire.restart_queue(%L, after), '
			'where messages up to position "after" count as done and all later ones are delivered, 0 being all.',
			tidewire.journal_of(queue_id), queue_name);
END
$$;

-- restart_queue begins a new journal for a queue, or a priority or lane of one,
-- that has lost its own. Messages up to the position count as done. All later
-- ones are delivered, also if they were acknowledged or dead.
CREATE FUNCTION tidewire.restart_queue(queue_name text, after bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	queue_id int := (SELECT q.id FROM tidewire.queue AS q JOIN tidewire.stream AS s USING (id) WHERE s.name = queue_name);
	journal text := tidewire.hold_queue(queue_id);
	rows_left boolean;
BEGIN
	IF queue_id IS NULL THEN
		RAISE EXCEPTION 'there is no queue %', quote_ident(queue_name) USING ERRCODE = 'TW003';
	END IF;
	EXECUTE format('SELECT EXISTS (SELECT FROM %s)', journal) INTO rows_left;
	IF rows_left THEN
		RAISE EXCEPTION 'queue % has its journal', quote_ident(queue_name) USING ERRCODE = 'TW030';
	END IF;
	IF after IS NULL OR after < 0 THEN
		RAISE EXCEPTION 'after is %, want a position, or 0', after USING ERRCODE = 'invalid_parameter_value';
	END IF;
	DELETE FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.position > after;
	UPDATE tidewire.queue_side AS s SET token = NULL WHERE s.queue = queue_id;
	EXECUTE format('INSERT INTO %s (sequence, token, lo, hi, top, kind, body, base) VALUES (1, 0, 0, 0, $1, 1, $2, 1)', journal)
		USING after, convert_to(json_build_object('top', after)::text, 'UTF8');
END
$$;

-- ensure_queue as before, with one journal.
CREATE OR REPLACE FUNCTION tidewire.ensure_queue(queue_id int, attempts int, retry_from interval, retry_to interval)
RETURNS tidewire.queue LANGUAGE plpgsql AS $$
DECLARE
	made tidewire.queue;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, -queue_id);
	SELECT * INTO made FROM tidewire.queue WHERE id = queue_id;
	IF FOUND THEN
		RETURN made;
	END IF;
	PERFORM FROM tidewire.stream WHERE id = queue_id AND (partitions > 0 OR parent IS NOT NULL);
	IF FOUND THEN
		RAISE EXCEPTION 'stream % has partitions, or is one: a queue with lanes is what shares out keys',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = queue_id) USING ERRCODE = 'TW006';
	END IF;
	PERFORM FROM tidewire.retention WHERE stream = queue_id;
	IF FOUND THEN
		RAISE EXCEPTION 'stream % has a retention policy, which would drop messages that a queue still needs: have it keep everything first',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = queue_id) USING ERRCODE = 'TW008';
	END IF;
	INSERT INTO tidewire.queue (id, max_attempts, retry_min, retry_max)
		VALUES (queue_id, attempts, retry_from, retry_to) RETURNING * INTO made;
	-- top is the highest position claimed, up to and with this row.
	EXECUTE format($sql$
		CREATE TABLE %s (
			sequence bigint PRIMARY KEY,
			token bigint NOT NULL,
			lo bigint NOT NULL,
			hi bigint NOT NULL,
			top bigint NOT NULL,
			until timestamptz,
			kind smallint NOT NULL,
			body bytea,
			base bigint NOT NULL
		)$sql$, tidewire.journal_of(queue_id));
	PERFORM tidewire.tend_journal(queue_id);
	EXECUTE format('INSERT INTO %s VALUES (1, 0, 0, 0, 0, NULL, 1, NULL, 1)', tidewire.journal_of(queue_id));
	RETURN made;
END
$$;

-- drop_queue as before, with one journal.
CREATE OR REPLACE FUNCTION tidewire.drop_queue(queue_name text)
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
	EXECUTE format('DROP TABLE %s', tidewire.journal_of(queue_id));
	RETURN tidewire.drop_stream(queue_name);
END
$$;

-- queue_write as before, on one journal. What is before the row that began it is
-- deleted, and not looked at. Kind 12 says that positions were delivered lo times.
CREATE OR REPLACE FUNCTION tidewire.queue_write(
	queue_id int, seen bigint, own bigint, valid_until timestamptz, lease interval,
	kinds smallint[], tokens bigint[], los bigint[], his bigint[], untils timestamptz[], bodies bytea[],
	claim bigint, side jsonb
) RETURNS TABLE (sequence bigint, kind smallint, token bigint, lo bigint, hi bigint, until timestamptz, body bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '2s' AS $$
DECLARE
	journal text := tidewire.hold_queue(queue_id);
	insert_row text := format('INSERT INTO %s (sequence, kind, token, lo, hi, until, body, top, base)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)', journal);
	at timestamptz := clock_timestamp();
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
	EXECUTE format('SELECT sequence, top, base FROM %s ORDER BY sequence DESC LIMIT 1', journal) INTO last, old_top, old_base;
	IF last IS NULL THEN
		PERFORM tidewire.refuse_lost_journal(queue_id);
	END IF;
	known := greatest(seen, old_base - 1);
	IF last > known THEN
		EXECUTE format($sql$
			SELECT bool_or(kind = 1 OR token = $2 AND $2 <> 0), bool_or(kind IN (1, 3, 5, 7, 8)), bool_or(kind = 2), array_agg(DISTINCT token)
			FROM %s WHERE sequence > $1$sql$, journal) INTO own_moved, moved, leased, writers USING known, own;
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
		RETURN QUERY EXECUTE format($sql$
			SELECT sequence, kind, token, lo, hi, until, body FROM %s WHERE sequence > $1 ORDER BY sequence$sql$, journal)
			USING known;
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
			EXECUTE insert_row USING sequence, kind, token, lo, hi, until, body, new_top, old_base;
			RETURN NEXT;
			IF kind = 3 AND token <> own THEN
				PERFORM tidewire.queue_end_side(queue_id, token, true);
			END IF;
		END LOOP;
		IF claim > 0 THEN
			sequence := sequence + 1; kind := 4; token := own; lo := old_top + 1; hi := old_top + claim; until := NULL; body := NULL;
			EXECUTE insert_row USING sequence, kind, token, lo, hi, until, body, new_top, old_base;
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

-- queue_end_side lets go of the messages aside that a lease held. If the node of
-- that lease is dead, they may have been the reason.
DROP FUNCTION tidewire.queue_end_side(int, bigint, boolean);
CREATE FUNCTION tidewire.queue_end_side(queue_id int, ended bigint, died boolean)
RETURNS void LANGUAGE sql SET enable_seqscan = off AS $$
	UPDATE tidewire.queue_side SET token = NULL, suspect = suspect OR died
	WHERE queue = queue_id AND token = ended
$$;

-- queue_write_side as before. Besides, tried says how often messages were
-- delivered that the lease keeps; and rows of kind 102 have 1 in lo if a node died
-- that had the message.
CREATE OR REPLACE FUNCTION tidewire.queue_write_side(queue_id int, own bigint, at timestamptz, side jsonb)
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
	-- A message may have been tried more than once since the last call.
	UPDATE tidewire.queue_side AS s SET attempts = p.attempts
		FROM (SELECT t.position, max(t.attempts) AS attempts
			FROM jsonb_to_recordset(side->'tried') AS t (position bigint, attempts int) GROUP BY t.position) AS p
		WHERE s.queue = queue_id AND s.position = p.position AND s.token = own;
	UPDATE tidewire.queue_side AS s SET token = own WHERE s.queue = queue_id AND s.position = ANY (ARRAY(
		SELECT d.position FROM tidewire.queue_side AS d
		WHERE d.queue = queue_id AND d.token IS NULL AND NOT d.dead AND d.due_at <= at
		ORDER BY d.due_at LIMIT (side->>'want')::int));
	RETURN QUERY SELECT 0::bigint, 101::smallint, 0::bigint, 0::bigint, 0::bigint, min(s.due_at), NULL::bytea
		FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.token IS NULL AND NOT s.dead;
	-- Also those of a call whose answer the caller never got.
	RETURN QUERY SELECT s.position, 102::smallint, s.attempts::bigint, s.suspect::int::bigint, 0::bigint, s.due_at, NULL::bytea
		FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.token = own AND own <> 0
		AND s.position <> ALL (ARRAY(SELECT jsonb_array_elements_text(side->'known')::bigint)) ORDER BY s.position;
END
$$;

-- rotate_queue begins the journal anew with the row that says what it amounts to.
-- The caller holds the lock since it read the journal.
CREATE FUNCTION tidewire.rotate_queue(queue_id int, next_sequence bigint, top bigint, body bytea)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
	journal text := tidewire.hold_queue(queue_id);
	old_base bigint;
BEGIN
	EXECUTE format('SELECT base FROM %s ORDER BY sequence DESC LIMIT 1', journal) INTO old_base;
	EXECUTE format('INSERT INTO %s (sequence, token, lo, hi, top, kind, body, base) VALUES ($1, 0, 0, 0, $2, 1, $3, $1)', journal)
		USING next_sequence, top, body;
	EXECUTE format('DELETE FROM %s WHERE sequence >= $1 AND sequence < $2', journal) USING old_base, next_sequence;
END
$$;

-- look_at_queues as before, with one journal.
CREATE OR REPLACE FUNCTION tidewire.look_at_queues(ids int[], settled bigint[])
RETURNS TABLE (queue int, last bigint, due timestamptz, head bigint, at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
BEGIN
	at := clock_timestamp();
	FOR i IN 1 .. cardinality(ids) LOOP
		BEGIN
			queue := ids[i];
			EXECUTE format('SELECT max(sequence) FROM %s', tidewire.journal_of(ids[i])) INTO last;
			due := (SELECT min(s.due_at) FROM tidewire.queue_side AS s WHERE s.queue = ids[i] AND s.token IS NULL AND NOT s.dead);
			head := NULL;
			IF coalesce(pg_sequence_last_value(('tidewire.stream_' || ids[i] || '_position_seq')::regclass), 0) <> settled[i] THEN
				head := (SELECT s.head FROM tidewire.stream_state(ids[i]) AS s);
			END IF;
			RETURN NEXT;
		EXCEPTION WHEN undefined_table OR lock_not_available OR internal_error THEN
			NULL;
		END;
	END LOOP;
END
$$;
