-- Families: queues with priorities, or with an order of keys. A family of that
-- name is so many ordinary queues, NAME/0 and so on, each with its stream and
-- journal; only package queue treats them as one.
CREATE TABLE tidewire.queue_family (
	id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text COLLATE "C" NOT NULL UNIQUE,
	priorities int NOT NULL,
	lanes int NOT NULL,
	dropping boolean NOT NULL DEFAULT false, -- some members may be gone
	CHECK ((priorities = 0) <> (lanes = 0))
);
ALTER TABLE tidewire.queue
	ADD COLUMN family int REFERENCES tidewire.queue_family,
	ADD COLUMN member int; -- priority or lane, from 0 on
CREATE INDEX queue_family_idx ON tidewire.queue (family) WHERE family IS NOT NULL;

-- ensure_queue as before, but not of a stream with a retention policy, which
-- would drop messages that are still needed, or with partitions. The queue's lock is what
-- refuse_queue_retention takes as well: of the two one comes first.
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

-- refuse_queue_retention keeps policies away from the streams of queues: whose
-- messages are done is known to the queue alone.
CREATE FUNCTION tidewire.refuse_queue_retention() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, -NEW.stream);
	PERFORM FROM tidewire.queue WHERE id = NEW.stream;
	IF FOUND THEN
		RAISE EXCEPTION 'stream % belongs to a queue, which needs its messages until they are done: it takes no retention policy',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = NEW.stream) USING ERRCODE = 'TW008';
	END IF;
	RETURN NEW;
END
$$;
CREATE TRIGGER refuse_queue BEFORE INSERT OR UPDATE ON tidewire.retention
	FOR EACH ROW EXECUTE FUNCTION tidewire.refuse_queue_retention();

-- ensure_queue_family makes the streams' queues members of the family, in this
-- order, unless the family is there, and returns it. A family that is being
-- dropped is returned as it is, and nothing is made.
CREATE FUNCTION tidewire.ensure_queue_family(
	family_name text, priority_count int, lane_count int, streams int[], attempts int, retry_from interval, retry_to interval
) RETURNS tidewire.queue_family LANGUAGE plpgsql AS $$
DECLARE
	made tidewire.queue_family;
	one tidewire.queue;
BEGIN
	INSERT INTO tidewire.queue_family (name, priorities, lanes) VALUES (family_name, priority_count, lane_count)
		ON CONFLICT (name) DO NOTHING RETURNING * INTO made;
	IF NOT FOUND THEN
		SELECT * INTO made FROM tidewire.queue_family WHERE name = family_name;
		RETURN made;
	END IF;
	FOR i IN 1 .. cardinality(streams) LOOP
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

-- look_at_queues tells of each queue how it stands, so that a family at rest
-- costs one query: the last row of the journal, when the next message aside is
-- due, and the end of the stream, or NULL if its sequence stands at settled. It
-- takes no lock of a queue, and is but a hint. What is being dropped, or emptied
-- for a moment, is left out.
CREATE FUNCTION tidewire.look_at_queues(ids int[], settled bigint[])
RETURNS TABLE (queue int, last bigint, due timestamptz, head bigint, at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET lock_timeout = '100ms' AS $$
#variable_conflict use_column
DECLARE
	in_use int;
BEGIN
	at := clock_timestamp();
	FOR i IN 1 .. cardinality(ids) LOOP
		BEGIN
			queue := ids[i];
			in_use := (SELECT active FROM tidewire.queue AS q WHERE q.id = ids[i]);
			EXECUTE format('SELECT max(sequence) FROM tidewire.%I', 'queue_' || ids[i] || '_journal_' || coalesce(in_use, 0)) INTO last;
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
