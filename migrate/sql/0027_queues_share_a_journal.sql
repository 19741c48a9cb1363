-- The journals of all queues are in one table, and the messages of a queue in the table that
-- streams share, until they are many.

-- A row is one entry of the journal of a queue, in the order of sequence. top is the highest
-- position claimed, up to and with this row; base is where the journal begins. A
-- transaction that writes to many journals is one INSERT, with a plan that is kept.
--
-- The journal begins anew in place, as before: one transaction appends the row that says what
-- all before amounts to, and deletes what is before. A long snapshot keeps deleted rows, and
-- nothing passes over them: reads start at base, or at the end. Columns of a fixed width
-- come first. Statistics of a table that changes so fast would mislead the planner;
-- autovacuum comes only if no node removes deleted rows.
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

-- Journals that exist. A node of an earlier version may be writing to one: what it has
-- inserted is committed before the lock is granted, and seen by what comes next.
LOCK TABLE tidewire.queue IN ACCESS EXCLUSIVE MODE;
DO $$
DECLARE
	q record;
BEGIN
	FOR q IN SELECT id FROM tidewire.queue ORDER BY id LOOP
		EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', tidewire.journal_of(q.id));
		EXECUTE format('INSERT INTO tidewire.queue_journal (sequence, token, lo, hi, top, base, until, queue, kind, body)
			SELECT sequence, token, lo, hi, top, base, until, $1, kind, body FROM %s ORDER BY sequence', tidewire.journal_of(q.id)) USING q.id;
		EXECUTE format('DROP TABLE %s', tidewire.journal_of(q.id));
	END LOOP;
END
$$;

DROP FUNCTION tidewire.journal_of(int);
DROP FUNCTION tidewire.tend_journal(int);
DROP FUNCTION tidewire.hold_queue(int);

-- hold_queue as before: it takes the queue's lock until the end of the transaction. What
-- comes after the lock has to see what was committed before it was granted: only READ
-- COMMITTED does.
CREATE FUNCTION tidewire.hold_queue(queue_id int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'queues need READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, -queue_id);
END
$$;

-- refuse_lost_journal as before. It tells a queue that was dropped from one that has lost its journal.
CREATE OR REPLACE FUNCTION tidewire.refuse_lost_journal(queue_id int) RETURNS void LANGUAGE plpgsql AS $$
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

-- restart_queue begins a new journal for a queue, or a priority or lane of one,
-- that has lost its own. Messages up to the position count as done. All later
-- ones are delivered, also if they were acknowledged or dead.
CREATE OR REPLACE FUNCTION tidewire.restart_queue(queue_name text, after bigint) RETURNS void LANGUAGE plpgsql AS $$
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

-- ensure_queue as before. Its journal is a row, and its stream stays where it is.
CREATE OR REPLACE FUNCTION tidewire.ensure_queue(queue_id int, attempts int, retry_from interval, retry_to interval)
RETURNS tidewire.queue LANGUAGE plpgsql AS $$
DECLARE
	made tidewire.queue;
BEGIN
	SELECT * INTO made FROM tidewire.queue WHERE id = queue_id;
	IF FOUND THEN
		RETURN made;
	END IF;
	PERFORM FROM tidewire.stream WHERE id = queue_id FOR UPDATE;
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
	-- Fails if the stream was dropped.
	INSERT INTO tidewire.queue (id, max_attempts, retry_min, retry_max)
		VALUES (queue_id, attempts, retry_from, retry_to) RETURNING * INTO made;
	PERFORM pg_advisory_xact_lock(1953064037, queue_id);
	PERFORM FROM tidewire.stream_state(queue_id) AS s
		WHERE s.head > 0 OR EXISTS (SELECT FROM tidewire.stream_group WHERE stream = queue_id);
	IF FOUND THEN
		RAISE EXCEPTION 'stream % has messages or groups: choose another name for the queue, or drop the stream first',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = queue_id) USING ERRCODE = 'TW009';
	END IF;
	INSERT INTO tidewire.queue_journal (queue, sequence, token, lo, hi, top, kind, base) VALUES (queue_id, 1, 0, 0, 0, 0, 1, 1);
	RETURN made;
END
$$;

-- drop_queue as before: its journal is rows.
CREATE OR REPLACE FUNCTION tidewire.drop_queue(queue_name text)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' SET enable_seqscan = off AS $$
DECLARE
	queue_id int := (SELECT q.id FROM tidewire.queue AS q JOIN tidewire.stream AS s USING (id) WHERE s.name = queue_name);
BEGIN
	IF queue_id IS NULL THEN
		RETURN false;
	END IF;
	PERFORM FROM tidewire.stream WHERE id = queue_id FOR UPDATE;
	PERFORM pg_advisory_xact_lock(1953064037, -queue_id);
	DELETE FROM tidewire.queue WHERE id = queue_id;
	DELETE FROM tidewire.queue_side WHERE queue = queue_id;
	DELETE FROM tidewire.queue_journal WHERE queue = queue_id;
	RETURN tidewire.drop_stream(queue_name);
END
$$;

-- rotate_queue begins the journal anew with the row that says what it amounts to.
-- The caller holds the lock since it read the journal.
CREATE OR REPLACE FUNCTION tidewire.rotate_queue(queue_id int, next_sequence bigint, top bigint, body bytea)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	old_base bigint;
BEGIN
	PERFORM tidewire.hold_queue(queue_id);
	SELECT j.base INTO old_base FROM tidewire.queue_journal AS j WHERE j.queue = queue_id ORDER BY j.sequence DESC LIMIT 1;
	INSERT INTO tidewire.queue_journal (queue, sequence, token, lo, hi, top, kind, body, base)
		VALUES (queue_id, next_sequence, 0, 0, 0, top, 1, body, next_sequence);
	DELETE FROM tidewire.queue_journal AS j WHERE j.queue = queue_id AND j.sequence >= old_base AND j.sequence < next_sequence;
END
$$;
