-- packed is an event in the form that readers decode, except the data: one value to send
-- in place of seven, which is most of the cost of reading many events. Where it is NULL
-- the function packs the event from its columns.
--
-- It is: position and time (8 bytes each, as int8send and timestamptz_send give
-- them), flags (1 byte: 1 for JSON, 2 for the form below), the length of the
-- data (4), the lengths of type and id and the number of tags (1 each), type,
-- id, and each tag after its length (2). Instead of all from the lengths of
-- type and id on, pack_event has an array of type, id and tags, as array_send
-- gives it: PostgreSQL makes that quickly.
CREATE FUNCTION tidewire.pack_event(at bigint, created_at timestamptz, is_json boolean, type text, id text, tags text[], data bytea)
RETURNS bytea LANGUAGE sql STABLE AS $$
	SELECT int8send(at) || timestamptz_send(created_at) || CASE WHEN is_json THEN '\x03'::bytea ELSE '\x02'::bytea END
		|| int4send(octet_length(data)) || array_send(ARRAY[type, coalesce(id, '')] || tags)
$$;

-- define_event_reads: for settings and probes see define_event_checks.
--
-- Both readers return the positions that they found, in any order; the events at
-- these positions, each packed and followed by its data, up to the one that
-- fills the page to max_bytes, also in any order; and head, the position of the
-- last event of the store that this query sees, if there may be more to read or
-- with_head is set. If the events are not those of the positions, they were
-- moved (VACUUM FULL, pg_restore), and by_position, which is slower, has to be
-- used.
CREATE FUNCTION tidewire.define_event_reads(store int) RETURNS void LANGUAGE plpgsql AS $define$
DECLARE
	settings text := $set$
		SET plan_cache_mode = force_generic_plan SET jit = off
		SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off $set$;
	-- Most pages are far below max_bytes: then no event is larger than its share,
	-- which is noticed while they are collected. Otherwise they are weighed one
	-- after the other.
	fill text := $sql$
		IF by_position OR gaps THEN
			large := true; -- it may be
			SELECT string_agg(w.packed || w.data, '') INTO page FROM (
				SELECT e.packed, e.data, sum(octet_length(e.packed) + octet_length(e.data))
					OVER (ORDER BY e.position * direction ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
				FROM (
					SELECT x.position, x.data, coalesce(x.packed, tidewire.pack_event(x.position, x.created_at, x.is_json, x.type, x.id, x.tags, x.data)) AS packed
					FROM unnest(positions) AS f (at) CROSS JOIN LATERAL (
						SELECT * FROM tidewire.events_# y WHERE y.position = f.at OFFSET 0
					) AS x
				) AS e
			) AS w WHERE coalesce(w.earlier, 0) < max_bytes;
		ELSE
			share := max_bytes / cardinality(places);
			SELECT string_agg(CASE WHEN octet_length(e.data) <= share
					THEN coalesce(e.packed, tidewire.pack_event(e.position, e.created_at, e.is_json, e.type, e.id, e.tags, e.data)) || e.data END, ''),
				max(octet_length(e.data) + coalesce(octet_length(e.packed), 0)) > share
				INTO page, large
				FROM tidewire.events_# e WHERE e.ctid = ANY (places);
			IF large THEN
				SELECT string_agg(w.packed || w.data, '') INTO page FROM (
					SELECT e.packed, e.data, sum(octet_length(e.packed) + octet_length(e.data))
						OVER (ORDER BY e.position * direction ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
					FROM (
						SELECT x.position, x.data, coalesce(x.packed, tidewire.pack_event(x.position, x.created_at, x.is_json, x.type, x.id, x.tags, x.data)) AS packed
						FROM tidewire.events_# x WHERE x.ctid = ANY (places)
					) AS e
				) AS w WHERE coalesce(w.earlier, 0) < max_bytes;
			END IF;
		END IF; $sql$;
BEGIN
	-- tagged reads the events with one tag, of one type or, with NULL, of any. With
	-- NULL it ignores after and before and reads all events, and only if the tag has
	-- no more than max_rows of them; otherwise positions is NULL.
	EXECUTE replace($sql$
	CREATE FUNCTION tidewire.events_#_tagged(
		after bigint, before bigint, max_rows int, max_bytes bigint, by_position boolean, with_head boolean, driver bigint, type_hash int,
		OUT head bigint, OUT positions bigint[], OUT page bytea
	) LANGUAGE plpgsql STABLE $sql$ || settings || $sql$ AS $f$
	DECLARE
		places tid[];
		gaps boolean; -- some have no place
		share bigint;
		large boolean;
		direction CONSTANT int := 1;
		size bigint;
		held bigint;
	BEGIN
		IF type_hash IS NOT NULL THEN
			SELECT array_agg(f.position), array_agg(f.event), count(*), count(f.event) INTO positions, places, size, held FROM (
				SELECT s.position, s.event FROM tidewire.events_#_tag s
				WHERE s.tag = driver AND s.type = type_hash AND s.position > after AND s.position < before
				ORDER BY s.tag, s.type, s.position LIMIT max_rows
			) AS f;
		ELSE
			SELECT array_agg(f.position), array_agg(f.event), count(*), count(f.event) INTO positions, places, size, held FROM (
				SELECT s.position, s.event FROM tidewire.events_#_tag s
				WHERE s.tag = driver ORDER BY s.tag, s.type, s.position LIMIT max_rows + 1
			) AS f;
			IF size > max_rows THEN
				positions := NULL;
				RETURN;
			END IF;
		END IF;
		gaps := held < size;
		IF places IS NULL THEN
			positions := '{}';
		ELSE $sql$ || fill || $sql$
		END IF;
		IF with_head OR size = max_rows OR large THEN
			head := (SELECT e.position FROM tidewire.events_# e ORDER BY e.position DESC LIMIT 1);
		END IF;
	END
	$f$ $sql$, '#', store::text);

	-- page reads the events that any query matches, by the hashes of the tags: the caller
	-- compares the tags. For a query with items of several tags it may have to read very
	-- many events of which none has all of them. It is given a window, a number of
	-- positions, and searches one window after the other, growing while that is quick,
	-- until the page is full or patience milliseconds have passed. searched is then the
	-- position up to which (backwards: down to which) everything was read.
	EXECUTE replace($sql$
	CREATE FUNCTION tidewire.events_#_page(
		after bigint, before bigint, max_rows int, max_bytes bigint, by_position boolean, backwards boolean, everything boolean, span bigint, patience int,
		drivers bigint[], others text[], signatures bigint[], type_hashes int[], types text[],
		OUT head bigint, OUT positions bigint[], OUT page bytea, OUT searched bigint
	) LANGUAGE plpgsql STABLE $sql$ || settings || $sql$ AS $f$
	DECLARE
		places tid[];
		gaps boolean;
		share bigint;
		large boolean;
		direction CONSTANT int := CASE WHEN backwards THEN -1 ELSE 1 END;
		begun CONSTANT timestamptz := clock_timestamp();
		since timestamptz := begun;
		low bigint := after;
		high bigint := before;
		some_positions bigint[];
		some_places tid[];
	BEGIN
		head := coalesce((SELECT e.position FROM tidewire.events_# e ORDER BY e.position DESC LIMIT 1), 0);
		positions := '{}';
		IF everything THEN
			IF backwards THEN
				SELECT array_agg(f.position), array_agg(f.ctid) INTO positions, places FROM (
					SELECT e.position, e.ctid FROM tidewire.events_# e WHERE e.position > after AND e.position < before ORDER BY e.position DESC LIMIT max_rows) AS f;
			ELSE
				SELECT array_agg(f.position), array_agg(f.ctid) INTO positions, places FROM (
					SELECT e.position, e.ctid FROM tidewire.events_# e WHERE e.position > after AND e.position < before ORDER BY e.position LIMIT max_rows) AS f;
			END IF;
		ELSE
			LOOP
				IF backwards THEN
					low := CASE WHEN span > 0 THEN greatest(after, least(high, head + 1) - 1 - span) ELSE after END;
				ELSE
					high := CASE WHEN span > 0 AND span < before - 1 - low THEN low + span + 1 ELSE before END;
				END IF;
				SELECT array_agg(f.position), array_agg(f.event) INTO some_positions, some_places FROM (
					SELECT DISTINCT ON (hit.position * direction) hit.position, hit.event
					FROM unnest(drivers, others, signatures, type_hashes, types)
						AS p (driver, others, signature, type_hash, type)
					CROSS JOIN LATERAL (
						SELECT p.type_hash AS hash WHERE p.type_hash IS NOT NULL OR p.driver IS NULL
						UNION ALL
						(WITH RECURSIVE of_tag (hash) AS ( -- the types that have the tag, a descent each
							(SELECT s.type FROM tidewire.events_#_tag s WHERE s.tag = p.driver ORDER BY s.tag, s.type LIMIT 1)
							UNION ALL
							SELECT (SELECT s.type FROM tidewire.events_#_tag s WHERE s.tag = p.driver AND s.type > o.hash ORDER BY s.tag, s.type LIMIT 1)
							FROM of_tag o WHERE o.hash IS NOT NULL
						) SELECT o.hash FROM of_tag o WHERE p.type_hash IS NULL AND o.hash IS NOT NULL)
					) AS t
					CROSS JOIN LATERAL (
						SELECT CASE WHEN p.others IS NULL THEN p.driver ELSE (
							SELECT h.hash FROM unnest(p.others::bigint[]) AS h (hash)
							ORDER BY (SELECT count(*) FROM (
								SELECT FROM tidewire.events_#_tag c
								WHERE c.tag = h.hash AND c.type = t.hash AND c.position > low AND c.position < high LIMIT 64) AS few)
							LIMIT 1) END AS hash
						OFFSET 0
					) AS d
					CROSS JOIN LATERAL (
						(SELECT s.position, s.event FROM tidewire.events_#_tag s
						WHERE NOT backwards AND s.tag = d.hash AND s.type = t.hash AND s.position > low AND s.position < high
							AND s.signature & p.signature = p.signature
						ORDER BY s.tag, s.type, s.position LIMIT max_rows)
						UNION ALL
						(SELECT s.position, s.event FROM tidewire.events_#_tag s
						WHERE backwards AND s.tag = d.hash AND s.type = t.hash AND s.position > low AND s.position < high
							AND s.signature & p.signature = p.signature
						ORDER BY s.tag DESC, s.type DESC, s.position DESC LIMIT max_rows)
						UNION ALL
						(SELECT e.position, e.ctid FROM tidewire.events_# e
						WHERE NOT backwards AND p.driver IS NULL AND (e.type, e.position) > (p.type, low) AND (e.type, e.position) < (p.type, high)
						ORDER BY e.type, e.position LIMIT max_rows)
						UNION ALL
						(SELECT e.position, e.ctid FROM tidewire.events_# e
						WHERE backwards AND p.driver IS NULL AND (e.type, e.position) > (p.type, low) AND (e.type, e.position) < (p.type, high)
						ORDER BY e.type DESC, e.position DESC LIMIT max_rows)
					) AS hit
					ORDER BY hit.position * direction LIMIT max_rows - cardinality(positions)
				) AS f;
				positions := positions || some_positions;
				places := places || some_places;
				EXIT WHEN cardinality(positions) = max_rows OR CASE WHEN backwards THEN low <= after ELSE high >= before OR high > head END;
				IF clock_timestamp() >= begun + patience * interval '1 ms' THEN
					searched := CASE WHEN backwards THEN low + 1 ELSE high - 1 END;
					EXIT;
				END IF;
				IF clock_timestamp() < since + interval '5 ms' THEN
					span := span * 16;
				ELSIF clock_timestamp() > since + interval '100 ms' THEN
					span := greatest(span / 2, 1);
				END IF;
				since := clock_timestamp();
				low := CASE WHEN backwards THEN low ELSE high - 1 END;
				high := CASE WHEN backwards THEN low + 1 ELSE high END;
			END LOOP;
		END IF;
		gaps := array_position(places, NULL) IS NOT NULL;
		IF places IS NULL THEN
			positions := '{}';
		ELSE $sql$ || fill || $sql$
		END IF;
	END
	$f$ $sql$, '#', store::text);
END
$define$;
