-- Families: queues with priorities, or with an order of keys. A family consists
-- of ordinary queues named NAME/0 and so on, one for each priority or
-- partition, each with its stream and journal; only package queue treats them
-- as one.
CREATE TABLE tidewire.queue_family (
	id int PRIMARY KEY DEFAULT tidewire.next_id('tidewire.queue_family_id_seq'),
	name text COLLATE "C" NOT NULL UNIQUE,
	priorities int NOT NULL,
	partitions int NOT NULL,
	dropping boolean NOT NULL DEFAULT false, -- some members may be gone
	CHECK ((priorities = 0) <> (partitions = 0))
);
ALTER SEQUENCE tidewire.queue_family_id_seq OWNED BY tidewire.queue_family.id;

-- Queues: competing consumers on a stream.
--
-- A queue is a stream of the same name and a journal that says which node may
-- deliver which positions, and which are done. All writes to the journal hold
-- one lock, so the journal is ordered, and the state of the queue is a fold
-- over it (event sourcing), which every node computes and keeps itself.
CREATE TABLE tidewire.queue (
	id int PRIMARY KEY REFERENCES tidewire.stream, -- only drop_queue drops it
	max_attempts int NOT NULL CHECK (max_attempts >= 1),
	retry_min interval NOT NULL,
	retry_max interval NOT NULL,
	family int REFERENCES tidewire.queue_family,
	member int -- priority or partition, from 0 on
);
CREATE INDEX queue_family_idx ON tidewire.queue (family) WHERE family IS NOT NULL;

-- Deferred messages, to be retried or delayed, and dead ones: the slow path, one row for each message, updated
-- in place. The payload stays in the stream. token is the lease of the node that holds the message; suspect: a
-- node that held the message died, perhaps because of it; unbegun: how often it was delivered without an attempt.
CREATE TABLE tidewire.queue_side (
	queue int NOT NULL,
	position bigint NOT NULL,
	due_at timestamptz NOT NULL,
	token bigint,
	attempts int NOT NULL,
	dead boolean NOT NULL,
	reason text NOT NULL,
	suspect boolean NOT NULL DEFAULT false,
	unbegun int NOT NULL DEFAULT 0,
	PRIMARY KEY (queue, position)
);
CREATE INDEX queue_side_due_idx ON tidewire.queue_side (queue, due_at) WHERE token IS NULL AND NOT dead;
CREATE INDEX queue_side_token_idx ON tidewire.queue_side (queue, token) WHERE token IS NOT NULL;
CREATE INDEX queue_side_dead_idx ON tidewire.queue_side (queue, position) WHERE dead;

-- ensure_queue makes the queue of a stream, unless it exists, and returns it. A stream that has had messages, or has groups or a
-- retention policy, cannot become a queue: that would take it away from its users, and dropping the queue would drop their
-- messages. Neither can a stream with partitions.
--
-- It locks the row of the stream first: a new group, or a retention policy, waits for that because of its foreign key, and so
-- does another ensure_queue. Then it takes the stream's lock, which every writer holds until its commit: so what it checks for
-- cannot be made meanwhile. This is the lock order of drop_stream. A writer holds only the stream's lock and never waits for the
-- row.
CREATE FUNCTION tidewire.ensure_queue(queue_id int, attempts int, retry_from interval, retry_to interval)
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
		RAISE EXCEPTION 'stream % has partitions, or is one: a queue with partitions is what shares out keys',
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

-- ensure_queue_family makes queues of the streams, as members of the family, in this order, unless
-- the family exists, and returns it. A family that is being dropped is returned unchanged, and
-- nothing is made. The rows of all streams are locked before the check, and the streams' locks are
-- taken in the order of ids, as in move_outbox: otherwise the two could deadlock.
CREATE FUNCTION tidewire.ensure_queue_family(
	family_name text, priority_count int, partition_count int, streams int[], attempts int, retry_from interval, retry_to interval
) RETURNS tidewire.queue_family LANGUAGE plpgsql AS $$
DECLARE
	made tidewire.queue_family;
	one tidewire.queue;
	i int;
BEGIN
	INSERT INTO tidewire.queue_family (name, priorities, partitions) VALUES (family_name, priority_count, partition_count)
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

-- drop_queue drops a queue with its stream, and returns whether there was one. Like drop_stream it gives up soon, and the
-- caller tries again. It locks the row of the stream first: drop_stream holds that lock when its foreign key waits for
-- the queue's row.
CREATE FUNCTION tidewire.drop_queue(queue_name text)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' SET enable_seqscan = off SET jit = off AS $$
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

-- refuse_queue_retention rejects retention policies for the streams of queues: only the queue knows
-- which messages are done. It waits for ensure_queue by a lock on the row of the stream.
CREATE FUNCTION tidewire.refuse_queue_retention() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER refuse_queue BEFORE INSERT OR UPDATE OF stream, max_age, max_bytes, consumed ON tidewire.retention
	FOR EACH ROW EXECUTE FUNCTION tidewire.refuse_queue_retention(); -- changes of sized need no check
