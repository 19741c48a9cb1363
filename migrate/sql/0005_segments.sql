-- A stream's table in parts, the segments, which are dropped whole when they are not kept any more.

-- The segments of the streams: one row for each partition of a stream's table,
-- which holds the positions first to last and is called stream_<id>_<last>. The
-- last segment of a stream is empty, as a rule: from grow_at on, before its end
-- comes near, writers make the next one.
--
-- No foreign key: a writer that adds a row has the stream's lock, and would
-- wait for the row of the stream, which drop_stream has, who waits for the lock.
CREATE TABLE tidewire.segment (
	stream int NOT NULL,
	first bigint NOT NULL,
	last bigint NOT NULL,
	grow_at bigint NOT NULL,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (stream, last)
);

-- What is kept of the streams: those without a row here keep everything.
CREATE TABLE tidewire.retention (
	stream int PRIMARY KEY REFERENCES tidewire.stream ON DELETE CASCADE,
	max_age interval CHECK (max_age > interval '0'),
	max_bytes bigint CHECK (max_bytes > 0),
	consumed boolean NOT NULL
);

-- segment_bytes is how large a segment should become: 128 MiB, or an eighth of
-- what is kept, since nothing smaller than a segment is dropped.
CREATE FUNCTION tidewire.segment_bytes(stream_id int) RETURNS bigint LANGUAGE sql STABLE AS $$
	SELECT least(128 * 1024 * 1024, (SELECT max_bytes / 8 FROM tidewire.retention WHERE stream = stream_id))
$$;

