-- The transactional outbox: messages that a transaction of the application
-- publishes get their positions, under the lock, only when it commits. Until
-- then no session waits for it, however long it is idle.
--
-- It is a temporary table of the session that is truncated at the end of each
-- transaction. A shared table would have to be emptied row by row, and a long
-- transaction elsewhere would keep all of the dead rows; and its rows would be
-- written to the WAL twice. With a pooler the table is that of the server's
-- session, which is correct: a transaction never changes sessions. It is made
-- at a session's first message, and makes PREPARE TRANSACTION impossible. The
-- second table has at most one row: its trigger must fire once per transaction,
-- not once per message.
--
-- The functions run with the rights of the role that migrated: the application
-- needs USAGE on this schema and EXECUTE on publish, and a session may change
-- its role between messages.
--
-- Every role that may make temporary tables can make one of these names first. So only
-- tables of the role that migrated are used: nobody else may drop them, write to
-- them, or give them triggers.

-- open_outbox makes sure that the session has the outbox. Its callers run with the rights of the role that migrated.
CREATE FUNCTION tidewire.open_outbox() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	owner oid := (SELECT c.relowner FROM pg_class AS c WHERE c.oid = to_regclass('pg_temp.tidewire_outbox'));
BEGIN
	IF pg_get_userbyid(owner) = current_user THEN
		RETURN;
	ELSIF owner IS NULL AND to_regclass('pg_temp.tidewire_outbox_due') IS NULL THEN
		CREATE TEMPORARY TABLE tidewire_outbox (
			number bigint GENERATED ALWAYS AS IDENTITY, -- order of the calls
			stream int NOT NULL,
			key text,
			headers jsonb,
			payload bytea NOT NULL
		) ON COMMIT DELETE ROWS;
		CREATE TEMPORARY TABLE tidewire_outbox_due (due boolean) ON COMMIT DELETE ROWS;
		CREATE CONSTRAINT TRIGGER tidewire_move_outbox AFTER INSERT ON pg_temp.tidewire_outbox_due
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tidewire.move_outbox();
		ALTER TABLE pg_temp.tidewire_outbox_due ENABLE ALWAYS TRIGGER tidewire_move_outbox; -- also with session_replication_role = replica
	ELSE
		RAISE EXCEPTION 'this session has a temporary tidewire_outbox or tidewire_outbox_due that is not Tidewire''s' USING ERRCODE = 'TW002',
			HINT = 'Drop both, or use another session. DISCARD TEMP drops all that are the session''s.';
	END IF;
END
$$;

-- move_outbox assigns positions to the transaction's messages and stores them.
-- Locks are taken in the order of ids, so that two transactions with the same
-- streams do not deadlock; one that holds other locks may, and gets 40P01.
--
-- It is correct at every isolation level: it reads nothing from the stream's table, and a sequence shows its current value, not
-- the value when the transaction began. make_room is always called, because the snapshot that shows the segments may be old. The
-- messages get the time of the commit and not of the transaction's beginning, which may be hours ago.
--
-- LOCK TABLE makes PostgreSQL look the name up again: a table that was made
-- while this session waited for the lock is not known here yet.
CREATE FUNCTION tidewire.move_outbox() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	target record;
	positions regclass;
	head bigint;
