-- The retention policies of streams: a stream without a row here keeps everything.
--
-- sized is the end of a shared stream at the time when its size was last found to be within
-- max_bytes. The size is computed again only after an eighth more has come, or if the policy has
-- changed.
CREATE TABLE tidewire.retention (
	stream int PRIMARY KEY REFERENCES tidewire.stream ON DELETE CASCADE,
	max_age interval CHECK (max_age > interval '0'),
	max_bytes bigint CHECK (max_bytes > 0),
	consumed boolean NOT NULL,
	sized bigint
);

-- set_retention sets the bounds on what a stream keeps, where NULL means no bound, and returns whether there is such a
-- stream. Each partition of a partitioned stream gets the same time and an equal part of the bytes. It waits for a
-- drop_shared under way; a later one drops nothing that was selected by the old policy.
-- The caller names the stream by its id too: a stream that was dropped and created again is another one.
CREATE FUNCTION tidewire.set_retention(stream_id int, stream_name text, age interval, bytes bigint, when_consumed boolean)
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
			SELECT id, age, CASE WHEN id = whole.id THEN bytes ELSE greatest(bytes / nullif(whole.partitions, 0), 1) END, when_consumed
			FROM unnest(ids) AS id WHERE id IS NOT NULL ORDER BY id
		ON CONFLICT (stream) DO UPDATE
			SET max_age = excluded.max_age, max_bytes = excluded.max_bytes, consumed = excluded.consumed, sized = NULL;
	END IF;
	RETURN whole.id IS NOT NULL;
END
$$;

-- segment_bytes returns how large a segment should become: 128 MiB, or an
-- eighth of the bytes to keep, since only whole segments are dropped.
CREATE FUNCTION tidewire.segment_bytes(stream_id int) RETURNS bigint LANGUAGE sql STABLE AS $$
	SELECT least(128 * 1024 * 1024, (SELECT max_bytes / 8 FROM tidewire.retention WHERE stream = stream_id))
$$;

-- hold_retention begins every step of a retention worker: it returns whether this
-- process is the one that works, for this transaction. READ COMMITTED is required, so
-- that later statements see everything that was committed before its locks were
-- granted.
CREATE FUNCTION tidewire.hold_retention() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'retention needs READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	RETURN pg_try_advisory_xact_lock(1953064037, 3);
END
$$;

-- dump_under_way returns whether a pg_dump is connected to this database. A pg_dump fails if
-- a table is dropped between its first look and its lock on the table, which may take
-- long, because it waits for other locks in between. Its application_name, which every role
-- can see, is enough to recognise it. A backup by another program must hold the retention
-- worker's lock meanwhile:
--
--	SELECT pg_advisory_lock_shared(1953064037, 3)
CREATE FUNCTION tidewire.dump_under_way() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_stat_clear_snapshot();
	RETURN EXISTS (SELECT FROM pg_stat_activity
		WHERE application_name = 'pg_dump' AND datname = current_database());
END
$$;

