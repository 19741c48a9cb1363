-- A queue is not made of a stream that others use.

-- ensure_queue as before, but a stream that has had messages, or has groups, does
-- not become a queue: that would take it from those who use it, and dropping the
-- queue would drop their messages.
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
	-- From here on the stream is not dropped until the end of this transaction.
	INSERT INTO tidewire.queue (id, max_attempts, retry_min, retry_max)
		VALUES (queue_id, attempts, retry_from, retry_to) RETURNING * INTO made;
	PERFORM FROM tidewire.stream_state(queue_id) AS s
		WHERE s.head > 0 OR EXISTS (SELECT FROM tidewire.stream_group WHERE stream = queue_id);
	IF FOUND THEN
		RAISE EXCEPTION 'stream % has messages or groups: choose another name for the queue, or drop the stream first',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = queue_id) USING ERRCODE = 'TW009';
	END IF;
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
