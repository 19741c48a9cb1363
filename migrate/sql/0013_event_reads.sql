-- Event stores: reads as one value a page, appends as a producer, and snapshots
-- of projections. Programs of the version before cannot use them any more.

-- packed is an event as readers decode it, all but the data: one value to send
-- in place of seven, which is most of what a read of many events costs. NULL in
-- events that were stored before this; the function packs those as they are.
--
-- It is: position and time (8 bytes each, as int8send and timestamptz_send give
-- them), flags (1 byte: 1 for JSON, 2 for the form below), the length of the
-- data (4), the lengths of type and id and the number of tags (1 each), type,
-- id, and each tag behind its length (2). Instead of all from the lengths of
-- type and id on, pack_event has an array of type, id and tags, as array_send
-- gives it: PostgreSQL makes that quickly.
CREATE FUNCTION tidewire.pack_event(at bigint, created_at timestamptz, is_json boolean, type text, id text, tags text[], data bytea)
RETURNS bytea LANGUAGE sql STABLE AS $$
	SELECT int8send(at) || timestamptz_send(created_at) || CASE WHEN is_json THEN '\x03'::bytea ELSE '\x02'::bytea END
		|| int4send(octet_length(data)) || array_send(ARRAY[type, coalesce(id, '')] || tags)
$$;

