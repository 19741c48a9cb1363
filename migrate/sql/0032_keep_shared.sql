-- Streams that share a table stay there with a retention policy, too.

-- own_stream as before, with the floor. The row, which it has locked, keeps drop_shared away.
CREATE OR REPLACE FUNCTION tidewire.own_stream(stream_id int) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	s tidewire.stream;
	head bigint;
	low bigint;
BEGIN
	SELECT * INTO s FROM tidewire.stream WHERE id = stream_id FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stream % was dropped', stream_id USING ERRCODE = 'undefined_table';
	ELSIF NOT s.shared THEN
		RETURN;
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	head := tidewire.shared_head(stream_id);
	low := coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = stream_id ORDER BY f.floor DESC LIMIT 1), 0);
	PERFORM tidewire.note_growth();
	PERFORM tidewire.create_stream_table(stream_id, s.keyed);
	PERFORM tidewire.grant_as('tidewire.shared_message', 'tidewire.stream_' || stream_id);
	PERFORM tidewire.grant_as('tidewire.shared_top_seq', 'tidewire.stream_' || stream_id || '_position_seq');
	PERFORM tidewire.grant_as('tidewire.shared_top_seq', 'tidewire.stream_' || stream_id || '_oldest_seq');
	UPDATE tidewire.stream SET shared = false WHERE id = stream_id;
	IF head > 0 THEN
		PERFORM tidewire.make_room(stream_id, 0, head);
		PERFORM setval(('tidewire.stream_' || stream_id || '_position_seq')::regclass, head);
		EXECUTE format('INSERT INTO tidewire.%I (position, created_at, key, headers, payload)
			SELECT position, created_at, key, headers, payload FROM tidewire.shared_message WHERE stream = $1 AND position > $2 ORDER BY position',
			'stream_' || stream_id) USING stream_id, low;
		DELETE FROM tidewire.shared_message WHERE stream = stream_id AND position > low;
		PERFORM tidewire.own_shared_requests(stream_id);
	END IF;
	IF low > 0 THEN
		PERFORM setval(('tidewire.stream_' || stream_id || '_oldest_seq')::regclass, low + 1);
		DELETE FROM tidewire.shared_floor WHERE stream = stream_id;
	END IF;
END
$$;

-- drop_stream_tables as before, with the floor.
CREATE OR REPLACE FUNCTION tidewire.drop_stream_tables(stream_id int) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	PERFORM tidewire.note_growth();
	DELETE FROM tidewire.shared_message WHERE stream = stream_id;
	DELETE FROM tidewire.shared_floor WHERE stream = stream_id;
	PERFORM tidewire.drop_shared_requests(stream_id);
	EXECUTE format('DROP TABLE IF EXISTS tidewire.%I', 'stream_' || stream_id);
	DELETE FROM tidewire.segment WHERE stream = stream_id;
	DELETE FROM tidewire.producer_window WHERE stream = stream_id;
	IF FOUND THEN
		EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I, tidewire.%I', 'producer_' || stream_id || '_0',
			'producer_' || stream_id || '_1', 'producer_' || stream_id || '_floor');
	END IF;
END
$$;

-- seal_segment as before. A shared stream stays where it is, and has no segments.
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

-- sized is the end of a shared stream when its size was last found to be within max_bytes: it is
-- reckoned anew only when an eighth has come since, or the policy is another one. That
-- no queue's stream gets a policy need not be checked for that.
ALTER TABLE tidewire.retention ADD COLUMN sized bigint;
DROP TRIGGER refuse_queue ON tidewire.retention;
CREATE TRIGGER refuse_queue BEFORE INSERT OR UPDATE OF stream, max_age, max_bytes, consumed ON tidewire.retention
	FOR EACH ROW EXECUTE FUNCTION tidewire.refuse_queue_retention();

-- set_retention as before. It waits for a drop_shared under way, and one after it drops nothing that
-- was found by the policy before.
CREATE OR REPLACE FUNCTION tidewire.set_retention(stream_name text, age interval, bytes bigint, when_consumed boolean)
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

