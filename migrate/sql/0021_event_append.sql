-- define_event_append: see define_event_checks.
CREATE FUNCTION tidewire.define_event_append(store int) RETURNS void LANGUAGE plpgsql AS $define$
DECLARE
	settings text := $set$
		SET plan_cache_mode = force_generic_plan SET jit = off
		SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off $set$;
BEGIN
	-- lost_since returns the position of the last event before after, if events up to after are lost: that is, if the
	-- store does not reach after, or another history began after it, before the position upto, and there is no event in
	-- between. Otherwise, and always on a standby, which may lag, it returns NULL.
	EXECUTE replace($sql$
	CREATE FUNCTION tidewire.events_#_lost_since(after bigint, upto bigint) RETURNS bigint LANGUAGE plpgsql $sql$ || settings || $sql$ AS $f$
	DECLARE
		base bigint;
	BEGIN
		IF after = 0 OR pg_is_in_recovery() THEN
			RETURN NULL;
		END IF;
		IF after <= upto THEN
			PERFORM tidewire.history_base(); -- begins a history if necessary
			base := (SELECT min(b) FROM tidewire.bases() AS b WHERE b > after);
			IF base IS NULL OR EXISTS (SELECT FROM tidewire.events_# AS e WHERE e.position >= after AND e.position <= base) THEN
				RETURN NULL;
			END IF;
		END IF;
		RETURN coalesce((SELECT e.position FROM tidewire.events_# AS e WHERE e.position < after ORDER BY e.position DESC LIMIT 1), 0);
	END
	$f$ $sql$, '#', store::text);

	-- append writes one batch in the caller's transaction. That must be READ
	-- COMMITTED (else TW021): each statement in here sees everything that was
	-- committed before it began, and all of them begin after the lock was taken.
	--
	-- Event n of the batch gets position head + n; ev_packed has all of it except position and time. Events of calls that
	-- conflict are left out, and leave gaps. Probes hold a position, after, up to which their call knows that nothing
	-- conflicts; bases identify the histories from which it knows that, by their last batches. If one of them is not part of
	-- the history (PostgreSQL failed over and lost something), append fails with TW020. A call for which the budget was not
	-- enough is left out as well, with the position 0. least_after is the least of these positions: if there are no events
	-- after it, nothing has to be checked.
	--
	-- c_afters are the positions in the conditions of calls, in ascending order. A call whose position is of a
	-- history that was lost is left out, with -1 minus the last position that is not lost.
	--
	-- r_clients are the clients of requests: request n is that of call r_calls[n], whose first event is event r_firsts[n]
	-- of the batch.
	EXECUTE replace($sql$
	CREATE FUNCTION tidewire.events_#_append(
		my_writer bigint, my_number bigint, bases bigint[], basis_writers bigint[], basis_numbers bigint[],
		ev_types text[], ev_hashes int[], ev_signatures bigint[], ev_json boolean[], ev_ids text[],
		ev_tags text[], ev_data bytea[], ev_packed bytea[], ev_calls int[],
		tag_hashes bigint[], tag_events int[], least_after bigint,
		p_calls int[], p_afters bigint[], p_drivers bigint[], p_others text[], p_signatures bigint[],
		p_type_hashes int[], p_types text[], p_tags text[], p_tagless boolean, p_budget int,
		r_clients text[], r_sequences bigint[], r_calls int[], r_firsts int[],
		c_calls int[], c_afters bigint[], c_least bigint, c_most bigint,
		OUT head bigint, OUT calls int[], OUT positions bigint[], OUT types text[], OUT again boolean
	) LANGUAGE plpgsql $sql$ || settings || $sql$ AS $f$
	DECLARE
		now timestamptz;
		sent_now bytea;
		places tid[];
		size int := cardinality(ev_types);
		base bigint := tidewire.history_base();
		lost_calls int[];
		lost_positions bigint[];
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
		IF c_most > head OR c_least < base THEN
			SELECT array_agg(l.call), array_agg(-1 - l.last) INTO lost_calls, lost_positions FROM (
				SELECT u.call, tidewire.events_#_lost_since(u.after, head) AS last FROM unnest(c_calls, c_afters) AS u (call, after)
			) AS l WHERE l.last IS NOT NULL;
		END IF;
		head := greatest(head, base);
		IF least_after < head THEN
			SELECT array_agg(c.call), array_agg(c.at),
				array_agg(coalesce((SELECT e.type FROM tidewire.events_# e WHERE e.position = c.at), ''))
			INTO calls, positions, types
			FROM (
				SELECT k.call, min(k.at) AS at FROM tidewire.events_#_check(
					p_calls, p_afters, p_drivers, p_others, p_signatures, p_type_hashes, p_types, p_tags, p_tagless, p_budget) k
				GROUP BY k.call
			) AS c WHERE lost_calls IS NULL OR c.call <> ALL (lost_calls);
		END IF;
		IF lost_calls IS NOT NULL THEN
			calls := calls || lost_calls;
			positions := positions || lost_positions;
			types := types || array_fill(''::text, ARRAY[cardinality(lost_calls)]);
		END IF;
		IF calls IS NOT NULL THEN
			IF NOT EXISTS (SELECT FROM unnest(ev_calls) AS u (call) WHERE u.call <> ALL (calls)) THEN
				RETURN;
			END IF;
		END IF;
		IF size = 0 THEN
			RETURN;
		END IF;
		now := clock_timestamp(); -- under the lock, so that times have the order of positions
		sent_now := timestamptz_send(now);
		IF cardinality(r_clients) > 0 THEN
			PERFORM tidewire.record_event_requests(1073741824 + #, head, calls, r_clients, r_sequences, r_calls, r_firsts);
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

	-- settle makes sure that an attempt that is still under way can never write
	-- the batch, or returns its answer if it was written. It leaves a row without
	-- events, at a position below 0, with which such an attempt conflicts. READ
	-- COMMITTED, as append.
	EXECUTE replace($sql$
	CREATE FUNCTION tidewire.events_#_settle(
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

	-- forget reads up to max_rows rows of batches after that position, and deletes
	-- those that no writer can ask for any more: of my_writer those below my_number;
	-- of transactions of callers, which are never tried twice, after five minutes; of
	-- others, whose processes may have ended, after a day. The last row stays: it
	-- identifies the current history. It returns where it has ended, or NULL.
	EXECUTE replace($sql$
	CREATE FUNCTION tidewire.events_#_forget(after bigint, max_rows int, my_writer bigint, my_number bigint)
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
END
$define$;

-- record_event_requests records the requests of a batch that begins after head,
-- except those of calls that conflict, in the append's transaction. A store's
-- requests are kept like those of a stream, under the number of its lock, and
-- found and deleted by the same functions. It fails as record_requests does.
CREATE FUNCTION tidewire.record_event_requests(
	lock int, head bigint, conflicts int[], clients text[], sequences bigint[], calls int[], firsts int[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	in_use int := (SELECT current FROM tidewire.request_window WHERE stream = lock);
	missing bigint;
BEGIN
	IF in_use IS NULL THEN
		PERFORM tidewire.open_requests(lock);
		in_use := 0;
	END IF;
	EXECUTE format($sql$
		WITH wanted AS MATERIALIZED (
			SELECT p, s, $1 + f AS at FROM unnest($2, $3, $4, $5) AS t (p, s, c, f) WHERE $6 IS NULL OR c <> ALL ($6)
		), recorded AS (
			INSERT INTO tidewire.%I (client, sequence, position)
			SELECT p, s, at FROM wanted
			WHERE (SELECT true FROM tidewire.%I AS o WHERE o.client = p AND o.sequence = s) IS NULL
				AND (s <= (SELECT f.sequence FROM tidewire.%I AS f WHERE f.client = p)) IS NOT TRUE
			RETURNING 1
		)
		SELECT (SELECT count(*) FROM wanted) - (SELECT count(*) FROM recorded)$sql$,
		'request_' || lock || '_' || in_use, 'request_' || lock || '_' || 1 - in_use, 'request_' || lock || '_floor')
		INTO missing USING head, clients, sequences, calls, firsts, conflicts;
	IF missing > 0 THEN
		RAISE EXCEPTION 'some requests of the batch are recorded already, or too old' USING ERRCODE = 'TW005';
	END IF;
END
$$;