-- extend_event_store adds the column to a store, which rewrites nothing, and
-- makes what reads it, and its append. For settings and probes see
-- define_event_functions.
--
-- Both readers return the positions that they found, in any order; the events
-- at these positions, each packed and followed by its data, up to the one that
-- fills the page to max_bytes, also in any order; and head, the position of the
-- last event of the store as this query sees it, if there may be more to read or
-- with_head says so. If the events are not those of the positions somebody has
-- moved them (VACUUM FULL, pg_restore), and by_position, which is slower, helps.
CREATE FUNCTION tidewire.extend_event_store(store int) RETURNS void LANGUAGE plpgsql AS $define$
DECLARE
	made regprocedure;
	settings text := $set$
		SET plan_cache_mode = force_generic_plan SET jit = off
		SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off $set$;
	-- Most pages are far from max_bytes: no event is larger than its share, which
	-- is seen while they are collected. Else they are weighed one after the other.
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
	EXECUTE format('ALTER TABLE tidewire.%I ADD COLUMN packed bytea', 'events_' || store);
	FOR made IN SELECT oid FROM pg_proc
		WHERE pronamespace = 'tidewire'::regnamespace AND proname IN ('events_' || store || '_read', 'events_' || store || '_append')
	LOOP
		EXECUTE format('DROP FUNCTION %s', made);
	END LOOP;

	-- tagged reads the events with one tag, of one type or, with NULL, of any. In
	-- the second case it reads all there is, whatever after and before are, and
	-- only a tag that has no more than max_rows events; for another one positions is
	-- NULL.
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

	-- page reads what any query matches, by the hashes of the tags: the caller
	-- compares. A query with items of several tags may have to look at very many
	-- events of which none has all of them. It is given a window, a number of
	-- positions, and looked up in one window after the other, growing while that is
	-- quick, until the page is full or patience milliseconds have passed. searched is then
	-- the position up to which, with backwards down to which, everything was looked
	-- at.
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

	-- append as define_event_functions has it, and with the events packed, but for
	-- position and time, and the requests of producers: n is that of call
	-- r_calls[n], whose first event is event r_firsts[n] of the batch.
	EXECUTE replace($sql$
	CREATE FUNCTION tidewire.events_#_append(
		my_writer bigint, my_number bigint, bases bigint[], basis_writers bigint[], basis_numbers bigint[],
		ev_types text[], ev_hashes int[], ev_signatures bigint[], ev_json boolean[], ev_ids text[],
		ev_tags text[], ev_data bytea[], ev_packed bytea[], ev_calls int[],
		tag_hashes bigint[], tag_events int[], least_after bigint,
		p_calls int[], p_afters bigint[], p_drivers bigint[], p_others text[], p_signatures bigint[],
		p_type_hashes int[], p_types text[], p_tags text[], p_tagless boolean, p_budget int,
		r_producers text[], r_sequences bigint[], r_calls int[], r_firsts int[],
		OUT head bigint, OUT calls int[], OUT positions bigint[], OUT types text[], OUT again boolean
	) LANGUAGE plpgsql $sql$ || settings || $sql$ AS $f$
	DECLARE
		now timestamptz;
		sent_now bytea;
		places tid[];
		size int := cardinality(ev_types);
	BEGIN
		IF current_setting('transaction_isolation') <> 'read committed' THEN
			RAISE EXCEPTION 'transaction is %, not read committed', current_setting('transaction_isolation') USING ERRCODE = 'TW021';
		END IF;
		PERFORM pg_advisory_xact_lock(1953064037, 1073741824 + #);
		SELECT b.first_position - 1, b.conflict_calls, b.conflict_positions, b.conflict_types, true
			INTO head, calls, positions, types, again
			FROM tidewire.events_#_batch b WHERE b.writer = my_writer AND b.number = my_number;
		IF again THEN
			RETURN;
		END IF;
		again := false;
		IF EXISTS (
			SELECT FROM unnest(bases, basis_writers, basis_numbers) AS u (position, writer, number)
			WHERE NOT EXISTS (
				SELECT FROM tidewire.events_#_batch b
				WHERE b.position = u.position AND b.writer = u.writer AND b.number = u.number OFFSET 0)
		) THEN
			RAISE EXCEPTION 'a batch of % does not end there', bases USING ERRCODE = 'TW020';
		END IF;
		head := coalesce(pg_sequence_last_value('tidewire.events_#_position_seq'), 0);
		IF least_after < head THEN
			SELECT array_agg(c.call), array_agg(c.at),
				array_agg(coalesce((SELECT e.type FROM tidewire.events_# e WHERE e.position = c.at), ''))
			INTO calls, positions, types
			FROM (
				SELECT k.call, min(k.at) AS at FROM tidewire.events_#_check(
					p_calls, p_afters, p_drivers, p_others, p_signatures, p_type_hashes, p_types, p_tags, p_tagless, p_budget) k
				GROUP BY k.call
			) AS c;
			IF calls IS NOT NULL AND NOT EXISTS (SELECT FROM unnest(ev_calls) AS u (call) WHERE u.call <> ALL (calls)) THEN
				RETURN;
			END IF;
		END IF;
		IF size = 0 THEN
			RETURN;
		END IF;
		now := clock_timestamp(); -- under the lock: times have the order of positions
		sent_now := timestamptz_send(now);
		IF cardinality(r_producers) > 0 THEN
			PERFORM tidewire.record_event_requests(1073741824 + #, head, calls, r_producers, r_sequences, r_calls, r_firsts);
		END IF;
		INSERT INTO tidewire.events_#_batch
			VALUES (head + size, head + 1, my_writer, my_number, now, calls, positions, types);
		PERFORM setval('tidewire.events_#_position_seq', head + size);
		WITH e AS (
			INSERT INTO tidewire.events_# (position, created_at, is_json, type, id, tags, data, packed)
			SELECT head + u.n, now, u.is_json, u.type, u.id, u.tags::text[], u.data, int8send(head + u.n) || sent_now || u.packed
			FROM unnest(ev_types, ev_json, ev_ids, ev_tags, ev_data, ev_packed, ev_calls)
				WITH ORDINALITY AS u (type, is_json, id, tags, data, packed, call, n)
			WHERE calls IS NULL OR u.call <> ALL (calls)
			RETURNING position, ctid
		) SELECT array_agg(e.ctid ORDER BY e.position) INTO places FROM e;
		IF calls IS NOT NULL THEN
			places := NULL; -- some are missing: readers go by position
		END IF;
		INSERT INTO tidewire.events_#_tag (tag, position, signature, type, event)
			SELECT u.tag, head + u.event, ev_signatures[u.event], ev_hashes[u.event], places[u.event]
			FROM unnest(tag_hashes, tag_events) AS u (tag, event)
			WHERE calls IS NULL OR ev_calls[u.event] <> ALL (calls);
	END
	$f$ $sql$, '#', store::text);
END
$define$;

-- record_event_requests records the requests of a batch that begins behind head,
-- but for those of calls that conflict, in the append's own transaction. A
-- store's requests are kept as those of a stream, under the number of its lock,
-- and found and given up by the same functions. It fails as record_requests does.
CREATE FUNCTION tidewire.record_event_requests(
	lock int, head bigint, conflicts int[], producers text[], sequences bigint[], calls int[], firsts int[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	in_use int := (SELECT current FROM tidewire.producer_window WHERE stream = lock);
	missing bigint;
BEGIN
	IF in_use IS NULL THEN
		PERFORM tidewire.open_producers(lock);
		in_use := 0;
	END IF;
	EXECUTE format($sql$
		WITH wanted AS MATERIALIZED (
			SELECT p, s, $1 + f AS at FROM unnest($2, $3, $4, $5) AS t (p, s, c, f) WHERE $6 IS NULL OR c <> ALL ($6)
		), recorded AS (
			INSERT INTO tidewire.%I (producer, sequence, position)
			SELECT p, s, at FROM wanted
			WHERE (SELECT true FROM tidewire.%I AS o WHERE o.producer = p AND o.sequence = s) IS NULL
				AND (s <= (SELECT f.sequence FROM tidewire.%I AS f WHERE f.producer = p)) IS NOT TRUE
			RETURNING 1
		)
		SELECT (SELECT count(*) FROM wanted) - (SELECT count(*) FROM recorded)$sql$,
		'producer_' || lock || '_' || in_use, 'producer_' || lock || '_' || 1 - in_use, 'producer_' || lock || '_floor')
		INTO missing USING head, producers, sequences, calls, firsts, conflicts;
	IF missing > 0 THEN
		RAISE EXCEPTION 'some requests of the batch are recorded already, or too old' USING ERRCODE = 'TW005';
	END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION tidewire.record_event_requests(int, bigint, int[], text[], bigint[], int[], int[]) FROM PUBLIC;

-- Snapshots of projections. position is that up to which the state has taken all
-- events; it is not the last event that the projection chooses, but how far it
-- has looked. fingerprint is that of the projector's name, version and query, and checksum
-- that of the row: position, fingerprint and state.
--
-- One row each, updated when its projection saves, which is seldom.
CREATE TABLE tidewire.event_snapshot (
	store int NOT NULL REFERENCES tidewire.event_store ON DELETE CASCADE,
	name text COLLATE "C" NOT NULL,
	position bigint NOT NULL CHECK (position > 0),
	fingerprint bytea NOT NULL,
	checksum bytea NOT NULL,
	state bytea NOT NULL,
	saved_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (store, name)
);

-- ensure_event_store as before, with what is new.
CREATE OR REPLACE FUNCTION tidewire.ensure_event_store(store_name text)
RETURNS tidewire.event_store LANGUAGE plpgsql AS $$
DECLARE
	found_or_made tidewire.event_store;
BEGIN
	LOOP
		SELECT * INTO found_or_made FROM tidewire.event_store WHERE name = store_name;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
		INSERT INTO tidewire.event_store (name) VALUES (store_name)
			ON CONFLICT (name) DO NOTHING RETURNING * INTO found_or_made;
		IF FOUND THEN
			PERFORM tidewire.create_event_tables(found_or_made.id);
			PERFORM tidewire.define_event_functions(found_or_made.id);
			PERFORM tidewire.extend_event_store(found_or_made.id);
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;

-- drop_event_store as before, with the requests of its producers.
CREATE OR REPLACE FUNCTION tidewire.drop_event_store(store_name text)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
	store int;
	lock int;
	made regprocedure;
BEGIN
	DELETE FROM tidewire.event_store WHERE name = store_name RETURNING id INTO store;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	lock := 1073741824 + store;
	PERFORM pg_advisory_xact_lock(1953064037, lock);
	FOR made IN SELECT oid FROM pg_proc
		WHERE pronamespace = 'tidewire'::regnamespace AND proname LIKE 'events\_' || store || '\_%'
	LOOP
		EXECUTE format('DROP FUNCTION %s', made);
	END LOOP;
	EXECUTE replace('DROP TABLE tidewire.events_#, tidewire.events_#_tag, tidewire.events_#_batch', '#', store::text);
	DELETE FROM tidewire.producer_window WHERE stream = lock;
	IF FOUND THEN
		EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I, tidewire.%I',
			'producer_' || lock || '_0', 'producer_' || lock || '_1', 'producer_' || lock || '_floor');
	END IF;
	RETURN true;
END
$$;

SELECT tidewire.extend_event_store(id) FROM tidewire.event_store;
