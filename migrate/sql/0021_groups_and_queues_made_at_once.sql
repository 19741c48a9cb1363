-- Groups and queues that are made while others make them, publish or drop.

-- ensure_group as before. If skip_dropped, a group that it makes begins with what is
-- still kept: it had no offset before, and has missed nothing. A group that exists
-- stays where it is, so that its readers are told what was dropped.
--
-- Nothing is dropped between the look and the commit: stream_state locks the table.
DROP FUNCTION tidewire.ensure_group(int, text, bigint);
CREATE FUNCTION tidewire.ensure_group(stream_id int, group_name text, start bigint, skip_dropped boolean DEFAULT false)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
	group_id int;
BEGIN
	LOOP
		SELECT id INTO group_id FROM tidewire.stream_group WHERE stream = stream_id AND name = group_name;
		IF FOUND THEN
			RETURN group_id;
		END IF;
		INSERT INTO tidewire.stream_group (stream, name) VALUES (stream_id, group_name)
			ON CONFLICT (stream, name) DO NOTHING RETURNING id INTO group_id;
		IF FOUND THEN
			IF skip_dropped THEN
				start := greatest(start, (SELECT oldest - 1 FROM tidewire.stream_state(stream_id)));
			END IF;
			EXECUTE format('INSERT INTO tidewire.%I VALUES ($1, 1, $2)', in_use) USING group_id, start;
			RETURN group_id;
		END IF;
	END LOOP;
END
$$;

-- ensure_queue as before, but what it looks for is not made meanwhile. It locks the
-- row of the stream first: a new group, or a retention policy, waits for that by its
-- foreign key, and so does another ensure_queue. Then it takes the stream's lock,
-- which every writer holds until its commit.
--
-- This is the order of drop_stream. A writer has the stream's lock alone and never
-- waits for the row. The queue's own lock is not needed for that.
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

-- ensure_queue_family as before, but the rows of all streams are locked before the
-- look, and the streams' locks are taken in the order of ids, as move_outbox takes
-- them: else the two could deadlock.
CREATE OR REPLACE FUNCTION tidewire.ensure_queue_family(
	family_name text, priority_count int, lane_count int, streams int[], attempts int, retry_from interval, retry_to interval
) RETURNS tidewire.queue_family LANGUAGE plpgsql AS $$
DECLARE
	made tidewire.queue_family;
	one tidewire.queue;
	i int;
BEGIN
	INSERT INTO tidewire.queue_family (name, priorities, lanes) VALUES (family_name, priority_count, lane_count)
		ON CONFLICT (name) DO NOTHING RETURNING * INTO made;
	IF NOT FOUND THEN
		SELECT * INTO made FROM tidewire.queue_family WHERE name = family_name;
		RETURN made;
	END IF;
	PERFORM FROM tidewire.stream WHERE id = ANY (streams) ORDER BY id FOR UPDATE;
	FOR i IN SELECT n FROM generate_subscripts(streams, 1) AS n ORDER BY streams[n] LOOP
		PERFORM FROM tidewire.queue WHERE id = streams[i];
		IF FOUND THEN
			RAISE EXCEPTION 'queue % exists by itself, and its name is needed for a part of queue %',
				(SELECT quote_ident(name) FROM tidewire.stream WHERE id = streams[i]), quote_ident(family_name) USING ERRCODE = 'TW006';
		END IF;
		one := tidewire.ensure_queue(streams[i], attempts, retry_from, retry_to);
		UPDATE tidewire.queue SET family = made.id, member = i - 1 WHERE id = one.id;
	END LOOP;
	RETURN made;
END
$$;

-- refuse_queue_retention as before, but it waits for ensure_queue by the row of the
-- stream.
CREATE OR REPLACE FUNCTION tidewire.refuse_queue_retention() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM tidewire.stream WHERE id = NEW.stream FOR KEY SHARE;
	PERFORM FROM tidewire.queue WHERE id = NEW.stream;
	IF FOUND THEN
		RAISE EXCEPTION 'stream % belongs to a queue, which needs its messages until they are done: it takes no retention policy',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = NEW.stream) USING ERRCODE = 'TW008';
	END IF;
	RETURN NEW;
END
$$;

-- drop_queue as before, but it locks the row of the stream first: drop_stream has that
-- when its foreign key waits for the queue's row.
CREATE OR REPLACE FUNCTION tidewire.drop_queue(queue_name text)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
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
	EXECUTE format('DROP TABLE %s', tidewire.journal_of(queue_id));
	RETURN tidewire.drop_stream(queue_name);
END
$$;
