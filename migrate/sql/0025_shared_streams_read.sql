-- What looks at streams knows of those that share a table.

-- stream_state as before. Of a shared stream nothing was dropped, and nothing is said to
-- be reserved that is not committed.
CREATE OR REPLACE FUNCTION tidewire.stream_state(stream_id int, OUT head bigint, OUT oldest bigint, OUT reserved bigint)
LANGUAGE plpgsql AS $$
DECLARE
	name text := 'stream_' || stream_id;
	back bigint := 1024;
BEGIN
	SELECT tidewire.shared_head(id) INTO head FROM tidewire.stream WHERE id = stream_id AND shared AND partitions = 0;
	IF FOUND THEN
		oldest := 1;
		reserved := head;
		RETURN;
	END IF;
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

-- stream_heads as before. All shared streams take one query. One that gets tables of its
-- own between the two is told by the next look: growth_seq moves with that.
CREATE OR REPLACE FUNCTION tidewire.stream_heads(ids int[], settled bigint[])
RETURNS TABLE (id int, reserved bigint, head bigint)
LANGUAGE plpgsql SET lock_timeout = '100ms' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	positions regclass;
	others int[] := ARRAY(SELECT n FROM generate_subscripts(ids, 1) AS n
		WHERE NOT EXISTS (SELECT FROM tidewire.stream AS s WHERE s.id = ids[n] AND s.shared));
	i int;
BEGIN
	RETURN QUERY
		SELECT s.id, coalesce(h.position, 0), coalesce(h.position, 0) FROM unnest(ids, settled) AS u (stream, seen)
		JOIN tidewire.stream AS s ON s.id = u.stream AND s.shared
		LEFT JOIN LATERAL (
			SELECT m.position FROM tidewire.shared_message AS m WHERE m.stream = s.id ORDER BY m.position DESC LIMIT 1
		) AS h ON true WHERE coalesce(h.position, 0) <> u.seen;
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

-- stream_reserved is a position before which nothing is given out any more. A stream that is
-- moved while a query runs may be shared to that, and not here, or the other way round. LOCK
-- TABLE is as in move_outbox; it also fails if there is no such stream.
CREATE FUNCTION tidewire.stream_reserved(stream_id int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	head bigint;
BEGIN
	SELECT tidewire.shared_head(id) INTO head FROM tidewire.stream WHERE id = stream_id AND shared;
	IF FOUND THEN
		RETURN head;
	END IF;
	IF to_regclass('tidewire.stream_' || stream_id || '_position_seq') IS NULL THEN
		EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS SHARE MODE', 'stream_' || stream_id);
	END IF;
	RETURN coalesce(pg_sequence_last_value(('tidewire.stream_' || stream_id || '_position_seq')::regclass), 0);
EXCEPTION WHEN undefined_table OR internal_error THEN
	RETURN 0; -- dropped
END
$$;

-- commit_offsets as before, by where the stream ends. EXECUTE plans anew each time.
CREATE OR REPLACE FUNCTION tidewire.commit_offsets(ids int[], positions bigint[])
RETURNS TABLE (id int, committed bigint, written boolean) LANGUAGE plpgsql AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		WITH given AS MATERIALIZED (
			SELECT DISTINCT ON (w.id) * FROM (
				SELECT g.id, o.sequence, o.position, u.position AS wanted,
					u.position > o.position AND u.position > CASE WHEN s.shared THEN coalesce((
						SELECT m.position FROM tidewire.shared_message AS m WHERE m.stream = g.stream ORDER BY m.position DESC LIMIT 1
					), 0) ELSE tidewire.stream_reserved(g.stream) END AS ahead
				FROM unnest($1, $2) AS u (id, position)
				JOIN tidewire.stream_group AS g ON g.id = u.id
				JOIN tidewire.stream AS s ON s.id = g.stream
				LEFT JOIN LATERAL (
					SELECT sequence, position FROM tidewire.%1$I WHERE group_id = g.id
					ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
				) AS o ON true
			) AS w ORDER BY w.id, w.ahead, w.wanted DESC
		), added AS (
			INSERT INTO tidewire.%1$I (group_id, sequence, position)
			SELECT g.id, g.sequence, g.wanted FROM given AS g WHERE g.wanted > g.position AND NOT g.ahead
			ORDER BY g.id -- as all do, so that equal rows cannot deadlock
			ON CONFLICT DO NOTHING
		)
		SELECT g.id, CASE WHEN g.ahead THEN -1 WHEN g.position IS NOT NULL THEN greatest(g.wanted, g.position) END,
			coalesce(g.wanted > g.position AND NOT g.ahead, false) FROM given AS g$sql$, in_use)
		USING ids, positions;
END
$$;

-- read_key as before. A shared stream that gets tables of its own meanwhile is read there:
-- one query sees all of its shared messages, or none.
CREATE OR REPLACE FUNCTION tidewire.read_key(
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
	PERFORM FROM tidewire.stream WHERE id = stream_id AND shared;
	IF FOUND THEN
		RETURN QUERY EXECUTE format($sql$
			SELECT position, key, headers, payload, created_at FROM tidewire.shared_message
			WHERE keyed AND key IS NOT NULL AND stream = $5 AND (key, position) > ($1, $2) AND (key, position) <= ($1, $3)
			ORDER BY key %s, position %s LIMIT $4$sql$, direction, direction)
			USING the_key, after, upto, most, stream_id;
		IF FOUND THEN
			RETURN;
		END IF;
		PERFORM FROM tidewire.stream WHERE id = stream_id AND shared;
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;
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

-- seal_segment as before, after giving a stream that has a retention policy tables of its
-- own: these are what is dropped.
CREATE OR REPLACE FUNCTION tidewire.seal_segment(stream_id int) RETURNS bigint LANGUAGE plpgsql AS $$
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
	PERFORM tidewire.own_stream(stream_id);
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

-- ensure_group as before. Of a shared stream the row is what keeps the messages where they are.
CREATE OR REPLACE FUNCTION tidewire.ensure_group(stream_id int, group_name text, start bigint, skip_dropped boolean DEFAULT false)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
	group_id int;
BEGIN
	LOOP
		SELECT id INTO group_id FROM tidewire.stream_group WHERE stream = stream_id AND name = group_name;
		IF FOUND THEN
			RETURN group_id;
		END IF;
		INSERT INTO tidewire.stream_group (stream, name) VALUES (stream_id, group_name)
			ON CONFLICT (stream, name) DO NOTHING RETURNING id INTO group_id;
		IF FOUND THEN
			IF skip_dropped THEN
				PERFORM FROM tidewire.stream WHERE id = stream_id FOR SHARE; -- it does not move, either
				start := greatest(start, (SELECT oldest - 1 FROM tidewire.stream_state(stream_id)));
			END IF;
			EXECUTE format('INSERT INTO tidewire.%I VALUES ($1, 1, $2)', in_use) USING group_id, start;
			RETURN group_id;
		END IF;
	END LOOP;
END
$$;