-- shared_bytes is about what a message takes in the shared table and its indexes. It fetches no large
-- payload.
CREATE FUNCTION tidewire.shared_bytes(key text, headers jsonb, payload bytea) RETURNS int LANGUAGE sql IMMUTABLE AS $$
	SELECT 100 + pg_column_size(payload) + coalesce(pg_column_size(headers), 0) + coalesce(octet_length(key), 0)
$$;

-- oversized returns the newest position of a shared stream that is dropped if at most that many
-- bytes are kept, or NULL if all can stay. It looks at what is kept, and one message more.
CREATE FUNCTION tidewire.oversized(stream_id int, low bigint, bytes bigint) RETURNS bigint
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
	SELECT m.position FROM (
		SELECT m.position, sum(tidewire.shared_bytes(m.key, m.headers, m.payload)) OVER (ORDER BY m.position DESC ROWS UNBOUNDED PRECEDING) AS total
		FROM tidewire.shared_message AS m WHERE m.stream = stream_id AND m.position > low
	) AS m WHERE m.total > bytes ORDER BY m.position DESC LIMIT 1
$$;

-- aged returns a position up to which messages of a shared stream are as old as that, or older. It looks
-- at so many, from the oldest on.
CREATE FUNCTION tidewire.aged(stream_id int, low bigint, latest timestamptz, most int) RETURNS bigint
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
	SELECT coalesce((
		SELECT m.position - 1 FROM (
			SELECT m.position, m.created_at FROM tidewire.shared_message AS m
			WHERE m.stream = stream_id AND m.position > low ORDER BY m.position LIMIT most
		) AS m WHERE m.created_at > latest ORDER BY m.position LIMIT 1
	), 9223372036854775807)
$$;

-- far_beyond tells whether so many messages of a shared stream have come that they may take more than an
-- eighth of the bound: if all were as large as the largest of the newest.
CREATE FUNCTION tidewire.far_beyond(stream_id int, messages bigint, bytes bigint) RETURNS boolean
LANGUAGE sql STABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
	SELECT messages * max(tidewire.shared_bytes(m.key, m.headers, m.payload)) * 8 >= bytes FROM (
		SELECT * FROM tidewire.shared_message AS m WHERE m.stream = stream_id ORDER BY m.position DESC LIMIT 16
	) AS m
$$;

-- policy_of tells one policy from another one, as text.
CREATE FUNCTION tidewire.policy_of(r tidewire.retention) RETURNS text LANGUAGE sql STABLE AS $$
	SELECT (r.max_age, r.max_bytes, r.consumed)::text
$$;

