-- From here on streams are made shared; what makes, drops and publishes knows of that.

-- ensure_stream as before. With own, the stream gets tables of its own if it is made.
DROP FUNCTION tidewire.ensure_stream(text, boolean);
CREATE FUNCTION tidewire.ensure_stream(stream_name text, stream_keyed boolean, own boolean DEFAULT false)
RETURNS tidewire.stream LANGUAGE plpgsql AS $$
DECLARE
	found_or_made tidewire.stream;
BEGIN
	LOOP
		SELECT * INTO found_or_made FROM tidewire.stream WHERE name = stream_name;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
		INSERT INTO tidewire.stream (name, keyed, shared) VALUES (stream_name, stream_keyed, NOT own)
			ON CONFLICT (name) DO NOTHING RETURNING * INTO found_or_made;
		IF FOUND THEN
			IF own THEN
				PERFORM tidewire.create_stream_table(found_or_made.id, stream_keyed);
			END IF;
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;

-- ensure_partitioned as before. The row of a partitioned stream says of its partitions
-- whether they are made shared.
DROP FUNCTION tidewire.ensure_partitioned(text, boolean, int);
CREATE FUNCTION tidewire.ensure_partitioned(stream_name text, stream_keyed boolean, count int, own boolean DEFAULT false)
RETURNS tidewire.stream LANGUAGE plpgsql AS $$
DECLARE
	found_or_made tidewire.stream;
	taken text;
BEGIN
	LOOP
		SELECT * INTO found_or_made FROM tidewire.stream WHERE name = stream_name;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
		SELECT name INTO taken FROM tidewire.stream
			WHERE name = ANY (ARRAY(SELECT stream_name || '/' || n FROM generate_series(0, count - 1) AS n)) LIMIT 1;
		IF FOUND THEN
			RAISE EXCEPTION 'stream % exists and is no partition', quote_ident(taken) USING ERRCODE = 'TW006';
		END IF;
		INSERT INTO tidewire.stream (name, keyed, partitions, state, shared) VALUES (stream_name, stream_keyed, count, 'making', NOT own)
			ON CONFLICT (name) DO NOTHING RETURNING * INTO found_or_made;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION tidewire.make_partitions(stream_id int, most int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	whole tidewire.stream;
	made int;
	id int;
BEGIN
	SELECT * INTO whole FROM tidewire.stream AS s WHERE s.id = stream_id FOR UPDATE;
	IF NOT FOUND OR whole.state <> 'making' THEN
		RETURN coalesce(whole.state, 'dropping'); -- another one has dropped it
	END IF;
	SELECT count(*) INTO made FROM tidewire.stream AS s WHERE s.parent = stream_id;
	FOR n IN made .. least(made + most, whole.partitions) - 1 LOOP
		INSERT INTO tidewire.stream (name, keyed, parent, partition, shared)
			VALUES (whole.name || '/' || n, whole.keyed, stream_id, n, whole.shared) RETURNING tidewire.stream.id INTO id;
		IF NOT whole.shared THEN
			PERFORM tidewire.create_stream_table(id, whole.keyed);
		END IF;
	END LOOP;
	IF made + most < whole.partitions THEN
		RETURN 'making';
	END IF;
	UPDATE tidewire.stream AS s SET state = 'ready' WHERE s.id = stream_id;
	RETURN 'ready';
END
$$;

CREATE OR REPLACE FUNCTION tidewire.drop_stream_tables(stream_id int) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	PERFORM tidewire.note_growth();
	DELETE FROM tidewire.shared_message WHERE stream = stream_id;
	EXECUTE format('DROP TABLE IF EXISTS tidewire.%I', 'stream_' || stream_id);
	DELETE FROM tidewire.segment WHERE stream = stream_id;
	DELETE FROM tidewire.producer_window WHERE stream = stream_id;
	IF FOUND THEN
		EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I, tidewire.%I', 'producer_' || stream_id || '_0',
			'producer_' || stream_id || '_1', 'producer_' || stream_id || '_floor');
	END IF;
END
$$;

-- move_outbox as before. LOCK TABLE has PostgreSQL look the name up anew: a table that was
-- made while the lock was waited for is not known here yet.
CREATE OR REPLACE FUNCTION tidewire.move_outbox() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	target record;
	positions regclass;
	head bigint;
BEGIN
	-- First, and the messages last: what is published after this, by another
	-- trigger or with constraints set immediate, is due again.
	DELETE FROM pg_temp.tidewire_outbox_due;
	PERFORM tidewire.note_growth();
	FOR target IN SELECT stream, count(*) AS size FROM pg_temp.tidewire_outbox GROUP BY stream ORDER BY stream LOOP
		PERFORM pg_advisory_xact_lock(1953064037, target.stream);
		IF tidewire.move_outbox_shared(target.stream, target.size) THEN
			CONTINUE;
		END IF;
		BEGIN
			EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ROW EXCLUSIVE MODE', 'stream_' || target.stream);
			positions := ('tidewire.stream_' || target.stream || '_position_seq')::regclass;
			head := coalesce(pg_sequence_last_value(positions), 0);
		EXCEPTION WHEN undefined_table OR internal_error THEN -- the latter while it was waited for
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

-- move_outbox_shared moves the messages of one stream, whose lock the caller has, and
-- returns false if it has tables of its own.
--
-- A snapshot that is older than the lock may not show that, nor where the stream ends. Then
-- FOR SHARE fails if the stream was moved or dropped since, and the messages come after
-- shared_top_seq, which leaves a gap. It does not wait: who has locked the row waits for the
-- stream's lock, and then finds what is stored here.
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
		head := tidewire.shared_head(stream_id);
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
		head := coalesce(pg_sequence_last_value('tidewire.shared_top_seq'), 0);
	END IF;
	PERFORM tidewire.raise_shared_top(head + size);
	INSERT INTO tidewire.shared_message (stream, position, created_at, keyed, key, headers, payload)
		SELECT stream_id, head + row_number() OVER (ORDER BY number), clock_timestamp(), s.keyed, key, headers, payload
		FROM pg_temp.tidewire_outbox WHERE stream = stream_id;
	RETURN true;
END
$$;

-- ensure_queue as before: its stream has tables of its own.
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
	PERFORM tidewire.own_stream(queue_id); -- a stream that there was
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
