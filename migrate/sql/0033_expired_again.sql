-- Streams with tables of their own: what is dropped is looked at again, and a group does not commit in
-- the rest of a sealed segment.

-- drop_expired drops the segments that need not be kept, of those up to the position that seal_segment
-- has told, 32 of them at most, and returns how many. The keeper calls it when expired has found some.
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

-- stream_reserved as before. But where the last position that was given out ends a segment, that may have
-- been sealed: then no message has the positions after its last one, and the stream ends before them.
CREATE OR REPLACE FUNCTION tidewire.stream_reserved(stream_id int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	position bigint;
	begins bigint;
BEGIN
	SELECT tidewire.shared_head(id) INTO position FROM tidewire.stream WHERE id = stream_id AND shared;
	IF FOUND THEN
		RETURN position;
	END IF;
	IF to_regclass('tidewire.stream_' || stream_id || '_position_seq') IS NULL THEN
		EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS SHARE MODE', 'stream_' || stream_id);
	END IF;
	position := coalesce(pg_sequence_last_value(('tidewire.stream_' || stream_id || '_position_seq')::regclass), 0);
	SELECT s.first INTO begins FROM tidewire.segment AS s WHERE s.stream = stream_id AND s.last > position ORDER BY s.last LIMIT 1;
	IF begins > position THEN
		position := (SELECT s.head FROM tidewire.stream_state(stream_id) AS s);
	END IF;
	RETURN position;
EXCEPTION WHEN undefined_table OR internal_error THEN
	RETURN 0; -- dropped
END
$$;

-- expired as before. The last segment stays, also if positions after it were given out and never written, or if it
-- was filled while nobody could make another one: the next append makes one by it.
CREATE OR REPLACE FUNCTION tidewire.expired(stream_id int, settled bigint) RETURNS bigint LANGUAGE plpgsql AS $$
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
