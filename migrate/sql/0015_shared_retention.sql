-- shared_bytes returns about how many bytes a message takes in the shared table and its indexes. It
-- does not fetch large payloads.
CREATE FUNCTION tidewire.shared_bytes(key text, headers jsonb, payload bytea) RETURNS int LANGUAGE sql IMMUTABLE AS $$
	SELECT 100 + pg_column_size(payload) + coalesce(pg_column_size(headers), 0) + coalesce(octet_length(key), 0)
$$;

-- oversized returns the newest position of a shared stream that has to be dropped to keep at
-- most that many bytes, or NULL if all can stay. It reads the kept messages, and one more.
CREATE FUNCTION tidewire.oversized(stream_id int, low bigint, bytes bigint) RETURNS bigint
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
	SELECT m.position FROM (
		SELECT m.position, sum(tidewire.shared_bytes(m.key, m.headers, m.payload)) OVER (ORDER BY m.position DESC ROWS UNBOUNDED PRECEDING) AS total
		FROM tidewire.shared_message AS m WHERE m.stream = stream_id AND m.position > low
	) AS m WHERE m.total > bytes ORDER BY m.position DESC LIMIT 1
$$;

-- aged returns a position up to which messages of a shared stream are at least that old. It reads a
-- limited number of messages, from the oldest on.
CREATE FUNCTION tidewire.aged(stream_id int, low bigint, latest timestamptz, most int) RETURNS bigint
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
	SELECT coalesce((
		SELECT m.position - 1 FROM (
			SELECT m.position, m.created_at FROM tidewire.shared_message AS m
			WHERE m.stream = stream_id AND m.position > low ORDER BY m.position LIMIT most
		) AS m WHERE m.created_at > latest ORDER BY m.position LIMIT 1
	), 9223372036854775807)
$$;

-- far_beyond returns whether so many new messages of a shared stream have come that they may take more
-- than an eighth of the bound, if all were as large as the largest of the newest.
CREATE FUNCTION tidewire.far_beyond(stream_id int, messages bigint, bytes bigint) RETURNS boolean
LANGUAGE sql STABLE SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
	SELECT messages * max(tidewire.shared_bytes(m.key, m.headers, m.payload)) * 8 >= bytes FROM (
		SELECT * FROM tidewire.shared_message AS m WHERE m.stream = stream_id ORDER BY m.position DESC LIMIT 16
	) AS m
$$;

-- policy_of returns a policy as text, to compare it with another.
CREATE FUNCTION tidewire.policy_of(r tidewire.retention) RETURNS text LANGUAGE sql STABLE AS $$
	SELECT (r.max_age, r.max_bytes, r.consumed)::text
$$;

-- due_shared checks the shared streams after one in the order of their ids, or the given streams, whose policy has,
-- or does not have, the condition that messages are consumed. It returns the streams from which messages have to be
-- dropped, at most "most" of them: up to which position, how many messages these are, at most depth of each, whether
-- the stream is so large that it should move to separate tables, and by which policy. It reads the oldest message of
-- each stream, and more only where something is due. READ COMMITTED.
--
-- Reading the offsets of groups takes a lock, so streams with that condition are processed
-- separately.
CREATE FUNCTION tidewire.due_shared(if_consumed boolean, after int, among int[], most int, depth int)
RETURNS TABLE (stream int, upto bigint, messages bigint, large boolean, policy text)
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
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
	-- A policy that is being changed is checked in the next round.
	UPDATE tidewire.retention AS r SET sized = t.position
		FROM unnest(fitting, bounds, ends) AS t (stream, bound, position)
		WHERE r.stream = t.stream AND r.max_bytes = t.bound AND r.ctid = ANY (ARRAY(
			SELECT l.ctid FROM tidewire.retention AS l WHERE l.stream = ANY (fitting) FOR UPDATE SKIP LOCKED));
END
$$;

-- drop_shared drops the messages of shared streams up to those positions, which due_shared has
-- returned with the policies, and returns how many of which stream. It leaves out a stream whose
-- row is locked by another session, for example one that moves or drops it, for the next round. It
-- also leaves out a stream whose policy has changed, and keeps messages that a new group, or one
-- that has gone back, has not read. Appends need not wait: in each snapshot a stream ends at its
-- last message, or at its floor, which is the same position. READ COMMITTED.
--
-- A crash of PostgreSQL may undo this, because the commit does not wait for the disk: then
-- the messages exist again, and the floor has its old value. Later commits are lost too,
-- unless this one is durable.
CREATE FUNCTION tidewire.drop_shared(streams int[], uptos bigint[], policies text[]) RETURNS TABLE (stream int, dropped bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off SET enable_bitmapscan = off AS $$
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
	-- From here on no session can change a policy, make a group or move one back, and everything that was committed
	-- before is visible.
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
