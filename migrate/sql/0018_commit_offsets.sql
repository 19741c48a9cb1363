-- Several positions of one group may be committed together.

-- commit_offsets as before, but a group may be given more than once: the highest
-- of its positions that is not after the last of the stream counts.
CREATE OR REPLACE FUNCTION tidewire.commit_offsets(ids int[], positions bigint[])
RETURNS TABLE (id int, committed bigint, written boolean) LANGUAGE plpgsql AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		WITH given AS MATERIALIZED (
			SELECT DISTINCT ON (w.id) * FROM (
				SELECT g.id, o.sequence, o.position, u.position AS wanted, u.position > o.position
					AND u.position > coalesce(pg_sequence_last_value(to_regclass(format('tidewire.stream_%%s_position_seq', g.stream))), 0) AS ahead
				FROM unnest($1, $2) AS u (id, position)
				JOIN tidewire.stream_group AS g ON g.id = u.id
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

-- commit_owned as before, but a group may be given more than once, as above.
CREATE OR REPLACE FUNCTION tidewire.commit_owned(ids int[], positions bigint[], tokens bigint[])
RETURNS TABLE (id int, committed bigint, written boolean, token bigint) LANGUAGE plpgsql AS $$
DECLARE
	lasting bigint[] := tidewire.hold_ownerships(tokens);
BEGIN
	RETURN QUERY
		WITH given AS (
			SELECT * FROM unnest(ids, positions, tokens) AS t (g, p, o) WHERE o = ANY (lasting)
		)
		SELECT c.id, c.committed, c.written, owner.o
		FROM tidewire.commit_offsets(ARRAY(SELECT g FROM given ORDER BY g, p), ARRAY(SELECT p FROM given ORDER BY g, p)) AS c
		JOIN (SELECT DISTINCT g, o FROM given) AS owner ON owner.g = c.id;
END
$$;
