-- stream_heads as before. It reads the index of the shared table from the position on that is settled, as
-- append_together does, and looks each stream up by its key, however few of all there are.
CREATE OR REPLACE FUNCTION tidewire.stream_heads(ids int[], settled bigint[])
RETURNS TABLE (id int, reserved bigint, head bigint)
LANGUAGE plpgsql SET lock_timeout = '100ms' SET enable_seqscan = off SET enable_bitmapscan = off
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
			OFFSET 0 -- looks once for each head, not once for each use of it
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

-- commit_offsets as before. Of a shared stream it asks whether anything is at the position or after it,
-- and has to use an index for that.
CREATE OR REPLACE FUNCTION tidewire.commit_offsets(ids int[], positions bigint[])
RETURNS TABLE (id int, committed bigint, written boolean) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		WITH given AS MATERIALIZED (
			SELECT DISTINCT ON (w.id) * FROM (
				SELECT g.id, o.sequence, o.position, u.position AS wanted,
					u.position > o.position AND CASE WHEN s.shared THEN u.position > low.floor AND NOT EXISTS (
						SELECT FROM tidewire.shared_message AS m WHERE m.stream = g.stream AND m.position >= u.position AND m.position > low.floor
					) ELSE u.position > tidewire.stream_reserved(g.stream) END AS ahead
				FROM unnest($1, $2) AS u (id, position)
				JOIN tidewire.stream_group AS g ON g.id = u.id
				JOIN tidewire.stream AS s ON s.id = g.stream
				LEFT JOIN LATERAL (
					SELECT sequence, position FROM tidewire.%1$I WHERE group_id = g.id
					ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
				) AS o ON true
				CROSS JOIN LATERAL (
					SELECT coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = g.stream ORDER BY f.floor DESC LIMIT 1), 0) AS floor
				) AS low
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
