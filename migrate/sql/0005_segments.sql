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

-- create_stream_table makes the table of a stream, with its first segment.
--
-- A B-tree on position, and not BRIN as on an ingest table: a stream is read
-- by position again and again, a few rows before its end, and that has
-- to take the same time wherever in the stream a reader stands.
--
-- Keys compare as bytes (COLLATE "C"): that is faster to insert, and an
-- upgrade of the system's locales cannot break the index. Columns of a fixed width
-- come first, which spares the padding before them.
--
-- Of two sequences one orders the messages. The other holds the oldest position
-- that may be kept, from 1 on. A sequence for that as well, because everybody
-- sees where it stands now, whatever the snapshot: a reader that has a lock on
-- the table, against which nothing can be dropped, and looks at the sequence
-- then, knows whether something was dropped before.
CREATE FUNCTION tidewire.create_stream_table(stream_id int, keyed boolean)
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

-- segment_rows is how many positions the segment after another one should
-- have, going by what that one holds now, when its positions are taken up to
-- head: what makes it segment_bytes large, and fills it within an eighth of the
-- time that is kept. Not much more than before, since a few messages tell
-- little; not so few that a read would go through many; and more, the more
-- segments there are, for a look at all of them takes a lock on each. Of a segment in which a history began, only the positions after its base count.
CREATE FUNCTION tidewire.segment_rows(s tidewire.segment, head bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint := greatest(s.first - 1, (SELECT max(base) FROM tidewire.bases() AS base WHERE base < least(head, s.last)));
	used bigint := least(head, s.last) - before;
	size bigint := s.last - before;
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

REVOKE EXECUTE ON FUNCTION tidewire.make_room(int, bigint, bigint) FROM PUBLIC;
