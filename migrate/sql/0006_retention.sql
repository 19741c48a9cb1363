-- The keeper: what lets go of the segments that a stream's policy does not keep.

-- hold_retention is what every step of a keeper begins with: it tells whether
-- this process is the one that keeps, for this transaction. What comes behind
-- has to see what was committed before its locks were granted: only READ
-- COMMITTED does.
CREATE FUNCTION tidewire.hold_retention() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'retention needs READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	RETURN pg_try_advisory_xact_lock(1953064037, 3);
END
$$;

-- expired returns the last position of the stream's last segment that may be
-- dropped, with all before it, or 0. Of positions behind settled, which
-- seal_segment has told, somebody may still commit messages.
CREATE FUNCTION tidewire.expired(stream_id int, settled bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	policy tidewire.retention;
	s tidewire.segment;
	oldest bigint;
	bytes bigint;
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
		SELECT min(committed) INTO read_by_all
			FROM tidewire.read_offsets(ARRAY(SELECT id FROM tidewire.stream_group WHERE stream = stream_id));
	END IF;
	IF policy.max_bytes IS NOT NULL THEN
		SELECT sum(pg_total_relation_size(to_regclass(format('tidewire.stream_%s_%s', stream_id, last)))) INTO bytes
			FROM tidewire.segment WHERE stream = stream_id;
	END IF;
	FOR s IN SELECT * FROM tidewire.segment WHERE stream = stream_id AND last <= settled ORDER BY last LOOP
		EXECUTE format('SELECT position, created_at FROM tidewire.%I ORDER BY position DESC LIMIT 1',
			'stream_' || stream_id || '_' || s.last) INTO newest;
		-- Below the oldest that is kept: PostgreSQL crashed while it was dropped.
		IF newest.position >= oldest THEN
			EXIT WHEN policy.consumed AND (newest.position <= read_by_all) IS NOT TRUE;
			EXIT WHEN (policy.max_age IS NOT NULL OR policy.max_bytes IS NOT NULL)
				AND (newest.created_at <= clock_timestamp() - policy.max_age) IS NOT TRUE
				AND (bytes > policy.max_bytes) IS NOT TRUE;
		END IF;
		bytes := bytes - pg_total_relation_size(to_regclass(format('tidewire.stream_%s_%s', stream_id, s.last)));
		upto := s.last;
	END LOOP;
	RETURN upto;
END
$$;

-- drop_segments drops the segments of the stream up to that position, which
-- expired has told, 32 of them at most, and returns how many. All who come to
-- the table wait behind one who waits for it alone: the keeper has set a short
-- lock_timeout, and tries again.
--
-- The oldest position kept is moved when nothing can be in the way any more: a
-- sequence does not go back if the transaction does. It goes behind the last
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
	IF NOT tidewire.hold_retention() THEN
		RETURN 0;
	END IF;
	EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS EXCLUSIVE MODE', parent);
	gone := ARRAY(SELECT last FROM tidewire.segment WHERE stream = stream_id AND last <= upto ORDER BY last LIMIT 32);
	FOREACH last_one IN ARRAY gone LOOP
		EXECUTE format('LOCK TABLE tidewire.%I IN ACCESS EXCLUSIVE MODE', parent || '_' || last_one);
		EXECUTE format('SELECT greatest(max(position), $1) FROM tidewire.%I', parent || '_' || last_one) INTO highest USING highest;
	END LOOP;
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

-- seal_segment ends the segment that is being written, if it holds messages
-- from more than an eighth of the time that is kept, or twice as much as it
-- should: the rest of its positions become a gap. Without this a stream with
-- little traffic would keep its messages for as long as it takes to fill a
-- segment.
--
-- It returns the position up to which the stream is settled, or NULL if another
-- process keeps: who has the lock sees all that was committed, and what comes
-- later gets positions behind.
CREATE FUNCTION tidewire.seal_segment(stream_id int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	policy tidewire.retention;
	positions regclass := ('tidewire.stream_' || stream_id || '_position_seq')::regclass;
	head bigint;
	s tidewire.segment;
	name text;
	since timestamptz;
BEGIN
	IF NOT tidewire.hold_retention() THEN
		RETURN NULL;
	END IF;
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

-- set_retention sets what is kept of a stream, NULL being no bound, and tells
-- whether there is such a stream.
CREATE FUNCTION tidewire.set_retention(stream_name text, age interval, bytes bigint, when_consumed boolean)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	stream_id int := (SELECT id FROM tidewire.stream WHERE name = stream_name FOR KEY SHARE);
BEGIN
	DELETE FROM tidewire.retention WHERE stream = stream_id;
	IF age IS NOT NULL OR bytes IS NOT NULL OR when_consumed THEN
		INSERT INTO tidewire.retention SELECT stream_id, age, bytes, when_consumed WHERE stream_id IS NOT NULL
		ON CONFLICT (stream) DO UPDATE SET max_age = age, max_bytes = bytes, consumed = when_consumed;
	END IF;
	RETURN stream_id IS NOT NULL;
END
$$;

REVOKE EXECUTE ON FUNCTION tidewire.make_room(int, bigint, bigint) FROM PUBLIC;
