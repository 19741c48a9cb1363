-- define_event_checks, define_event_append and define_event_reads make the functions that read and write one store.
-- Each store has separate functions, so that their plans are made once a session, and their settings make sure that
-- these are the same for an empty, a never analysed and a large store: always by index, with nested loops.
--
-- A query is sent as probes. A probe is a type, or none for any type, with the
-- tags of an item: driver is the hash of one of them, NULL for an item without
-- tags; others has the hashes of all, as the text of an array, if there are
-- several; signature has the bits that an event with all of them must have;
-- tags are the tags themselves, as the text of an array.
CREATE FUNCTION tidewire.define_event_checks(store int) RETURNS void LANGUAGE plpgsql AS $define$
DECLARE
	settings text := $set$
		SET plan_cache_mode = force_generic_plan SET jit = off
		SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off $set$;
BEGIN
	-- For an item with several tags the index scan uses the tag with the fewest
	-- events, counted up to 64. The caller gives as driver the one that it
	-- estimates to be that, which is used if it has no more than 32. check runs
	-- with the settings of its caller.
	--
	-- budget bounds what a check under the lock may cost: it gives up on a probe
	-- after that many index rows that do not match, or that many types of a tag
	-- (200 at most), and then returns a position of 0: it is unknown whether
	-- that call conflicts. Without a budget it does not give up.
	EXECUTE replace($sql$
	CREATE FUNCTION tidewire.events_#_check(
		calls int[], afters bigint[], drivers bigint[], others text[], signatures bigint[],
		type_hashes int[], types text[], tags text[], tagless boolean, budget int
	) RETURNS TABLE (call int, at bigint) LANGUAGE plpgsql STABLE AS $f$
	BEGIN
		RETURN QUERY
		SELECT p.call, hit.position
		FROM unnest(calls, afters, drivers, others, signatures, type_hashes, types, tags)
			AS p (call, after, driver, others, signature, type_hash, type, tags)
		CROSS JOIN LATERAL (
			SELECT p.type_hash AS hash, 0::bigint AS n WHERE p.type_hash IS NOT NULL
			UNION ALL
			(WITH RECURSIVE of_tag (hash) AS ( -- the types that have the tag, a descent each
				(SELECT s.type FROM tidewire.events_#_tag s WHERE s.tag = p.driver ORDER BY s.tag, s.type LIMIT 1)
				UNION ALL
				SELECT (SELECT s.type FROM tidewire.events_#_tag s WHERE s.tag = p.driver AND s.type > o.hash ORDER BY s.tag, s.type LIMIT 1)
				FROM of_tag o WHERE o.hash IS NOT NULL
			) SELECT o.hash, row_number() OVER () FROM of_tag o WHERE p.type_hash IS NULL AND o.hash IS NOT NULL
			LIMIT CASE WHEN budget IS NOT NULL THEN least(budget, 200) END)
		) AS t
		CROSS JOIN LATERAL (
			(SELECT CASE WHEN m.matches THEN m.position ELSE 0 END AS position FROM (
				SELECT w.position, w.n, CASE WHEN w.signature & p.signature = p.signature THEN
					(SELECT (p.type IS NULL OR e.type = p.type) AND e.tags @> p.tags::text[]
						FROM tidewire.events_# e WHERE e.position = w.position)
					ELSE false END AS matches
				FROM (
					SELECT s.position, s.signature, row_number() OVER (ORDER BY s.tag, s.type, s.position) AS n
					FROM tidewire.events_#_tag s
					WHERE s.tag = CASE
						WHEN p.others IS NULL THEN p.driver
						WHEN NOT EXISTS (
							SELECT FROM tidewire.events_#_tag c
							WHERE c.tag = p.driver AND c.type = t.hash AND c.position > p.after OFFSET 32) THEN p.driver
						ELSE (
							SELECT h.hash FROM unnest(p.others::bigint[]) AS h (hash)
							ORDER BY (SELECT count(*) FROM (
								SELECT FROM tidewire.events_#_tag c
								WHERE c.tag = h.hash AND c.type = t.hash AND c.position > p.after LIMIT least(64, budget)) AS few)
							LIMIT 1) END
						AND s.type = t.hash AND s.position > p.after
					ORDER BY s.tag, s.type, s.position LIMIT budget
				) AS w OFFSET 0
			) AS m WHERE m.matches OR m.n = budget LIMIT 1)
			UNION ALL
			SELECT 0 WHERE t.n = least(budget, 200) AND budget IS NOT NULL
		) AS hit
		WHERE p.driver IS NOT NULL;
		IF tagless THEN
			RETURN QUERY
			SELECT p.call, hit.position
			FROM unnest(calls, afters, drivers, types) AS p (call, after, driver, type)
			CROSS JOIN LATERAL ( -- by rows: with type = p.type the planner may take the primary key
				SELECT e.type, e.position FROM tidewire.events_# e
				WHERE (e.type, e.position) > (p.type, p.after) ORDER BY e.type, e.position LIMIT 1
			) AS hit
			WHERE p.driver IS NULL AND hit.type = p.type;
			RETURN QUERY
			SELECT p.call, hit.position
			FROM unnest(calls, afters, drivers, types) AS p (call, after, driver, type)
			CROSS JOIN LATERAL (
				SELECT e.position FROM tidewire.events_# e WHERE e.position > p.after ORDER BY e.position LIMIT 1
			) AS hit
			WHERE p.driver IS NULL AND p.type IS NULL;
		END IF;
	END
	$f$ $sql$, '#', store::text);

	-- conflicts returns what check finds: the first conflicting event of each call,
	-- or 0, and the last batch that was visible to it. "No conflict" is valid up to
	-- the end of that batch.
	EXECUTE replace($sql$
	CREATE FUNCTION tidewire.events_#_conflicts(
		p_calls int[], p_afters bigint[], p_drivers bigint[], p_others text[], p_signatures bigint[],
		p_type_hashes int[], p_types text[], p_tags text[], p_tagless boolean, p_budget int,
		OUT last_position bigint, OUT writer bigint, OUT number bigint,
		OUT calls int[], OUT positions bigint[], OUT types text[]
	) LANGUAGE plpgsql STABLE $sql$ || settings || $sql$ AS $f$
	BEGIN
		SELECT b.position, b.writer, b.number INTO last_position, writer, number
			FROM tidewire.events_#_batch b WHERE b.position > 0 ORDER BY b.position DESC LIMIT 1;
		SELECT array_agg(c.call), array_agg(c.at),
			array_agg(coalesce((SELECT e.type FROM tidewire.events_# e WHERE e.position = c.at), ''))
		INTO calls, positions, types
		FROM (
			SELECT k.call, min(k.at) AS at FROM tidewire.events_#_check(
				p_calls, p_afters, p_drivers, p_others, p_signatures, p_type_hashes, p_types, p_tags, p_tagless, p_budget) k
			GROUP BY k.call
		) AS c;
	END
	$f$ $sql$, '#', store::text);
END
$define$;
