-- The options of a queue can be altered: nodes get them with what they poll.
DROP FUNCTION tidewire.look_at_queues(int[], bigint[]);

-- look_at_queues returns the state of each queue, so that idle queues cost one query: the last row of the
-- journal, when the next deferred message is due, and the end of the stream, or NULL if its sequence still
-- has the settled value; and its options. It takes no lock of a queue, and its result is only a hint. Queues that
-- are being dropped, or are empty for a moment, are left out. Queues whose streams have separate tables and have
-- grown take one more query.
CREATE FUNCTION tidewire.look_at_queues(ids int[], settled bigint[])
RETURNS TABLE (queue int, last bigint, due timestamptz, head bigint, at timestamptz, max_attempts int, retry_min interval, retry_max interval)
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
DECLARE
	one record;
BEGIN
	at := clock_timestamp();
	FOR one IN
		SELECT q.id, q.max_attempts, q.retry_min, q.retry_max, s.shared, u.settled, j.sequence AS last, d.due_at, m.position AS head
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
		max_attempts := one.max_attempts;
		retry_min := one.retry_min;
		retry_max := one.retry_max;
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

-- set_retention sets the bounds on what a stream keeps, where NULL means no bound, and returns whether there is such a
-- stream. Each partition of a partitioned stream gets the same time and an equal part of the bytes. It waits for a
-- drop_shared under way; a later one drops nothing that was selected by the old policy.
-- The caller names the stream by its id too: a stream that was dropped and created again is another one.
--
-- The earlier version gave the partitions of a stream without max_bytes one byte each: greatest ignores NULL.
CREATE OR REPLACE FUNCTION tidewire.set_retention(stream_id int, stream_name text, age interval, bytes bigint, when_consumed boolean)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	whole tidewire.stream;
	ids int[];
BEGIN
	PERFORM tidewire.refuse_partition(stream_name);
	SELECT * INTO whole FROM tidewire.stream WHERE name = stream_name AND id = stream_id AND state = 'ready' FOR SHARE;
	ids := whole.id || ARRAY(SELECT id FROM tidewire.stream WHERE parent = whole.id ORDER BY id FOR SHARE);
	DELETE FROM tidewire.retention WHERE stream = ANY (ids);
	IF age IS NOT NULL OR bytes IS NOT NULL OR when_consumed THEN
		INSERT INTO tidewire.retention
			SELECT id, age, CASE WHEN id = whole.id OR bytes IS NULL THEN bytes ELSE greatest(bytes / nullif(whole.partitions, 0), 1) END, when_consumed
			FROM unnest(ids) AS id WHERE id IS NOT NULL ORDER BY id
		ON CONFLICT (stream) DO UPDATE
			SET max_age = excluded.max_age, max_bytes = excluded.max_bytes, consumed = excluded.consumed, sized = NULL;
	END IF;
	RETURN whole.id IS NOT NULL;
END
$$;

UPDATE tidewire.retention AS r SET max_bytes = NULL, sized = NULL
FROM tidewire.stream AS s JOIN tidewire.retention AS whole ON whole.stream = s.parent
WHERE r.stream = s.id AND whole.max_bytes IS NULL AND r.max_bytes = 1;

-- rehearse_history does what enter_history does, and undoes all of it. A rollback does not undo what setval does to a sequence, unless
-- the transaction has given the sequence a new file: ALTER SEQUENCE does that, also if it changes nothing. Other sessions wait
-- meanwhile that use one of these sequences. It does nothing if no history would begin, as while a server runs.
--
-- Runs with the rights of the role that migrated, as enter_history does.
CREATE FUNCTION tidewire.rehearse_history() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	history bigint := pg_sequence_last_value('tidewire.history_seq');
	moved regclass;
BEGIN
	PERFORM FROM tidewire.history AS h
		WHERE h.base = history >> 32 << 18 AND history & 4294967295 = tidewire.timeline() AND NOT coalesce(h.system <> tidewire.system_identifier(), false);
	IF FOUND THEN
		RETURN;
	END IF;
	FOREACH moved IN ARRAY tidewire.id_sequences() || tidewire.history_ring()
		|| ARRAY['tidewire.history_number_seq', 'tidewire.history_seq', 'tidewire.shared_top_seq', 'tidewire.growth_seq']::regclass[]
	LOOP
		EXECUTE format('ALTER SEQUENCE %s CACHE 1', moved);
	END LOOP;
	PERFORM tidewire.enter_history();
	RAISE EXCEPTION 'rehearsed' USING ERRCODE = 'TW000';
EXCEPTION WHEN SQLSTATE 'TW000' THEN
	RETURN;
END
$$;
