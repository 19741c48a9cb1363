-- The retention policies of streams: a stream without a row here keeps everything.
--
-- sized is the end of a shared stream when its size was last found to be within max_bytes: it is
-- reckoned anew only when an eighth has come since, or the policy is another one.
CREATE TABLE tidewire.retention (
	stream int PRIMARY KEY REFERENCES tidewire.stream ON DELETE CASCADE,
	max_age interval CHECK (max_age > interval '0'),
	max_bytes bigint CHECK (max_bytes > 0),
	consumed boolean NOT NULL,
	sized bigint
);

-- set_retention sets what is kept of a stream, NULL being no bound, and tells
-- whether there is such a stream. A partitioned stream keeps what is asked for, and each of its
-- partitions as long, and its share of the bytes. It waits for a drop_shared under way, and one after it drops nothing that
-- was found by the policy before.
CREATE FUNCTION tidewire.set_retention(stream_name text, age interval, bytes bigint, when_consumed boolean)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	whole tidewire.stream;
	ids int[];
BEGIN
	PERFORM tidewire.refuse_partition(stream_name);
	SELECT * INTO whole FROM tidewire.stream WHERE name = stream_name AND state = 'ready' FOR SHARE;
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

-- segment_bytes is how large a segment should become: 128 MiB, or an eighth of
-- what is kept, since nothing smaller than a segment is dropped.
CREATE FUNCTION tidewire.segment_bytes(stream_id int) RETURNS bigint LANGUAGE sql STABLE AS $$
	SELECT least(128 * 1024 * 1024, (SELECT max_bytes / 8 FROM tidewire.retention WHERE stream = stream_id))
$$;

-- hold_retention is what every step of a retention worker begins with: it tells whether
-- this process is the one that works, for this transaction. The statements after it
-- have to see what was committed before its locks were granted: only READ
-- COMMITTED does.
CREATE FUNCTION tidewire.hold_retention() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'retention needs READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	RETURN pg_try_advisory_xact_lock(1953064037, 3);
END
$$;

-- dump_under_way tells whether a pg_dump is connected to this database. It fails if
-- a table is dropped between its first look and its lock on the table, which may be
-- long, for it waits for other locks in between. The columns that everybody may see of other
-- sessions are enough to know it by its name. A backup by another program holds
-- retention's lock meanwhile:
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
-- from more than an eighth of the time that is kept, or twice as much as it
-- should: the rest of its positions become a gap. Without this a stream with
-- little traffic would keep its messages for as long as it takes to fill a
-- segment. A shared stream has no segments.
--
-- It returns the position up to which the stream is settled, or NULL if another
-- process works: one that has the lock sees all that was committed, and what comes
-- later gets positions after that.
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
		RETURN head; -- none, or its end has been reached
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

-- expired returns the last position of the stream's last segment that may be
-- dropped, with all before it, or 0. Of positions after settled, which
-- seal_segment has told, somebody may still commit messages. A group without an offset has read nothing.
--
-- A segment that was begun before the policy, or in which a stream got tables of
-- its own, may be larger than max_bytes: it stays until half of that has come after it. The last segment stays, also if positions after it were given out and never written,
-- or if it was filled while nobody could make another one: the next append makes one by it.
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
	IF policy.consumed THEN -- NULL, which is past nothing, without groups
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
		-- Below the oldest that is kept: PostgreSQL crashed while it was dropped.
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

-- drop_expired drops the segments that need not be kept, of those up to the position that seal_segment
-- has told, 32 of them at most, and returns how many. The retention worker calls it when expired has found some.
-- It looks again, as drop_shared does: a policy that is another one by now counts, and a group
-- that was made, or has gone back, keeps what it has not read. READ COMMITTED.
--
-- The locks are taken in the order of drop_stream and seek_offset: the row, the offsets, the table.
CREATE FUNCTION tidewire.drop_expired(stream_id int, settled bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	upto bigint;
BEGIN
	PERFORM FROM tidewire.stream WHERE id = stream_id FOR NO KEY UPDATE;
	-- From here on nobody changes the policy or moves a group back, and what was committed before is seen.
	upto := tidewire.expired(stream_id, settled);
	IF upto = 0 THEN
		RETURN 0;
	END IF;
	RETURN tidewire.drop_segments(stream_id, upto);
END
$$;

-- drop_segments drops the segments of the stream up to that position, which
-- expired has told, 32 of them at most, and returns how many. All who come to
-- the table wait after one who waits for it alone: the retention worker has set a short
-- lock_timeout, and tries again. It drops nothing while a dump is under way, which would fail; it looks again when it has its locks.
--
-- The oldest position kept is moved when nothing can be in the way any more: a
-- sequence does not go back if the transaction does. It goes after the last
-- message that is dropped and not to the next segment, so that whoever has read
-- that one has missed nothing.
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