-- segment_rows is how many positions the segment behind another one should
-- have, going by what that one holds now, when its positions are taken up to
-- head: what makes it segment_bytes large, and fills it within an eighth of the
-- time that is kept. Not much more than before, since a few messages tell
-- little; not so few that a read would go through many; and more, the more
-- segments there are, for a look at all of them takes a lock on each.
CREATE FUNCTION tidewire.segment_rows(s tidewire.segment, head bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	used bigint := least(head, s.last) - s.first + 1;
	size bigint := s.last - s.first + 1;
	bytes bigint;
	age interval := (SELECT max_age FROM tidewire.retention WHERE stream = s.stream);
	target bigint;
BEGIN
	IF used < 100 THEN
		RETURN size;
	END IF;
	bytes := pg_total_relation_size(to_regclass(format('tidewire.stream_%s_%s', s.stream, s.last)));
	target := used * (tidewire.segment_bytes(s.stream)::numeric / greatest(bytes, 1))
		* (1 + (SELECT count(*) FROM tidewire.segment AS g WHERE g.stream = s.stream) / 100);
	IF age IS NOT NULL THEN
		target := least(target, (used * extract(epoch FROM age) / 8
			/ greatest(extract(epoch FROM clock_timestamp() - s.created_at), 0.001))::bigint);
	END IF;
	RETURN greatest(100, least(target, 16 * size, 10000000));
END
$$;

-- add_segment makes the segment with the positions first to last. It is made
-- aside and attached, which takes a lock on the stream's table that neither
-- readers nor writers mind: CREATE TABLE … PARTITION OF would stop them all.
CREATE FUNCTION tidewire.add_segment(stream_id int, first bigint, last bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	parent text := 'stream_' || stream_id;
	name text := parent || '_' || last;
BEGIN
	EXECUTE format('CREATE TABLE tidewire.%I (LIKE tidewire.%I INCLUDING ALL)', name, parent);
	EXECUTE format('ALTER TABLE tidewire.%I ATTACH PARTITION tidewire.%I FOR VALUES FROM (%s) TO (%s)',
		parent, name, first, last + 1);
	INSERT INTO tidewire.segment (stream, first, last, grow_at)
		VALUES (stream_id, first, last, last - (last - first) / 4);
END
$$;

-- last_segment returns the last segment of a stream, also to a transaction with
-- an old snapshot, which does not see the rows of tidewire.segment that others
-- have added since: PostgreSQL's own look into the catalogue does not go by it.
CREATE FUNCTION tidewire.last_segment(stream_id int) RETURNS tidewire.segment LANGUAGE plpgsql AS $$
DECLARE
	found_last tidewire.segment;
	ends bigint[];
BEGIN
	IF current_setting('transaction_isolation') = 'read committed' THEN
		SELECT * INTO found_last FROM tidewire.segment WHERE stream = stream_id ORDER BY last DESC LIMIT 1;
		RETURN found_last;
	END IF;
	SELECT array_agg(e.last ORDER BY e.last DESC) INTO ends
		FROM pg_partition_tree(('tidewire.stream_' || stream_id)::regclass) AS p,
			LATERAL (SELECT split_part(p.relid::regclass::text, '_', 3)::bigint AS last) AS e
		WHERE p.isleaf AND p.level = 1;
	SELECT * INTO found_last FROM tidewire.segment WHERE stream = stream_id AND last = ends[1];
	IF NOT FOUND THEN -- made since, and so the one before it is still there, as a rule
		found_last.stream := stream_id;
		found_last.first := coalesce(ends[2], ends[1] - 16384) + 1;
		found_last.last := ends[1];
		found_last.grow_at := ends[1] - (ends[1] - found_last.first) / 4;
		found_last.created_at := clock_timestamp();
	END IF;
	RETURN found_last;
END
$$;

-- make_room sees to it that the positions up to upto have their segments, and
-- that there is one more when the last is three quarters full. The caller holds
-- the stream's lock; head is where the stream stands. A batch larger
-- than a segment gets one as large as itself.
--
-- The spare one can wait: somebody may hold the lock that attaching needs, an
-- ANALYZE for example. Then the next writer tries, and only at the very end of
-- the last segment a writer waits.
--
-- Runs with the rights of who migrated, who owns the tables. A role of its own
-- for Tidewire needs EXECUTE on this.
CREATE FUNCTION tidewire.make_room(stream_id int, head bigint, upto bigint)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	s tidewire.segment := tidewire.last_segment(stream_id);
	usual bigint;
	size bigint;
BEGIN
	WHILE upto >= s.grow_at LOOP
		IF upto <= s.last THEN
			BEGIN
				EXECUTE format('LOCK TABLE ONLY tidewire.%I IN SHARE UPDATE EXCLUSIVE MODE NOWAIT', 'stream_' || stream_id);
			EXCEPTION WHEN lock_not_available THEN
				RETURN;
			END;
		END IF;
		usual := coalesce(usual, tidewire.segment_rows(s, head));
		size := greatest(usual, upto - s.last);
		PERFORM tidewire.add_segment(stream_id, s.last + 1, s.last + size);
		s := (stream_id, s.last + 1, s.last + size, s.last + size - (size - 1) / 4, clock_timestamp());
	END LOOP;
END
$$;

-- As before, and with room for the positions.
CREATE OR REPLACE FUNCTION tidewire.take_positions(
	lock_id int, positions regclass, size bigint, writer bigint, number bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	head bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	head := coalesce(pg_sequence_last_value(positions), 0);
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = lock_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(lock_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
	RETURN head + 1;
END
$$;

CREATE OR REPLACE FUNCTION tidewire.begin_batch(
	lock_id int, positions regclass, head bigint, size bigint, writer bigint, number bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	actual bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	actual := coalesce(pg_sequence_last_value(positions), 0);
	IF actual <> head THEN
		RAISE EXCEPTION 'stream head is %, not %', actual, head
			USING ERRCODE = 'TW001', DETAIL = actual::text;
	END IF;
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = lock_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(lock_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
END
$$;

-- As before, and with room for the positions. make_room is asked whatever the
-- segments seem to be: the snapshot may be an old one.
CREATE OR REPLACE FUNCTION tidewire.move_outbox() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	target record;
	positions regclass;
	head bigint;
BEGIN
	-- First, and the messages last: what is published behind this, by another
	-- trigger or with constraints set immediate, is due again.
	DELETE FROM pg_temp.tidewire_outbox_due;
	FOR target IN SELECT stream, count(*) AS size FROM pg_temp.tidewire_outbox GROUP BY stream ORDER BY stream LOOP
		PERFORM pg_advisory_xact_lock(1953064037, target.stream);
		BEGIN
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

-- create_stream_table makes the table of a stream, with its first segment. What
-- 0002 says of the columns and indexes holds for the segments.
--
-- Of two sequences one orders the messages. The other holds the oldest position
-- that may be kept, from 1 on. A sequence for that as well, because everybody
-- sees where it stands now, whatever the snapshot: a reader that has a lock on
-- the table, against which nothing can be dropped, and looks at the sequence
-- then, knows whether something was dropped before.
CREATE OR REPLACE FUNCTION tidewire.create_stream_table(stream_id int, keyed boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	name text := 'stream_' || stream_id;
BEGIN
	EXECUTE format($sql$
		CREATE TABLE tidewire.%1$I (
			position bigint NOT NULL,
			created_at timestamptz NOT NULL DEFAULT now(),
			key text COLLATE "C",
			headers jsonb,
			payload bytea NOT NULL,
			CONSTRAINT %2$I PRIMARY KEY (position)
		) PARTITION BY RANGE (position)$sql$, name, name || '_pkey');
	IF keyed THEN
		EXECUTE format('CREATE INDEX %I ON tidewire.%I (key, position) WHERE key IS NOT NULL',
			name || '_key_idx', name);
	END IF;
	EXECUTE format('CREATE SEQUENCE tidewire.%I CACHE 1 OWNED BY tidewire.%I.position',
		name || '_oldest_seq', name);
	IF to_regclass('tidewire.' || name || '_position_seq') IS NULL THEN
		EXECUTE format('CREATE SEQUENCE tidewire.%I CACHE 1 OWNED BY tidewire.%I.position',
			name || '_position_seq', name);
		PERFORM tidewire.add_segment(stream_id, 1, 16384);
	END IF;
END
$$;

-- The tables that there are become the first segments, as they are. Each is
-- read once, to see that all positions are within the bounds.
DO $$
DECLARE
	s record;
	old text;
	segment text;
	last bigint;
BEGIN
	FOR s IN SELECT id, keyed FROM tidewire.stream ORDER BY id LOOP
		PERFORM pg_advisory_xact_lock(1953064037, s.id); -- before the table, as writers do
		old := 'stream_' || s.id;
		EXECUTE format('LOCK TABLE tidewire.%I IN ACCESS EXCLUSIVE MODE', old);
		last := coalesce(pg_sequence_last_value(to_regclass('tidewire.' || old || '_position_seq')), 0) + 16384;
		segment := old || '_' || last;
		EXECUTE format('ALTER TABLE tidewire.%I RENAME TO %I', old, segment);
		EXECUTE format('ALTER TABLE tidewire.%I RENAME CONSTRAINT %I TO %I', segment, old || '_pkey', segment || '_pkey');
		IF s.keyed THEN
			EXECUTE format('ALTER INDEX tidewire.%I RENAME TO %I', old || '_key_idx', segment || '_key_idx');
		END IF;
		PERFORM tidewire.create_stream_table(s.id, s.keyed);
		EXECUTE format('ALTER SEQUENCE tidewire.%I OWNED BY tidewire.%I.position', old || '_position_seq', old);
		EXECUTE format('ALTER TABLE tidewire.%I ATTACH PARTITION tidewire.%I FOR VALUES FROM (1) TO (%s)', old, segment, last + 1);
		INSERT INTO tidewire.segment (stream, first, last, grow_at) VALUES (s.id, 1, last, last - 4096);
	END LOOP;
END
$$;

-- drop_stream as before, with the rows of its segments. It takes some five
-- locks for each of them, and PostgreSQL has room for 6,400 by default: of a
-- stream with many, package stream drops the older ones first.
CREATE OR REPLACE FUNCTION tidewire.drop_stream(stream_name text)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
	stream_id int;
BEGIN
	DELETE FROM tidewire.stream WHERE name = stream_name RETURNING id INTO stream_id;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	EXECUTE format('DROP TABLE tidewire.%I', 'stream_' || stream_id);
	DELETE FROM tidewire.segment WHERE stream = stream_id;
	RETURN true;
END
$$;

-- stream_state tells how a stream stands: its last committed position, or that
-- of the last one dropped, the oldest position that may be kept, and where the
-- sequence of positions stands.
--
-- The head is looked for near where the sequence stands, and farther back while
-- nothing is found: planning a look at all segments takes long if there are many.
CREATE FUNCTION tidewire.stream_state(stream_id int, OUT head bigint, OUT oldest bigint, OUT reserved bigint)
LANGUAGE plpgsql AS $$
DECLARE
	name text := 'stream_' || stream_id;
	back bigint := 1024;
BEGIN
	-- Holds off a drop, without which the sequences could vanish.
	EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS SHARE MODE', name);
	reserved := coalesce(pg_sequence_last_value(('tidewire.' || name || '_position_seq')::regclass), 0);
	oldest := coalesce(pg_sequence_last_value(('tidewire.' || name || '_oldest_seq')::regclass), 1);
	LOOP
		EXECUTE format('SELECT max(position) FROM tidewire.%I WHERE position > %s', name, reserved - back) INTO head;
		EXIT WHEN head IS NOT NULL OR reserved - back < oldest;
		back := 16 * back;
	END LOOP;
	head := coalesce(head, oldest - 1);
END
$$;

-- As before, by stream_state.
CREATE OR REPLACE FUNCTION tidewire.stream_heads(ids int[], settled bigint[])
RETURNS TABLE (id int, reserved bigint, head bigint)
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
	positions regclass;
BEGIN
	FOR i IN 1 .. cardinality(ids) LOOP
		BEGIN
			id := ids[i];
			head := NULL;
			positions := to_regclass('tidewire.stream_' || id || '_position_seq');
			IF positions IS NOT NULL THEN
				reserved := coalesce(pg_sequence_last_value(positions), 0);
				CONTINUE WHEN reserved = settled[i];
				SELECT s.head INTO head FROM tidewire.stream_state(id) AS s;
			END IF;
			RETURN NEXT;
		EXCEPTION WHEN undefined_table OR lock_not_available OR internal_error THEN
			NULL; -- being dropped, as the next poll will see, or being altered
		END;
	END LOOP;
END
$$;

-- read_key reads messages with the key behind position after and up to upto,
-- most at most, from the lowest position on or from the highest. It goes from
-- segment to segment, until it has enough: for the table as a whole PostgreSQL
-- may collect all messages of the key and sort them, and would always open
-- every segment.
--
-- Compared as rows, because with key = the_key the planner may choose the
-- primary key instead, whose order then fits as well, and walk past all
-- messages with other keys. The first condition is the partial index's.
CREATE FUNCTION tidewire.read_key(
	stream_id int, the_key text, after bigint, upto bigint, most int, backward boolean
) RETURNS TABLE ("position" bigint, key text, headers jsonb, payload bytea, created_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	parent text := 'stream_' || stream_id;
	direction text := CASE WHEN backward THEN 'DESC' ELSE 'ASC' END;
	segment_last bigint;
	found_here int;
BEGIN
	-- Holds off a drop. An old snapshot shows segments that are gone already.
	EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS SHARE MODE', parent);
	FOR segment_last IN SELECT last FROM tidewire.segment
		WHERE stream = stream_id AND last > after AND first <= upto
		ORDER BY CASE WHEN backward THEN -last ELSE last END
	LOOP
		CONTINUE WHEN to_regclass(format('tidewire.%I', parent || '_' || segment_last)) IS NULL;
		RETURN QUERY EXECUTE format($sql$
			SELECT position, key, headers, payload, created_at FROM tidewire.%I
			WHERE key IS NOT NULL AND (key, position) > ($1, $2) AND (key, position) <= ($1, $3)
			ORDER BY key %s, position %s LIMIT $4$sql$, parent || '_' || segment_last, direction, direction)
			USING the_key, after, upto, most;
		GET DIAGNOSTICS found_here = ROW_COUNT;
		most := most - found_here;
		EXIT WHEN most = 0;
	END LOOP;
END
$$;
