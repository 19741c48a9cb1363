-- stream_state returns the state of a stream: its last committed position, or that of the last dropped
-- message, the oldest position that may be kept, and the value of the sequence of positions. A shared
-- stream has no reserved positions that are not committed.
--
-- The head is searched near the value of the sequence first, and then farther
-- back: planning a query on all segments takes long if there are many.
CREATE FUNCTION tidewire.stream_state(stream_id int, OUT head bigint, OUT oldest bigint, OUT reserved bigint)
LANGUAGE plpgsql AS $$
DECLARE
	name text := 'stream_' || stream_id;
	back bigint := 1024;
BEGIN
	SELECT tidewire.shared_head(id), 1 + coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = id ORDER BY f.floor DESC LIMIT 1), 0)
		INTO head, oldest FROM tidewire.stream WHERE id = stream_id AND shared AND partitions = 0;
	IF FOUND THEN
		reserved := head;
		RETURN;
	END IF;
	-- Blocks a drop, which could remove the sequences meanwhile.
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

-- stream_reserved returns a position up to which no positions will be assigned any more. A stream that is moved while a query
-- runs may be shared for that query, and not here, or the other way round. LOCK TABLE is as in move_outbox; it also fails if
-- there is no such stream. It waits for 0.1 s, and then uses the positions that were assigned: a commit of the offsets of many
-- groups calls it for all of their streams, and one locked stream would delay them all. So while the table is locked, a commit in
-- the rest of a sealed segment is accepted.
--
-- If the last assigned position is the end of a segment, the segment may have been sealed: then the
-- positions after its last message are empty, and the stream ends before them.
CREATE FUNCTION tidewire.stream_reserved(stream_id int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	position bigint;
	begins bigint;
	patience text := current_setting('lock_timeout');
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
		BEGIN
			PERFORM set_config('lock_timeout', '100ms', true);
			position := (SELECT s.head FROM tidewire.stream_state(stream_id) AS s);
			PERFORM set_config('lock_timeout', patience, true);
		EXCEPTION WHEN lock_not_available THEN -- the exception block also resets the timeout
		END;
	END IF;
	RETURN position;
EXCEPTION WHEN undefined_table OR internal_error THEN
	RETURN 0; -- dropped
END
$$;

-- stream_heads is the poll of a process for all streams that it follows: one query, which
-- reads only the streams that have moved. It returns the streams whose sequence differs from
-- the settled value that the caller knows, with that value and the last committed position; a
-- head of NULL says that the stream was dropped. For a stream that cannot be read now, because
-- another session alters or drops it, it returns the value -1: the caller then polls it again.
--
-- The sequence alone is not enough, because it is moved before the commit: a
-- caller that read at that moment would find nothing, and would never be
-- notified again. So a caller considers a stream settled only once its head has
-- reached the sequence. A gap at the end of a stream costs one index probe per
-- poll.
--
-- All shared streams take one query, which reads the index from the settled position on, and looks each stream up by its key,
-- however few of all there are. A stream that moves to separate tables between the two queries is returned by the next poll:
-- growth_seq advances with the move.
CREATE FUNCTION tidewire.stream_heads(ids int[], settled bigint[])
RETURNS TABLE (id int, reserved bigint, head bigint)
LANGUAGE plpgsql SET lock_timeout = '100ms' SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET enable_hashjoin = off AS $$
DECLARE
	positions regclass;
	others int[] := ARRAY(SELECT n FROM generate_subscripts(ids, 1) AS n
		WHERE NOT EXISTS (SELECT FROM tidewire.stream AS s WHERE s.id = ids[n] AND s.shared));
	i int;
BEGIN
	RETURN QUERY
		SELECT s.id, h.position, h.position FROM unnest(ids, settled) AS u (stream, seen)
		JOIN tidewire.stream AS s ON s.id = u.stream AND s.shared
		CROSS JOIN LATERAL (
			SELECT coalesce(
				(SELECT m.position FROM tidewire.shared_message AS m
					WHERE m.stream = s.id AND m.position >= nullif(u.seen, 0) ORDER BY m.position DESC LIMIT 1),
				(SELECT m.position FROM tidewire.shared_message AS m WHERE m.stream = s.id AND m.position > coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = s.id ORDER BY f.floor DESC LIMIT 1), 0) ORDER BY m.position DESC LIMIT 1),
				coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = s.id ORDER BY f.floor DESC LIMIT 1), 0)) AS position
			OFFSET 0 -- looks up each head once, not once for each use
		) AS h WHERE h.position <> u.seen;
	FOREACH i IN ARRAY others LOOP
		BEGIN
			id := ids[i];
			head := NULL;
			positions := to_regclass('tidewire.stream_' || id || '_position_seq');
			IF positions IS NOT NULL THEN
				reserved := coalesce(pg_sequence_last_value(positions), 0);
				CONTINUE WHEN reserved = settled[i];
				SELECT s.head INTO head FROM tidewire.stream_state(id) AS s;
			ELSIF EXISTS (SELECT FROM tidewire.stream AS s WHERE s.id = ids[i]) THEN
				reserved := -1; -- its tables were made just now
				head := 0;
			END IF;
			RETURN NEXT;
		EXCEPTION WHEN undefined_table OR lock_not_available OR internal_error THEN
			reserved := -1;
			head := 0;
			RETURN NEXT;
		END;
	END LOOP;