-- seal_segment ends the segment that is being written, if it holds messages
-- from more than an eighth of the retention time, or is twice as large as it
-- should be: the rest of its positions become a gap. Without this, a stream
-- with little traffic would keep its messages for as long as it takes to fill a
-- segment. A shared stream has no segments.
--
-- It returns the position up to which the stream is settled, or NULL if another
-- process works: the process that has the lock sees everything that was committed,
-- and later messages get higher positions.
CREATE FUNCTION tidewire.seal_segment(stream_id int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	policy tidewire.retention;
	positions regclass;
	head bigint;
	s tidewire.segment;
	name text;
	since timestamptz;
BEGIN
	IF NOT tidewire.hold_retention() THEN
		RETURN NULL;
	END IF;
	PERFORM FROM tidewire.stream WHERE id = stream_id AND shared;
	IF FOUND THEN
		RETURN NULL;
	END IF;
	positions := ('tidewire.stream_' || stream_id || '_position_seq')::regclass;
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	SELECT * INTO policy FROM tidewire.retention WHERE stream = stream_id;
	head := coalesce(pg_sequence_last_value(positions), 0);
	SELECT * INTO s FROM tidewire.segment
		WHERE stream = stream_id AND head BETWEEN first AND last - 1 ORDER BY last LIMIT 1;
	IF NOT FOUND THEN
		RETURN head; -- there is no segment, or its end has been reached
	END IF;
	name := 'stream_' || stream_id || '_' || s.last;
	EXECUTE format('SELECT created_at FROM tidewire.%I ORDER BY position LIMIT 1', name) INTO since;
	IF (since <= clock_timestamp() - policy.max_age / 8) IS NOT TRUE
		AND (pg_total_relation_size(to_regclass('tidewire.' || name)) >= 2 * tidewire.segment_bytes(stream_id)) IS NOT TRUE THEN
		RETURN head;
	END IF;
	PERFORM tidewire.make_room(stream_id, head, s.last + 1);
	PERFORM setval(positions, s.last);
	RETURN s.last;
END
$$;

-- expired returns the last position of the last segment that may be dropped, together with all segments
-- before it, or 0. Messages may still be committed at positions after settled, which seal_segment has
-- returned. A group without an offset has read nothing.
--
-- A segment that was begun before the policy was set, or when a stream moved to separate tables, may be larger than max_bytes: it
-- is kept until half of max_bytes has come after it. The last segment is always kept, even if positions after it were assigned
-- and never written, or if it was filled while no other segment could be made: the next append uses it to size the next segment.
CREATE FUNCTION tidewire.expired(stream_id int, settled bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	policy tidewire.retention;
	s tidewire.segment;
	oldest bigint;
	bytes bigint;
	size bigint;
	newest record;
	read_by_all bigint;
	upto bigint := 0;
BEGIN
	SELECT * INTO policy FROM tidewire.retention WHERE stream = stream_id;
	IF NOT FOUND OR NOT tidewire.hold_retention() THEN
		RETURN 0;
	END IF;
	oldest := coalesce(pg_sequence_last_value(('tidewire.stream_' || stream_id || '_oldest_seq')::regclass), 1);
	IF policy.consumed THEN -- NULL without groups, so nothing counts as consumed
		SELECT min(coalesce(committed, 0)) INTO read_by_all
			FROM tidewire.read_offsets(ARRAY(SELECT id FROM tidewire.stream_group WHERE stream = stream_id));
	END IF;
	IF policy.max_bytes IS NOT NULL THEN
		SELECT sum(pg_total_relation_size(to_regclass(format('tidewire.stream_%s_%s', stream_id, last)))) INTO bytes
			FROM tidewire.segment WHERE stream = stream_id;
	END IF;
	FOR s IN SELECT * FROM tidewire.segment
		WHERE stream = stream_id AND last <= settled AND last < (SELECT max(l.last) FROM tidewire.segment AS l WHERE l.stream = stream_id)
		ORDER BY last
	LOOP
		EXECUTE format('SELECT position, created_at FROM tidewire.%I ORDER BY position DESC LIMIT 1',
			'stream_' || stream_id || '_' || s.last) INTO newest;
		size := pg_total_relation_size(to_regclass(format('tidewire.stream_%s_%s', stream_id, s.last)));
		-- Below the oldest kept position: PostgreSQL crashed while the segment was dropped.
		IF newest.position >= oldest THEN
			EXIT WHEN policy.consumed AND (newest.position <= read_by_all) IS NOT TRUE;
			EXIT WHEN (policy.max_age IS NOT NULL OR policy.max_bytes IS NOT NULL)
				AND (newest.created_at <= clock_timestamp() - policy.max_age) IS NOT TRUE
				AND (bytes > policy.max_bytes AND bytes - size >= policy.max_bytes / 2) IS NOT TRUE;
		END IF;
		bytes := bytes - size;
		upto := s.last;
	END LOOP;
	RETURN upto;
END
$$;

-- drop_expired drops the expired segments up to the position that seal_segment has returned, 32 of them at most,
-- and returns how many. The retention worker calls it when expired has found some. It checks again, as
-- drop_shared does: if the policy has changed, the new one counts; and messages are kept that a new group, or
-- one that has gone back, has not read. READ COMMITTED.
--
-- The locks are taken in the same order as in drop_stream and seek_offset: the row, the offsets,
-- the table.
CREATE FUNCTION tidewire.drop_expired(stream_id int, settled bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	upto bigint;
BEGIN
	PERFORM FROM tidewire.stream WHERE id = stream_id FOR NO KEY UPDATE;
	-- From here on no session can change the policy or move a group back, and everything that was
	-- committed before is visible.
	upto := tidewire.expired(stream_id, settled);
	IF upto = 0 THEN
		RETURN 0;
	END IF;
	RETURN tidewire.drop_segments(stream_id, upto);
END
$$;

-- drop_segments drops the segments of the stream up to that position, which expired has returned, 32 of them at most, and returns
-- how many. While it waits for the table's exclusive lock, every later session waits too: so the retention worker sets a short
-- lock_timeout, and tries again. It drops nothing while a dump is under way, because the dump would fail; it checks that again
-- when it has its locks.
--
-- The oldest kept position is moved last, when nothing can fail any more: a
-- rollback does not undo the change of a sequence. It is set to the position
-- after the last dropped message and not to the next segment, so that a reader
-- of that message has missed nothing.
CREATE FUNCTION tidewire.drop_segments(stream_id int, upto bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	parent text := 'stream_' || stream_id;
	oldest regclass;
	gone bigint[];
	last_one bigint;
	highest bigint;
BEGIN
	IF tidewire.dump_under_way() OR NOT tidewire.hold_retention() THEN
		RETURN 0;
	END IF;
	EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS EXCLUSIVE MODE', parent);
	gone := ARRAY(SELECT last FROM tidewire.segment WHERE stream = stream_id AND last <= upto ORDER BY last LIMIT 32);
	FOREACH last_one IN ARRAY gone LOOP
		EXECUTE format('LOCK TABLE tidewire.%I IN ACCESS EXCLUSIVE MODE', parent || '_' || last_one);
		EXECUTE format('SELECT greatest(max(position), $1) FROM tidewire.%I', parent || '_' || last_one) INTO highest USING highest;
	END LOOP;
	IF tidewire.dump_under_way() THEN
		RETURN 0;
	END IF;
	oldest := ('tidewire.' || parent || '_oldest_seq')::regclass;
	IF highest >= coalesce(pg_sequence_last_value(oldest), 1) THEN
		PERFORM setval(oldest, highest + 1);
	END IF;
	FOREACH last_one IN ARRAY gone LOOP
		EXECUTE format('DROP TABLE tidewire.%I', parent || '_' || last_one);
	END LOOP;
	DELETE FROM tidewire.segment WHERE stream = stream_id AND last = ANY (gone);
	RETURN cardinality(gone);
END
$$;