-- due_shared looks at the shared streams after one in the order of their numbers, or at those
-- given, whose policy has the condition that messages are consumed, or has not. It returns those
-- from which messages are to be dropped, most at most: up to which position, how many these
-- are, at most depth of each, whether the stream is so large that it should have
-- tables of its own, and by which policy. It looks at the oldest message of each, and goes on to look only where that
-- is due. READ COMMITTED.
--
-- The offsets of groups have a lock, so streams with that condition are apart from the others.
CREATE FUNCTION tidewire.due_shared(if_consumed boolean, after int, among int[], most int, depth int)
RETURNS TABLE (stream int, upto bigint, messages bigint, large boolean, policy text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
	at timestamptz := clock_timestamp();
	segment CONSTANT bigint := 128 * 1024 * 1024;
	ids int[];
	read_by_all bigint[];
	one record;
	due_upto bigint;
	fitting int[];
	bounds bigint[];
	ends bigint[];
BEGIN
	IF NOT tidewire.hold_retention() THEN
		RETURN;
	END IF;
	ids := ARRAY(SELECT r.stream FROM tidewire.retention AS r
		WHERE r.consumed = if_consumed AND r.stream > after AND (among IS NULL OR r.stream = ANY (among)) ORDER BY r.stream);
	IF if_consumed THEN
		SELECT array_agg(c.stream), array_agg(c.position) INTO ids, read_by_all FROM (
			SELECT g.stream, min(coalesce(o.committed, 0)) AS position
			FROM tidewire.read_offsets(ARRAY(SELECT g.id FROM tidewire.stream_group AS g WHERE g.stream = ANY (ids))) AS o
			JOIN tidewire.stream_group AS g ON g.id = o.id GROUP BY g.stream ORDER BY g.stream
		) AS c;
	END IF;
	FOR one IN
		SELECT r.*, tidewire.policy_of(r) AS policy, t.position AS read_by_all, low.position AS low, oldest.created_at, newest.position AS newest, grown.far
		FROM unnest(ids, read_by_all) WITH ORDINALITY AS t (stream, position, n)
		JOIN tidewire.retention AS r ON r.stream = t.stream
		JOIN tidewire.stream AS s ON s.id = t.stream AND s.shared
		CROSS JOIN LATERAL (
			SELECT coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = t.stream ORDER BY f.floor DESC LIMIT 1), 0) AS position
		) AS low
		CROSS JOIN LATERAL (
			SELECT m.position, m.created_at FROM tidewire.shared_message AS m
			WHERE m.stream = t.stream AND m.position > low.position ORDER BY m.position LIMIT 1
		) AS oldest
		LEFT JOIN LATERAL (
			SELECT m.position FROM tidewire.shared_message AS m
			WHERE m.stream = t.stream AND r.max_bytes IS NOT NULL ORDER BY m.position DESC LIMIT 1
		) AS newest ON true
		CROSS JOIN LATERAL (
			SELECT coalesce(newest.position > r.sized AND ((newest.position - r.sized) * 8 >= r.sized - low.position
				OR tidewire.far_beyond(t.stream, newest.position - r.sized, r.max_bytes)), r.max_bytes IS NOT NULL) AS far
		) AS grown
		WHERE (t.position < oldest.position) IS NOT TRUE
			AND (r.max_age IS NULL AND r.max_bytes IS NULL OR oldest.created_at <= at - r.max_age OR grown.far)
		ORDER BY t.n
	LOOP
		due_upto := CASE WHEN one.created_at <= at - one.max_age THEN tidewire.aged(one.stream, one.low, at - one.max_age, depth) END;
		large := false;
		IF one.far THEN
			upto := tidewire.oversized(one.stream, one.low, one.max_bytes);
			large := one.max_bytes > segment AND tidewire.oversized(one.stream, one.low, segment) IS NOT NULL;
			IF upto IS NULL THEN
				fitting := fitting || one.stream;
				bounds := bounds || one.max_bytes;
				ends := ends || one.newest;
			END IF;
			due_upto := greatest(due_upto, upto);
		ELSIF one.max_age IS NULL AND one.max_bytes IS NULL THEN
			due_upto := one.read_by_all;
		END IF;
		IF due_upto > one.read_by_all THEN
			due_upto := one.read_by_all;
		END IF;
		SELECT max(w.position), count(*) INTO upto, messages FROM (
			SELECT m.position FROM tidewire.shared_message AS m
			WHERE m.stream = one.stream AND m.position > one.low AND m.position <= due_upto ORDER BY m.position LIMIT depth
		) AS w;
		IF messages > 0 OR large THEN
			stream := one.stream;
			policy := one.policy;
			RETURN NEXT;
			most := most - 1;
			EXIT WHEN most = 0;
		END IF;
	END LOOP;
	-- A policy that is being changed is looked at in the next round.
	UPDATE tidewire.retention AS r SET sized = t.position
		FROM unnest(fitting, bounds, ends) AS t (stream, bound, position)
		WHERE r.stream = t.stream AND r.max_bytes = t.bound AND r.ctid = ANY (ARRAY(
			SELECT l.ctid FROM tidewire.retention AS l WHERE l.stream = ANY (fitting) FOR UPDATE SKIP LOCKED));
END
$$;