END
$$;

-- read_shared returns up to "most" messages of a stream after one position, and up to another, in order: as many as
-- fill a page of that many bytes, or all if bytes is NULL. It returns no messages if some after the given position were
-- dropped. The last row is not a message: its position is -1 minus the floor; its key is the end of the stream; its
-- headers are set if the stream has separate tables; its time is when the history began: its seconds since 1970 are the
-- seconds since 2020, and 0 for the first history. That row is missing if there is no such stream. Everything is from
-- one snapshot.
--
-- A message counts with a lower bound of its size, which is computed without
-- fetching it: see contentBytes in package stream.
CREATE FUNCTION tidewire.read_shared(stream_id int, after bigint, upto bigint, most bigint, bytes bigint)
RETURNS TABLE ("position" bigint, key text, headers jsonb, payload bytea, created_at timestamptz)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
	low bigint := coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = stream_id ORDER BY f.floor DESC LIMIT 1), 0);
BEGIN
	IF after < low THEN
		NULL; -- too old
	ELSIF bytes IS NULL THEN
		RETURN QUERY SELECT m.position, coalesce(m.key, ''), m.headers, m.payload, m.created_at FROM tidewire.shared_message AS m
			WHERE m.stream = stream_id AND m.position > after AND m.position <= upto ORDER BY m.position LIMIT most;
	ELSE
		RETURN QUERY SELECT c.position, coalesce(c.key, ''), c.headers, c.payload, c.created_at FROM (
			SELECT m.*, sum(octet_length(m.payload) + coalesce(pg_column_size(m.headers), 0) / 8)
				OVER (ORDER BY m.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM (
				SELECT * FROM tidewire.shared_message AS m
				WHERE m.stream = stream_id AND m.position > after AND m.position <= upto ORDER BY m.position LIMIT most
			) AS m
		) AS c WHERE coalesce(c.before, 0) < bytes ORDER BY c.position;
	END IF;
	RETURN QUERY SELECT -1 - low, tidewire.shared_head(s.id)::text, CASE WHEN NOT s.shared THEN '{}'::jsonb END, ''::bytea, to_timestamp(pg_sequence_last_value('tidewire.history_seq') >> 32)
		FROM tidewire.stream AS s WHERE s.id = stream_id;
END
$$;

-- read_key reads messages with the key after position after and up to upto, at most
-- "most", from the lowest position on or from the highest. It reads segment by
-- segment, until it has enough: on the whole table PostgreSQL might collect all
-- messages of the key and sort them, and would always open every segment. If a shared
-- stream moves to separate tables meanwhile, it is read there: one query sees all of
-- its shared messages, or none.
--
-- The condition compares rows, because with key = the_key the planner may choose the primary key, whose order
-- then fits as well, and scan all messages with other keys. The first condition matches the partial index.
-- Dropped messages are not scanned.
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
	low bigint;
BEGIN
	PERFORM FROM tidewire.stream WHERE id = stream_id AND shared;
	IF FOUND THEN
		low := (SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = stream_id ORDER BY f.floor DESC LIMIT 1);
		RETURN QUERY EXECUTE format($sql$
			SELECT position, key, headers, payload, created_at FROM tidewire.shared_message
			WHERE keyed AND key IS NOT NULL AND stream = $5 AND (key, position) > ($1, $2) AND (key, position) <= ($1, $3)
			ORDER BY key %s, position %s LIMIT $4$sql$, direction, direction)
			USING the_key, greatest(after, low), upto, most, stream_id;
		IF FOUND THEN
			RETURN;
		END IF;
		PERFORM FROM tidewire.stream WHERE id = stream_id AND shared;
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;
	-- Blocks a drop. An old snapshot shows segments that are already gone.
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