BEGIN
	-- The mark is deleted first, and the messages last: messages that are
	-- published after this, by another trigger or with constraints set
	-- immediate, set the mark again.
	DELETE FROM pg_temp.tidewire_outbox_due;
	IF current_setting('synchronous_commit') = 'off' THEN -- readers would see positions that a crash gives to other messages
		PERFORM set_config('synchronous_commit', 'local', true);
	END IF;
	PERFORM tidewire.note_growth();
	FOR target IN SELECT stream, count(*) AS size FROM pg_temp.tidewire_outbox GROUP BY stream ORDER BY stream LOOP
		PERFORM pg_advisory_xact_lock(1953064037, target.stream);
		IF tidewire.move_outbox_shared(target.stream, target.size) THEN
			CONTINUE;
		END IF;
		BEGIN
			EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ROW EXCLUSIVE MODE', 'stream_' || target.stream);
			positions := ('tidewire.stream_' || target.stream || '_position_seq')::regclass;
			head := greatest(pg_sequence_last_value(positions), tidewire.history_base());
		EXCEPTION WHEN undefined_table OR internal_error THEN -- the latter while this session waited for the lock
			RAISE EXCEPTION 'stream % was dropped', target.stream USING ERRCODE = 'TW003';
		END;
		PERFORM tidewire.make_room(target.stream, head, head + target.size);
		PERFORM setval(positions, head + target.size);
		EXECUTE format($sql$
			INSERT INTO tidewire.%I (position, created_at, key, headers, payload)
			SELECT $1 + row_number() OVER (ORDER BY number), $2, key, headers, payload
			FROM pg_temp.tidewire_outbox WHERE stream = $3$sql$, 'stream_' || target.stream)
			USING head, clock_timestamp(), target.stream;
	END LOOP;
	DELETE FROM pg_temp.tidewire_outbox;
	RETURN NULL;
END
$$;

