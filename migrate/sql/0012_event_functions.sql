-- define_event_functions makes what reads and writes one store. The functions
-- are its own, so that their plans are made once a session, and their settings
-- see to it that these are the same for an empty, a never analysed and a large
-- store: always by index, one nested loop after the other.
--
-- A query travels as probes. A probe is a type, or none for any, with the tags
-- of an item: driver is the hash of one of them, NULL for an item without tags;
-- others has the hashes of all, as the text of an array, where there are
-- several; signature is what an event with all of them has at least; tags are
-- the tags themselves, as the text of an array.
CREATE FUNCTION tidewire.define_event_functions(store int) RETURNS void LANGUAGE plpgsql AS $define$
DECLARE
	settings text := $set$
		SET plan_cache_mode = force_generic_plan SET jit = off
		SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off $set$;
BEGIN
	-- Of several tags the scan of the index goes by the one with the fewest
	-- events, counted up to 64; the caller gives as driver what it thinks that is,
	-- which is taken if it has no more than 32. check has the settings of who
	-- calls it.
	--
	-- budget bounds what a check under the lock may cost: it gives up on a probe
	-- behind so many rows of the index that do not match, or so many types of a
	-- tag (200 at most), and says so by a position of 0: whether that call
	-- conflicts is not known. Without a budget it does not give up.
	EXECUTE replace($sql$
	CREATE OR REPLACE FUNCTION tidewire.events_#_check(
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

	-- conflicts is what check finds, the first event of each call, or 0, and the last
	-- batch that it looked at: what is not found is not there up to the end of it.
	EXECUTE replace($sql$
	CREATE OR REPLACE FUNCTION tidewire.events_#_conflicts(
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

	-- append writes one batch in the caller's transaction. That must be READ
	-- COMMITTED (else TW021): each statement in here sees what was committed before
	-- it began, and all of them begin after the lock was taken.
	--
	-- Event n of the batch gets position head + n. Those of calls that conflict
	-- are left out, and leave gaps. Probes hold a position, after, up to which
	-- their call knows that nothing conflicts; bases name the histories that this
	-- was learnt from, by their last batches. If one is not how the history went
	-- (PostgreSQL failed over and lost something) it fails with TW020. A call of
	-- which the budget has not sufficed is left out as well, with the position 0.
	-- least_after is the least of
	-- these positions: with nothing behind it there is nothing to look for.
	EXECUTE replace($sql$
	CREATE OR REPLACE FUNCTION tidewire.events_#_append(
		my_writer bigint, my_number bigint, bases bigint[], basis_writers bigint[], basis_numbers bigint[],
		ev_types text[], ev_hashes int[], ev_signatures bigint[], ev_json boolean[], ev_ids text[],
		ev_tags text[], ev_data bytea[], ev_calls int[],
		tag_hashes bigint[], tag_events int[], least_after bigint,
		p_calls int[], p_afters bigint[], p_drivers bigint[], p_others text[], p_signatures bigint[],
		p_type_hashes int[], p_types text[], p_tags text[], p_tagless boolean, p_budget int,
		OUT head bigint, OUT calls int[], OUT positions bigint[], OUT types text[], OUT again boolean
	) LANGUAGE plpgsql $sql$ || settings || $sql$ AS $f$
	DECLARE
		now timestamptz;
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
		INSERT INTO tidewire.events_#_batch
			VALUES (head + size, head + 1, my_writer, my_number, now, calls, positions, types);
		PERFORM setval('tidewire.events_#_position_seq', head + size);
		WITH e AS (
			INSERT INTO tidewire.events_# (position, created_at, is_json, type, id, tags, data)
			SELECT head + u.n, now, u.is_json, u.type, u.id, u.tags::text[], u.data
			FROM unnest(ev_types, ev_json, ev_ids, ev_tags, ev_data, ev_calls) WITH ORDINALITY AS u (type, is_json, id, tags, data, call, n)
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

	-- settle sees to it that a batch is never written any more by an attempt that
	-- is under way somewhere, or says what was answered if it was. It leaves a row
	-- without events, at a position below 0, which such an attempt takes for its
	-- own. READ COMMITTED, as append.
	EXECUTE replace($sql$
	CREATE OR REPLACE FUNCTION tidewire.events_#_settle(
		my_writer bigint, my_number bigint,
		OUT head bigint, OUT calls int[], OUT positions bigint[], OUT types text[], OUT again boolean
	) LANGUAGE plpgsql $sql$ || settings || $sql$ AS $f$
	BEGIN
		PERFORM pg_advisory_xact_lock(1953064037, 1073741824 + #);
		SELECT b.first_position - 1, b.conflict_calls, b.conflict_positions, b.conflict_types, b.position > 0
			INTO head, calls, positions, types, again
			FROM tidewire.events_#_batch b WHERE b.writer = my_writer AND b.number = my_number;
		IF again IS NULL THEN
			head := 0;
			again := false;
			INSERT INTO tidewire.events_#_batch (position, first_position, writer, number, created_at)
				SELECT least(0, (SELECT b.position FROM tidewire.events_#_batch b ORDER BY b.position LIMIT 1)) - 1,
					1, my_writer, my_number, clock_timestamp();
		END IF;
	END
	$f$ $sql$, '#', store::text);

	-- forget looks at up to max_rows rows of batches behind after, and deletes
	-- those that nobody can ask for any more: of my_writer those below my_number; of
	-- transactions of callers, which are never tried twice, after five minutes; of
	-- others, whose processes may be gone, after a day. The last row stays: it
	-- names the history that there is. It returns where it has ended, or NULL.
	EXECUTE replace($sql$
	CREATE OR REPLACE FUNCTION tidewire.events_#_forget(after bigint, max_rows int, my_writer bigint, my_number bigint)
	RETURNS bigint LANGUAGE plpgsql $sql$ || settings || $sql$ AS $f$
	DECLARE
		slice bigint[] := ARRAY(
			SELECT b.position FROM tidewire.events_#_batch b
			WHERE b.position > after AND b.position < (SELECT l.position FROM tidewire.events_#_batch l ORDER BY l.position DESC LIMIT 1)
			ORDER BY b.position LIMIT max_rows);
	BEGIN
		DELETE FROM tidewire.events_#_batch b WHERE b.position = ANY (slice) AND (
			b.writer = my_writer AND b.number < my_number
			OR b.number = 0 AND b.created_at < now() - interval '5 minutes'
			OR b.created_at < now() - interval '1 day');
		RETURN slice[cardinality(slice)];
	END
	$f$ $sql$, '#', store::text);

	-- read finds events behind after and before before, by the hashes of their
	-- tags: the caller compares. A page ends with the event that fills it to
	-- max_bytes of data, type and tags, if that is not 0. The last row is no event: its position
	-- is minus that of the last event of the store, as this query sees it, and its
	-- data are the positions of what was found, as array_send gives them. Rows may
	-- come in another order; if they are not those of the first of these positions
	-- somebody has moved the events, and by_position, which is slower, helps.
	EXECUTE replace($sql$
	CREATE OR REPLACE FUNCTION tidewire.events_#_read(
		after bigint, before bigint, max_rows int, max_bytes bigint, backwards boolean, everything boolean, by_position boolean,
		drivers bigint[], others text[], signatures bigint[], type_hashes int[], types text[]
	) RETURNS TABLE (at bigint, created_at timestamptz, is_json boolean, type text, id text, tags text[], data bytea)
	LANGUAGE plpgsql STABLE $sql$ || settings || $sql$ AS $f$
	DECLARE
		found_at bigint[];
		places tid[];
	BEGIN
		IF everything THEN
			found_at := CASE WHEN backwards THEN
				ARRAY(SELECT e.position FROM tidewire.events_# e WHERE e.position > after AND e.position < before ORDER BY e.position DESC LIMIT max_rows)
				ELSE
				ARRAY(SELECT e.position FROM tidewire.events_# e WHERE e.position > after AND e.position < before ORDER BY e.position LIMIT max_rows)
				END;
		ELSE
			SELECT array_agg(f.position), array_agg(f.event) INTO found_at, places FROM (
				SELECT DISTINCT ON (hit.position * CASE WHEN backwards THEN -1 ELSE 1 END) hit.position, hit.event
				FROM unnest(drivers, others, signatures, type_hashes, types)
					AS p (driver, others, signature, type_hash, type)
				CROSS JOIN LATERAL (
					SELECT p.type_hash AS hash WHERE p.type_hash IS NOT NULL OR p.driver IS NULL
					UNION ALL
					(WITH RECURSIVE of_tag (hash) AS (
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
							WHERE c.tag = h.hash AND c.type = t.hash AND c.position > after AND c.position < before LIMIT 64) AS few)
						LIMIT 1) END AS hash
					OFFSET 0
				) AS d
				CROSS JOIN LATERAL (
					(SELECT s.position, s.event FROM tidewire.events_#_tag s
					WHERE NOT backwards AND s.tag = d.hash AND s.type = t.hash AND s.position > after AND s.position < before
						AND s.signature & p.signature = p.signature
					ORDER BY s.tag, s.type, s.position LIMIT max_rows)
					UNION ALL
					(SELECT s.position, s.event FROM tidewire.events_#_tag s
					WHERE backwards AND s.tag = d.hash AND s.type = t.hash AND s.position > after AND s.position < before
						AND s.signature & p.signature = p.signature
					ORDER BY s.tag DESC, s.type DESC, s.position DESC LIMIT max_rows)
					UNION ALL
					(SELECT e.position, e.ctid FROM tidewire.events_# e
					WHERE NOT backwards AND p.driver IS NULL AND (e.type, e.position) > (p.type, after) AND (e.type, e.position) < (p.type, before)
					ORDER BY e.type, e.position LIMIT max_rows)
					UNION ALL
					(SELECT e.position, e.ctid FROM tidewire.events_# e
					WHERE backwards AND p.driver IS NULL AND (e.type, e.position) > (p.type, after) AND (e.type, e.position) < (p.type, before)
					ORDER BY e.type DESC, e.position DESC LIMIT max_rows)
				) AS hit
				ORDER BY hit.position * CASE WHEN backwards THEN -1 ELSE 1 END LIMIT max_rows
			) AS f;
		END IF;
		IF by_position OR places IS NULL OR array_position(places, NULL) IS NOT NULL THEN
			IF max_bytes > 0 THEN
				RETURN QUERY
				SELECT w.position, w.created_at, w.is_json, w.type, w.id, w.tags, w.data FROM (
					SELECT e.*,
						sum(octet_length(e.data) + octet_length(e.type) + octet_length(array_to_string(e.tags, '')))
							OVER (ORDER BY f.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
					FROM unnest(found_at) WITH ORDINALITY AS f (at, n) CROSS JOIN LATERAL (
						SELECT * FROM tidewire.events_# x WHERE x.position = f.at OFFSET 0
					) AS e
				) AS w WHERE coalesce(w.earlier, 0) < max_bytes;
			ELSE
				RETURN QUERY
				SELECT e.* FROM unnest(found_at) AS f (at) CROSS JOIN LATERAL (
					SELECT * FROM tidewire.events_# x WHERE x.position = f.at OFFSET 0
				) AS e;
			END IF;
		ELSIF max_bytes > 0 THEN
			RETURN QUERY
			SELECT w.position, w.created_at, w.is_json, w.type, w.id, w.tags, w.data FROM (
				SELECT e.*,
					sum(octet_length(e.data) + octet_length(e.type) + octet_length(array_to_string(e.tags, '')))
						OVER (ORDER BY e.position * CASE WHEN backwards THEN -1 ELSE 1 END
							ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
				FROM tidewire.events_# e WHERE e.ctid = ANY (places)
			) AS w WHERE coalesce(w.earlier, 0) < max_bytes;
		ELSE
			RETURN QUERY
			SELECT e.* FROM tidewire.events_# e WHERE e.ctid = ANY (places);
		END IF;
		RETURN QUERY
		SELECT -coalesce((SELECT e.position FROM tidewire.events_# e ORDER BY e.position DESC LIMIT 1), 0),
			NULL::timestamptz, NULL::boolean, NULL::text, NULL::text, NULL::text[], array_send(coalesce(found_at, '{}'));
	END
	$f$ $sql$, '#', store::text);
END
$define$;
