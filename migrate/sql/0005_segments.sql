-- A stream's table is partitioned into segments, which are dropped as a whole when their messages
-- expire.

-- The segments of the streams: one row for each partition of a stream's table,
-- which holds the positions first to last and is called stream_<id>_<last>. The
-- last segment of a stream is usually empty: writers make it when the one
-- before it has reached grow_at, which is before its end.
--
-- No foreign key, to prevent a deadlock: a writer that adds a row holds the
-- stream's lock, and would wait for the stream's row; drop_stream holds that row
-- and waits for the lock.
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
-- A B-tree on position, and not BRIN as on an ingest table: a stream is read by
-- position repeatedly, a few rows before its end, and that must take the same
-- time at every position.
--
-- Keys compare as bytes (COLLATE "C"): that is faster to insert, and an upgrade of
-- the system's locales cannot break the index. Columns of a fixed width come
-- first, which saves padding.
--
-- There are two sequences. One orders the messages. The other holds the oldest
-- position that may be kept, starting at 1. It is a sequence because every
-- session sees its current value, whatever the snapshot: a reader that first
-- locks the table, so that nothing can be dropped, and then reads the sequence,
-- knows whether anything was dropped before.
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

-- segment_rows returns how many positions the segment after another one should have, computed from what that one holds when its
-- positions are used up to head. The next one should be segment_bytes large, and be filled within an eighth of the retention
-- time. It is not much larger than the previous one, since a few messages are a poor estimate; not so small that a read would
-- need many segments; and larger, the more segments there are, because planning a query on all of them takes a lock on each. If a
-- history began in the segment, only the positions after its base count.
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

-- add_segment makes the segment with the positions first to last. It makes a
-- separate table and attaches it, which takes a lock on the stream's table that
-- blocks neither readers nor writers: CREATE TABLE … PARTITION OF would block
-- them all.
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

-- last_segment returns the last segment of a stream, even in a transaction with
-- an old snapshot, which does not see rows of tidewire.segment that others have
-- added since: PostgreSQL's own catalogue lookups do not use that snapshot.
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
	IF NOT FOUND THEN -- made since the snapshot, so the segment before it usually still exists
		found_last.stream := stream_id;
		found_last.first := coalesce(ends[2], ends[1] - 16384) + 1;
		found_last.last := ends[1];
		found_last.grow_at := ends[1] - (ends[1] - found_last.first) / 4;
		found_last.created_at := clock_timestamp();
	END IF;
	RETURN found_last;
END
$$;

-- make_room makes sure that the positions up to upto have segments, and that
-- there is a spare one when the last is three quarters full. The caller holds
-- the stream's lock; head is the end of the stream. A batch larger than a
-- segment gets a segment as large as itself.
--
-- The spare segment is not urgent: another session, for example an ANALYZE, may
-- hold the lock that attaching needs. Then the next writer tries; a writer
-- waits only at the very end of the last segment.
--
-- Runs with the rights of the role that migrated, which owns the tables.
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