-- move_outbox_shared moves the messages of one stream, whose lock the caller holds,
-- and returns false if the stream has separate tables.
--
-- A snapshot that is older than the lock may show neither that, nor the end of the stream. Then
-- FOR SHARE fails if the stream was moved or dropped since, and the messages come after
-- shared_top_seq, which leaves a gap. It does not wait: a session that has locked the row waits
-- for the stream's lock, and then finds the messages that are stored here.
CREATE FUNCTION tidewire.move_outbox_shared(stream_id int, size bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	s tidewire.stream;
	head bigint;
BEGIN
	SELECT * INTO s FROM tidewire.stream WHERE id = stream_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stream % was dropped', stream_id USING ERRCODE = 'TW003';
	ELSIF NOT s.shared THEN
		RETURN false;
	END IF;
	IF current_setting('transaction_isolation') = 'read committed' THEN
		head := greatest(tidewire.shared_head(stream_id), tidewire.history_base());
	ELSE
		BEGIN
			PERFORM FROM tidewire.stream WHERE id = stream_id FOR SHARE NOWAIT;
		EXCEPTION
			WHEN lock_not_available THEN
				NULL;
			WHEN serialization_failure THEN
				BEGIN
					EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ROW EXCLUSIVE MODE', 'stream_' || stream_id);
					RETURN false;
				EXCEPTION WHEN undefined_table THEN
					RAISE EXCEPTION 'could not serialize access to stream %, which may be dropped', stream_id USING ERRCODE = 'serialization_failure';
				END;
		END;
		PERFORM tidewire.history_base(); -- if it begins a history, that raises the sequence read next
		head := coalesce(pg_sequence_last_value('tidewire.shared_top_seq'), 0);
	END IF;
	PERFORM tidewire.raise_shared_top(head + size);
	INSERT INTO tidewire.shared_message (stream, position, created_at, keyed, key, headers, payload)
		SELECT stream_id, head + row_number() OVER (ORDER BY number), clock_timestamp(), s.keyed, key, headers, payload
		FROM pg_temp.tidewire_outbox WHERE stream = stream_id;
	RETURN true;
END
$$;

-- add_to_outbox adds messages to one stream, in their order: element n of the arrays is message n. The caller has
-- validated them.
CREATE FUNCTION tidewire.add_to_outbox(stream_id int, keys text[], headers jsonb[], payloads bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tidewire.open_outbox();
	INSERT INTO pg_temp.tidewire_outbox (stream, key, headers, payload)
		SELECT stream_id, nullif(k, ''), h, p
		FROM unnest(keys, headers, payloads) WITH ORDINALITY AS t (k, h, p, n) ORDER BY n;
	IF NOT EXISTS (SELECT FROM pg_temp.tidewire_outbox_due) THEN
		INSERT INTO pg_temp.tidewire_outbox_due VALUES (true);
	END IF;
END
$$;

-- check_message raises an error if a message has a key or headers that package stream would refuse. Readers rely on their sizes.
CREATE FUNCTION tidewire.check_message(key text, headers jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF octet_length(key) > 1024 THEN
		RAISE EXCEPTION 'message key: want at most 1024 bytes' USING ERRCODE = 'TW004';
	ELSIF jsonb_typeof(headers) <> 'object' OR octet_length(headers::text) > 64 * 1024 THEN
		RAISE EXCEPTION 'message headers: want a JSON object of at most 65536 bytes' USING ERRCODE = 'TW004';
	END IF;
END
$$;

-- publish_batch publishes messages to one stream that has no partitions, as the Go package does.
CREATE FUNCTION tidewire.publish_batch(stream_id int, keys text[], headers jsonb[], payloads bytea[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	name text := (SELECT s.name FROM tidewire.stream AS s WHERE s.id = stream_id AND s.partitions = 0 AND s.state = 'ready');
BEGIN
	IF name IS NULL THEN
		RAISE EXCEPTION 'there is no stream % with messages of its own', stream_id USING ERRCODE = 'TW003';
	END IF;
	PERFORM tidewire.refuse_reserved(name);
	PERFORM tidewire.check_message(k, h) FROM unnest(keys, headers) AS t (k, h);
	PERFORM tidewire.add_to_outbox(stream_id, keys, headers, payloads);
END
$$;

-- refuse_reserved raises an error if the stream is one of the server's own: what is in them is trusted.
CREATE FUNCTION tidewire.refuse_reserved(stream text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF starts_with(stream, 'tidewire.') THEN
		RAISE EXCEPTION 'stream: names that begin with tidewire. are reserved' USING ERRCODE = 'TW004',
			HINT = 'To write a chat into a room, use tidewire.say.';
	END IF;
END
$$;

-- publish publishes one message with the caller's transaction: it is stored if and when that commits. Any
-- language can call it. Key and headers may be NULL. SQLSTATE TW003: there is no such stream; TW004: not a
-- valid message, or a stream of the server itself or of a queue. A payload has at most 1 MiB: a server can send each of them
-- within the memory that it has for clients. In a partitioned stream the message goes to the
-- partition of its key; without a key, to the same partition as all other messages of the transaction
-- without a key.
CREATE FUNCTION tidewire.publish(stream text, key text, headers jsonb, payload bytea)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	target tidewire.stream;
	stream_id int;
BEGIN
	PERFORM tidewire.refuse_reserved(stream);
	SELECT * INTO target FROM tidewire.stream AS s WHERE s.name = publish.stream AND s.state = 'ready';
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no stream %', quote_nullable(stream) USING ERRCODE = 'TW003',
			HINT = 'Create it first, for example with: tidewire stream create NAME';
	END IF;
	PERFORM FROM tidewire.queue AS q WHERE q.id = target.id;
	IF FOUND THEN
		RAISE EXCEPTION 'stream: % holds the messages of a queue', quote_nullable(stream) USING ERRCODE = 'TW004',
			HINT = 'To enqueue a message, use tidewire.enqueue_at(queue, payload, now()).';
	END IF;
	IF payload IS NULL OR octet_length(payload) > 1024 * 1024 THEN
		RAISE EXCEPTION 'message payload: want 0 to 1048576 bytes, not %', coalesce(octet_length(payload)::text, 'NULL') USING ERRCODE = 'TW004';
	END IF;
	PERFORM tidewire.check_message(key, headers);
	stream_id := target.id;
	IF target.partitions > 0 THEN
		SELECT s.id INTO stream_id FROM tidewire.stream AS s WHERE s.parent = target.id AND s.partition =
			coalesce(tidewire.partition_of(nullif(key, ''), target.partitions),
				mod(pg_current_xact_id()::text::numeric, target.partitions)::int);
	END IF;
	PERFORM tidewire.add_to_outbox(stream_id, ARRAY[key], ARRAY[headers], ARRAY[payload]);
END
$$;