-- drop_shared drops the messages of shared streams up to those positions, which due_shared has
-- told with their policies, and returns how many of which. A stream whose row somebody else has, as
-- one who moves or drops it, is left for the next round. So is one whose policy is another by now,
-- and a group that was made, or has gone back, keeps what it has not read. Appends need
-- not wait: to each snapshot a stream ends at its last message, or at its floor, which
-- is the same position. READ COMMITTED.
--
-- A crash of PostgreSQL may undo this, for the commit does not wait for the disk: messages
-- are there again, and the floor is where it was. What was committed after it was, is not
-- there either, or is durable with it.
CREATE FUNCTION tidewire.drop_shared(streams int[], uptos bigint[], policies text[]) RETURNS TABLE (stream int, dropped bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
	locked int[];
	consumed int[];
	groups int[];
	read_streams int[];
	read_uptos bigint[];
BEGIN
	IF NOT tidewire.hold_retention() THEN
		RETURN;
	END IF;
	PERFORM set_config('synchronous_commit', 'off', true);
	locked := ARRAY(SELECT s.id FROM tidewire.stream AS s
		WHERE s.id = ANY (streams) AND s.shared ORDER BY s.id FOR NO KEY UPDATE SKIP LOCKED);
	-- From here on nobody changes a policy, makes a group or moves one back, and what was committed before is seen.
	consumed := ARRAY(SELECT r.stream FROM tidewire.retention AS r WHERE r.stream = ANY (locked) AND r.consumed);
	IF cardinality(consumed) > 0 THEN
		groups := ARRAY(SELECT g.id FROM tidewire.stream_group AS g WHERE g.stream = ANY (consumed));
		SELECT array_agg(c.stream), array_agg(c.position) INTO read_streams, read_uptos FROM (
			SELECT g.stream, min(coalesce(o.committed, 0)) AS position
			FROM tidewire.read_offsets(groups) AS o JOIN tidewire.stream_group AS g ON g.id = o.id GROUP BY g.stream
		) AS c;
	END IF;
	RETURN QUERY
		WITH due AS MATERIALIZED (
			SELECT t.stream, CASE WHEN r.consumed THEN least(t.upto, coalesce(c.position, 0)) ELSE t.upto END AS upto, (
				SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = t.stream ORDER BY f.floor DESC LIMIT 1
			) AS floor
			FROM unnest(streams, uptos, policies) AS t (stream, upto, policy)
			JOIN tidewire.retention AS r ON r.stream = t.stream AND tidewire.policy_of(r) = t.policy
			LEFT JOIN unnest(read_streams, read_uptos) AS c (stream, position) ON c.stream = t.stream
			WHERE t.stream = ANY (locked)
		), gone AS (
			DELETE FROM tidewire.shared_message WHERE ctid = ANY (ARRAY(
				SELECT m.ctid FROM due AS d CROSS JOIN LATERAL (
					SELECT m.ctid FROM tidewire.shared_message AS m
					WHERE m.stream = d.stream AND m.position > coalesce(d.floor, 0) AND m.position <= d.upto ORDER BY m.position
				) AS m
			)) RETURNING stream, position
		), raised AS (
			INSERT INTO tidewire.shared_floor (stream, floor) SELECT g.stream, max(g.position) FROM gone AS g GROUP BY g.stream
		), replaced AS (
			DELETE FROM tidewire.shared_floor AS f USING due AS d
			WHERE f.stream = d.stream AND f.floor = d.floor AND d.stream IN (SELECT g.stream FROM gone AS g)
		)
		SELECT g.stream, count(*) FROM gone AS g GROUP BY g.stream;
END
$$;

-- expired as before. A segment that was begun before the policy, or in which a stream got tables of
-- its own, may be larger than max_bytes: it stays until half of that has come after it.
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
	FOR s IN SELECT * FROM tidewire.segment WHERE stream = stream_id AND last <= settled ORDER BY last LOOP
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

-- seek_offset as before. It waits for a drop_shared under way, and one after it sees the offset.
CREATE OR REPLACE FUNCTION tidewire.seek_offset(group_id int, to_position bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	in_use text;
	last_sequence bigint;
BEGIN
	PERFORM FROM tidewire.stream WHERE id = (SELECT stream FROM tidewire.stream_group WHERE id = group_id) FOR SHARE;
	in_use := tidewire.hold_offsets();
	PERFORM FROM tidewire.stream_group WHERE id = group_id;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	EXECUTE format('SELECT max(sequence) FROM tidewire.%I WHERE group_id = $1', in_use)
		INTO last_sequence USING group_id;
	EXECUTE format('INSERT INTO tidewire.%I VALUES ($1, $2, $3) ON CONFLICT DO NOTHING', in_use)
		USING group_id, coalesce(last_sequence, 0) + 1, to_position;
	RETURN true;
END
$$;
