SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA tidewire;
CREATE FUNCTION tidewire.add_segment(stream_id integer, first bigint, last bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
	parent text := 'stream_' || stream_id;
	name text := parent || '_' || last;
BEGIN
	EXECUTE format('CREATE TABLE tidewire.%I (LIKE tidewire.%I INCLUDING ALL)', name, parent);
	EXECUTE format('ALTER TABLE tidewire.%I ATTACH PARTITION tidewire.%I FOR VALUES FROM (%s) TO (%s)',
		parent, name, first, last + 1);
	INSERT INTO tidewire.segment (stream, first, last, grow_at)
		VALUES (stream_id, first, last, last - (last - first) / 4);
END
$$;
CREATE FUNCTION tidewire.beat_share(share_id integer, member_id bigint, lease interval, released bigint[], is_leaving boolean, OUT alive boolean, OUT quota integer, OUT numbers integer[], OUT tokens bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET lock_timeout TO '500ms'
    AS $$
DECLARE
	standing record;
BEGIN
	UPDATE tidewire.share_member SET until = clock_timestamp() + lease, leaving = is_leaving WHERE id = member_id;
	alive := FOUND;
	IF NOT alive THEN
		RETURN;
	END IF;
	SELECT coalesce(array_agg(number ORDER BY number), '{}'), coalesce(array_agg(token ORDER BY number), '{}') INTO numbers, tokens
		FROM tidewire.share_number WHERE share = share_id AND owner = member_id;
	SELECT * INTO standing FROM tidewire.share_quota(share_id, member_id);
	IF coalesce(cardinality(released), 0) = 0 AND (standing.quota <= standing.owned OR standing.free = 0)
		AND NOT EXISTS (SELECT FROM tidewire.share_member WHERE share = share_id AND until < clock_timestamp()) THEN
		quota := standing.quota;
		RETURN;
	END IF;
	BEGIN
		PERFORM tidewire.hold_share(share_id, true);
	EXCEPTION WHEN lock_not_available THEN
		RETURN;
	END;
	PERFORM tidewire.end_leases(share_id, NULL);
	UPDATE tidewire.share_number SET owner = NULL, token = NULL
		WHERE share = share_id AND owner = member_id AND token = ANY (released);
	SELECT * INTO standing FROM tidewire.share_quota(share_id, member_id);
	quota := standing.quota;
	IF quota > standing.owned THEN
		UPDATE tidewire.share_number SET owner = member_id, token = nextval('tidewire.share_token_seq')
			WHERE share = share_id AND number IN (
				SELECT number FROM tidewire.share_number WHERE share = share_id AND owner IS NULL ORDER BY number LIMIT quota - standing.owned);
	END IF;
	SELECT coalesce(array_agg(number ORDER BY number), '{}'), coalesce(array_agg(token ORDER BY number), '{}') INTO numbers, tokens
		FROM tidewire.share_number WHERE share = share_id AND owner = member_id;
END
$$;
CREATE FUNCTION tidewire.begin_batch(lock_id integer, positions regclass, head bigint, size bigint, writer bigint, number bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
	actual bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	actual := coalesce(pg_sequence_last_value(positions), 0);
	IF actual <> head THEN
		RAISE EXCEPTION 'stream head is %, not %', actual, head
			USING ERRCODE = 'TW001', DETAIL = actual::text;
	END IF;
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = lock_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(lock_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
END
$$;
CREATE FUNCTION tidewire.begin_drop(stream_name text) RETURNS integer
    LANGUAGE sql
    AS $$
	UPDATE tidewire.stream SET state = 'dropping' WHERE name = stream_name AND partitions > 0 RETURNING id
$$;
CREATE FUNCTION tidewire.commit_offsets(ids integer[], positions bigint[]) RETURNS TABLE(id integer, committed bigint, written boolean)
    LANGUAGE plpgsql
    AS $_$
DECLARE
	in_use text := tidewire.hold_offsets();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		WITH given AS (
			SELECT g.id, o.sequence, o.position, u.position AS wanted
			FROM unnest($1, $2) AS u (id, position)
			JOIN tidewire.stream_group AS g ON g.id = u.id
			CROSS JOIN LATERAL (
				SELECT sequence, position FROM tidewire.%1$I WHERE group_id = g.id
				ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
			) AS o
		), added AS (
			INSERT INTO tidewire.%1$I (group_id, sequence, position)
			SELECT g.id, g.sequence, g.wanted FROM given AS g WHERE g.wanted > g.position
			ORDER BY g.id -- as all do, so that equal rows cannot deadlock
			ON CONFLICT DO NOTHING
		)
		SELECT g.id, greatest(g.wanted, g.position), g.wanted > g.position FROM given AS g$sql$, in_use)
		USING ids, positions;
END
$_$;
CREATE FUNCTION tidewire.commit_owned(ids integer[], positions bigint[], tokens bigint[]) RETURNS TABLE(id integer, committed bigint, written boolean, token bigint)
    LANGUAGE plpgsql
    AS $$
DECLARE
	lasting bigint[] := tidewire.hold_ownerships(tokens);
BEGIN
	RETURN QUERY
		WITH given AS (
			SELECT * FROM unnest(ids, positions, tokens) AS t (g, p, o) WHERE o = ANY (lasting)
		)
		SELECT c.id, c.committed, c.written, given.o
		FROM tidewire.commit_offsets(ARRAY(SELECT g FROM given ORDER BY g), ARRAY(SELECT p FROM given ORDER BY g)) AS c
		JOIN given ON given.g = c.id;
END
$$;
CREATE FUNCTION tidewire.create_event_tables(store integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$
BEGIN
	EXECUTE replace($sql$
		CREATE TABLE tidewire.events_# (
			position bigint PRIMARY KEY,
			created_at timestamptz NOT NULL,
			is_json boolean NOT NULL,
			type text COLLATE "C" NOT NULL,
			id text COLLATE "C",
			tags text[] COLLATE "C" NOT NULL,
			data bytea NOT NULL
		);
		CREATE SEQUENCE tidewire.events_#_position_seq CACHE 1 OWNED BY tidewire.events_#.position;
		CREATE UNIQUE INDEX events_#_id_key ON tidewire.events_# (id) WHERE id IS NOT NULL;
		CREATE INDEX events_#_type_idx ON tidewire.events_# (type, position);
		CREATE TABLE tidewire.events_#_tag (
			tag bigint NOT NULL,
			position bigint NOT NULL,
			signature bigint NOT NULL,
			type int NOT NULL,
			event tid
		);
		CREATE INDEX events_#_tag_idx ON tidewire.events_#_tag (tag, type, position) INCLUDE (signature, event);
		CREATE TABLE tidewire.events_#_batch (
			position bigint CONSTRAINT events_#_batch_pkey PRIMARY KEY,
			first_position bigint NOT NULL,
			writer bigint NOT NULL,
			number bigint NOT NULL,
			created_at timestamptz NOT NULL,
			conflict_calls int[],
			conflict_positions bigint[],
			conflict_types text[],
			UNIQUE (writer, number)
		)$sql$, '#', store::text);
END
$_$;
CREATE FUNCTION tidewire.create_messages() RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
	CREATE TABLE public.messages (
		position bigint NOT NULL,
		payload bytea NOT NULL,
		created_at timestamptz NOT NULL DEFAULT now()
	);
	COMMENT ON TABLE public.messages IS 'tidewire: messages as /ws/ingest received them';
	CREATE SEQUENCE public.messages_position_seq OWNED BY public.messages.position;
	CREATE INDEX messages_position_idx ON public.messages
		USING brin (position) WITH (pages_per_range = 128);
	CREATE VIEW public.messages_text AS
		SELECT position AS id, tidewire.utf8_text(payload) AS payload, created_at
		FROM public.messages;
END
$$;
CREATE FUNCTION tidewire.create_stream_table(stream_id integer, keyed boolean) RETURNS void
    LANGUAGE plpgsql
    AS $_$
DECLARE
	name text := 'stream_' || stream_id;
BEGIN
	EXECUTE format($sql$
		CREATE TABLE tidewire.%1$I (
			position bigint NOT NULL,
			created_at timestamptz NOT NULL DEFAULT now(),
			key text COLLATE "C",
			headers jsonb,
			payload bytea NOT NULL,
			CONSTRAINT %2$I PRIMARY KEY (position)
		) PARTITION BY RANGE (position)$sql$, name, name || '_pkey');
	IF keyed THEN
		EXECUTE format('CREATE INDEX %I ON tidewire.%I (key, position) WHERE key IS NOT NULL',
			name || '_key_idx', name);
	END IF;
	EXECUTE format('CREATE SEQUENCE tidewire.%I CACHE 1 OWNED BY tidewire.%I.position',
		name || '_oldest_seq', name);
	IF to_regclass('tidewire.' || name || '_position_seq') IS NULL THEN
		EXECUTE format('CREATE SEQUENCE tidewire.%I CACHE 1 OWNED BY tidewire.%I.position',
			name || '_position_seq', name);
		PERFORM tidewire.add_segment(stream_id, 1, 16384);
	END IF;
END
$_$;
CREATE FUNCTION tidewire.define_event_functions(store integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$
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
$_$;
CREATE FUNCTION tidewire.drop_event_store(store_name text) RETURNS boolean
    LANGUAGE plpgsql
    SET lock_timeout TO '200ms'
    AS $$
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
CREATE FUNCTION tidewire.drop_partition(stream_id integer) RETURNS boolean
    LANGUAGE plpgsql
    SET lock_timeout TO '200ms'
    AS $$
DECLARE
	last_id int;
BEGIN
	PERFORM FROM tidewire.stream WHERE id = stream_id AND state = 'dropping' FOR UPDATE;
	IF NOT FOUND THEN
		RETURN true; -- another one was faster
	END IF;
	SELECT id INTO last_id FROM tidewire.stream WHERE parent = stream_id ORDER BY partition DESC LIMIT 1;
	IF NOT FOUND THEN
		DELETE FROM tidewire.stream WHERE id = stream_id;
		RETURN true;
	END IF;
	DELETE FROM tidewire.stream WHERE id = last_id;
	PERFORM tidewire.drop_stream_tables(last_id);
	RETURN false;
END
$$;
CREATE FUNCTION tidewire.drop_queue(queue_name text) RETURNS boolean
    LANGUAGE plpgsql
    SET lock_timeout TO '200ms'
    AS $$
DECLARE
	queue_id int := (SELECT q.id FROM tidewire.queue AS q JOIN tidewire.stream AS s USING (id) WHERE s.name = queue_name);
BEGIN
	IF queue_id IS NULL THEN
		RETURN false;
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, -queue_id);
	DELETE FROM tidewire.queue WHERE id = queue_id;
	DELETE FROM tidewire.queue_side WHERE queue = queue_id;
	EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I',
		'queue_' || queue_id || '_journal_0', 'queue_' || queue_id || '_journal_1');
	RETURN tidewire.drop_stream(queue_name);
END
$$;
CREATE FUNCTION tidewire.drop_segments(stream_id integer, upto bigint) RETURNS integer
    LANGUAGE plpgsql
    AS $_$
DECLARE
	parent text := 'stream_' || stream_id;
	oldest regclass;
	gone bigint[];
	last_one bigint;
	highest bigint;
BEGIN
	IF NOT tidewire.hold_retention() THEN
		RETURN 0;
	END IF;
	EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS EXCLUSIVE MODE', parent);
	gone := ARRAY(SELECT last FROM tidewire.segment WHERE stream = stream_id AND last <= upto ORDER BY last LIMIT 32);
	FOREACH last_one IN ARRAY gone LOOP
		EXECUTE format('LOCK TABLE tidewire.%I IN ACCESS EXCLUSIVE MODE', parent || '_' || last_one);
		EXECUTE format('SELECT greatest(max(position), $1) FROM tidewire.%I', parent || '_' || last_one) INTO highest USING highest;
	END LOOP;
	oldest := ('tidewire.' || parent || '_oldest_seq')::regclass;
	IF highest >= coalesce(pg_sequence_last_value(oldest), 1) THEN
		PERFORM setval(oldest, highest + 1);
	END IF;
	FOREACH last_one IN ARRAY gone LOOP
		EXECUTE format('DROP TABLE tidewire.%I', parent || '_' || last_one);
	END LOOP;
	DELETE FROM tidewire.segment WHERE stream = stream_id AND last = ANY (gone);
	RETURN cardinality(gone);
END
$_$;
CREATE FUNCTION tidewire.drop_stream(stream_name text) RETURNS boolean
    LANGUAGE plpgsql
    SET lock_timeout TO '200ms'
    AS $$
DECLARE
	stream_id int;
BEGIN
	PERFORM tidewire.refuse_partition(stream_name);
	DELETE FROM tidewire.stream WHERE name = stream_name AND partitions = 0 RETURNING id INTO stream_id;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM tidewire.drop_stream_tables(stream_id);
	RETURN true;
END
$$;
CREATE FUNCTION tidewire.drop_stream_tables(stream_id integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	EXECUTE format('DROP TABLE tidewire.%I', 'stream_' || stream_id);
	DELETE FROM tidewire.segment WHERE stream = stream_id;
	DELETE FROM tidewire.producer_window WHERE stream = stream_id;
	IF FOUND THEN
		EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I, tidewire.%I', 'producer_' || stream_id || '_0',
			'producer_' || stream_id || '_1', 'producer_' || stream_id || '_floor');
	END IF;
END
$$;
CREATE FUNCTION tidewire.end_leases(share_id integer, member_id bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
	DELETE FROM tidewire.share_member WHERE share = share_id AND (id = member_id OR id = ANY (ARRAY(
		SELECT id FROM tidewire.share_member WHERE share = share_id AND until < clock_timestamp() FOR UPDATE SKIP LOCKED)));
	IF FOUND THEN
		UPDATE tidewire.share_number AS n SET owner = NULL, token = NULL
			WHERE n.share = share_id AND n.owner IS NOT NULL
				AND NOT EXISTS (SELECT FROM tidewire.share_member AS m WHERE m.id = n.owner);
	END IF;
END
$$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE tidewire.event_store (
    id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT event_store_name_check CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 128)))
);
CREATE FUNCTION tidewire.ensure_event_store(store_name text) RETURNS tidewire.event_store
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION tidewire.ensure_group(stream_id integer, group_name text, start bigint) RETURNS integer
    LANGUAGE plpgsql
    AS $_$
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
			EXECUTE format('INSERT INTO tidewire.%I VALUES ($1, 1, $2)', in_use) USING group_id, start;
			RETURN group_id;
		END IF;
	END LOOP;
END
$_$;
CREATE TABLE tidewire.stream (
    id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    keyed boolean NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    parent integer,
    partition integer,
    partitions integer DEFAULT 0 NOT NULL,
    state text DEFAULT 'ready'::text NOT NULL,
    CONSTRAINT stream_name_check CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 128))),
    CONSTRAINT stream_partitions_check CHECK (((partitions >= 0) AND (partitions <= 1024))),
    CONSTRAINT stream_state_check CHECK ((state = ANY (ARRAY['making'::text, 'ready'::text, 'dropping'::text])))
);
CREATE FUNCTION tidewire.ensure_partitioned(stream_name text, stream_keyed boolean, count integer) RETURNS tidewire.stream
    LANGUAGE plpgsql
    AS $$
DECLARE
	found_or_made tidewire.stream;
	taken text;
BEGIN
	LOOP
		SELECT * INTO found_or_made FROM tidewire.stream WHERE name = stream_name;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
		SELECT name INTO taken FROM tidewire.stream
			WHERE name = ANY (ARRAY(SELECT stream_name || '/' || n FROM generate_series(0, count - 1) AS n)) LIMIT 1;
		IF FOUND THEN
			RAISE EXCEPTION 'stream % exists and is no partition', quote_ident(taken) USING ERRCODE = 'TW006';
		END IF;
		INSERT INTO tidewire.stream (name, keyed, partitions, state) VALUES (stream_name, stream_keyed, count, 'making')
			ON CONFLICT (name) DO NOTHING RETURNING * INTO found_or_made;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;
CREATE TABLE tidewire.queue (
    id integer NOT NULL,
    active integer DEFAULT 0 NOT NULL,
    max_attempts integer NOT NULL,
    retry_min interval NOT NULL,
    retry_max interval NOT NULL,
    family integer,
    member integer,
    CONSTRAINT queue_max_attempts_check CHECK ((max_attempts >= 1))
);
CREATE FUNCTION tidewire.ensure_queue(queue_id integer, attempts integer, retry_from interval, retry_to interval) RETURNS tidewire.queue
    LANGUAGE plpgsql
    AS $_$
DECLARE
	made tidewire.queue;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, -queue_id);
	SELECT * INTO made FROM tidewire.queue WHERE id = queue_id;
	IF FOUND THEN
		RETURN made;
	END IF;
	PERFORM FROM tidewire.stream WHERE id = queue_id AND (partitions > 0 OR parent IS NOT NULL);
	IF FOUND THEN
		RAISE EXCEPTION 'stream % has partitions, or is one: a queue with lanes is what shares out keys',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = queue_id) USING ERRCODE = 'TW006';
	END IF;
	PERFORM FROM tidewire.retention WHERE stream = queue_id;
	IF FOUND THEN
		RAISE EXCEPTION 'stream % has a retention policy, which would drop messages that a queue still needs: have it keep everything first',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = queue_id) USING ERRCODE = 'TW008';
	END IF;
	INSERT INTO tidewire.queue (id, max_attempts, retry_min, retry_max)
		VALUES (queue_id, attempts, retry_from, retry_to) RETURNING * INTO made;
	FOR i IN 0 .. 1 LOOP
		-- top is the highest position claimed, up to and with this row.
		EXECUTE format($sql$
			CREATE TABLE tidewire.%I (
				sequence bigint PRIMARY KEY,
				token bigint NOT NULL,
				lo bigint NOT NULL,
				hi bigint NOT NULL,
				top bigint NOT NULL,
				until timestamptz,
				kind smallint NOT NULL,
				body bytea
			) WITH (autovacuum_enabled = false)$sql$, 'queue_' || queue_id || '_journal_' || i);
	END LOOP;
	EXECUTE format('INSERT INTO tidewire.%I VALUES (1, 0, 0, 0, 0, NULL, 1, NULL)', 'queue_' || queue_id || '_journal_0');
	RETURN made;
END
$_$;
CREATE TABLE tidewire.queue_family (
    id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    priorities integer NOT NULL,
    lanes integer NOT NULL,
    dropping boolean DEFAULT false NOT NULL,
    CONSTRAINT queue_family_check CHECK (((priorities = 0) <> (lanes = 0)))
);
CREATE FUNCTION tidewire.ensure_queue_family(family_name text, priority_count integer, lane_count integer, streams integer[], attempts integer, retry_from interval, retry_to interval) RETURNS tidewire.queue_family
    LANGUAGE plpgsql
    AS $$
DECLARE
	made tidewire.queue_family;
	one tidewire.queue;
BEGIN
	INSERT INTO tidewire.queue_family (name, priorities, lanes) VALUES (family_name, priority_count, lane_count)
		ON CONFLICT (name) DO NOTHING RETURNING * INTO made;
	IF NOT FOUND THEN
		SELECT * INTO made FROM tidewire.queue_family WHERE name = family_name;
		RETURN made;
	END IF;
	FOR i IN 1 .. cardinality(streams) LOOP
		PERFORM FROM tidewire.queue WHERE id = streams[i];
		IF FOUND THEN
			RAISE EXCEPTION 'queue % exists by itself, and its name is needed for a part of queue %',
				(SELECT quote_ident(name) FROM tidewire.stream WHERE id = streams[i]), quote_ident(family_name) USING ERRCODE = 'TW006';
		END IF;
		one := tidewire.ensure_queue(streams[i], attempts, retry_from, retry_to);
		UPDATE tidewire.queue SET family = made.id, member = i - 1 WHERE id = one.id;
	END LOOP;
	RETURN made;
END
$$;
CREATE FUNCTION tidewire.ensure_stream(stream_name text, stream_keyed boolean) RETURNS tidewire.stream
    LANGUAGE plpgsql
    AS $$
DECLARE
	found_or_made tidewire.stream;
BEGIN
	LOOP
		SELECT * INTO found_or_made FROM tidewire.stream WHERE name = stream_name;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
		INSERT INTO tidewire.stream (name, keyed) VALUES (stream_name, stream_keyed)
			ON CONFLICT (name) DO NOTHING RETURNING * INTO found_or_made;
		IF FOUND THEN
			PERFORM tidewire.create_stream_table(found_or_made.id, stream_keyed);
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;
CREATE FUNCTION tidewire.events_1_append(my_writer bigint, my_number bigint, bases bigint[], basis_writers bigint[], basis_numbers bigint[], ev_types text[], ev_hashes integer[], ev_signatures bigint[], ev_json boolean[], ev_ids text[], ev_tags text[], ev_data bytea[], ev_packed bytea[], ev_calls integer[], tag_hashes bigint[], tag_events integer[], least_after bigint, p_calls integer[], p_afters bigint[], p_drivers bigint[], p_others text[], p_signatures bigint[], p_type_hashes integer[], p_types text[], p_tags text[], p_tagless boolean, p_budget integer, r_producers text[], r_sequences bigint[], r_calls integer[], r_firsts integer[], OUT head bigint, OUT calls integer[], OUT positions bigint[], OUT types text[], OUT again boolean) RETURNS record
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
	DECLARE
		now timestamptz;
		sent_now bytea;
		places tid[];
		size int := cardinality(ev_types);
	BEGIN
		IF current_setting('transaction_isolation') <> 'read committed' THEN
			RAISE EXCEPTION 'transaction is %, not read committed', current_setting('transaction_isolation') USING ERRCODE = 'TW021';
		END IF;
		PERFORM pg_advisory_xact_lock(1953064037, 1073741824 + 1);
		SELECT b.first_position - 1, b.conflict_calls, b.conflict_positions, b.conflict_types, true
			INTO head, calls, positions, types, again
			FROM tidewire.events_1_batch b WHERE b.writer = my_writer AND b.number = my_number;
		IF again THEN
			RETURN;
		END IF;
		again := false;
		IF EXISTS (
			SELECT FROM unnest(bases, basis_writers, basis_numbers) AS u (position, writer, number)
			WHERE NOT EXISTS (
				SELECT FROM tidewire.events_1_batch b
				WHERE b.position = u.position AND b.writer = u.writer AND b.number = u.number OFFSET 0)
		) THEN
			RAISE EXCEPTION 'a batch of % does not end there', bases USING ERRCODE = 'TW020';
		END IF;
		head := coalesce(pg_sequence_last_value('tidewire.events_1_position_seq'), 0);
		IF least_after < head THEN
			SELECT array_agg(c.call), array_agg(c.at),
				array_agg(coalesce((SELECT e.type FROM tidewire.events_1 e WHERE e.position = c.at), ''))
			INTO calls, positions, types
			FROM (
				SELECT k.call, min(k.at) AS at FROM tidewire.events_1_check(
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
			PERFORM tidewire.record_event_requests(1073741824 + 1, head, calls, r_producers, r_sequences, r_calls, r_firsts);
		END IF;
		INSERT INTO tidewire.events_1_batch
			VALUES (head + size, head + 1, my_writer, my_number, now, calls, positions, types);
		PERFORM setval('tidewire.events_1_position_seq', head + size);
		WITH e AS (
			INSERT INTO tidewire.events_1 (position, created_at, is_json, type, id, tags, data, packed)
			SELECT head + u.n, now, u.is_json, u.type, u.id, u.tags::text[], u.data, int8send(head + u.n) || sent_now || u.packed
			FROM unnest(ev_types, ev_json, ev_ids, ev_tags, ev_data, ev_packed, ev_calls)
				WITH ORDINALITY AS u (type, is_json, id, tags, data, packed, call, n)
			WHERE calls IS NULL OR u.call <> ALL (calls)
			RETURNING position, ctid
		) SELECT array_agg(e.ctid ORDER BY e.position) INTO places FROM e;
		IF calls IS NOT NULL THEN
			places := NULL; -- some are missing: readers go by position
		END IF;
		INSERT INTO tidewire.events_1_tag (tag, position, signature, type, event)
			SELECT u.tag, head + u.event, ev_signatures[u.event], ev_hashes[u.event], places[u.event]
			FROM unnest(tag_hashes, tag_events) AS u (tag, event)
			WHERE calls IS NULL OR ev_calls[u.event] <> ALL (calls);
	END
	$$;
CREATE FUNCTION tidewire.events_1_check(calls integer[], afters bigint[], drivers bigint[], others text[], signatures bigint[], type_hashes integer[], types text[], tags text[], tagless boolean, budget integer) RETURNS TABLE(call integer, at bigint)
    LANGUAGE plpgsql STABLE
    AS $$
	BEGIN
		RETURN QUERY
		SELECT p.call, hit.position
		FROM unnest(calls, afters, drivers, others, signatures, type_hashes, types, tags)
			AS p (call, after, driver, others, signature, type_hash, type, tags)
		CROSS JOIN LATERAL (
			SELECT p.type_hash AS hash, 0::bigint AS n WHERE p.type_hash IS NOT NULL
			UNION ALL
			(WITH RECURSIVE of_tag (hash) AS ( -- the types that have the tag, a descent each
				(SELECT s.type FROM tidewire.events_1_tag s WHERE s.tag = p.driver ORDER BY s.tag, s.type LIMIT 1)
				UNION ALL
				SELECT (SELECT s.type FROM tidewire.events_1_tag s WHERE s.tag = p.driver AND s.type > o.hash ORDER BY s.tag, s.type LIMIT 1)
				FROM of_tag o WHERE o.hash IS NOT NULL
			) SELECT o.hash, row_number() OVER () FROM of_tag o WHERE p.type_hash IS NULL AND o.hash IS NOT NULL
			LIMIT CASE WHEN budget IS NOT NULL THEN least(budget, 200) END)
		) AS t
		CROSS JOIN LATERAL (
			(SELECT CASE WHEN m.matches THEN m.position ELSE 0 END AS position FROM (
				SELECT w.position, w.n, CASE WHEN w.signature & p.signature = p.signature THEN
					(SELECT (p.type IS NULL OR e.type = p.type) AND e.tags @> p.tags::text[]
						FROM tidewire.events_1 e WHERE e.position = w.position)
					ELSE false END AS matches
				FROM (
					SELECT s.position, s.signature, row_number() OVER (ORDER BY s.tag, s.type, s.position) AS n
					FROM tidewire.events_1_tag s
					WHERE s.tag = CASE
						WHEN p.others IS NULL THEN p.driver
						WHEN NOT EXISTS (
							SELECT FROM tidewire.events_1_tag c
							WHERE c.tag = p.driver AND c.type = t.hash AND c.position > p.after OFFSET 32) THEN p.driver
						ELSE (
							SELECT h.hash FROM unnest(p.others::bigint[]) AS h (hash)
							ORDER BY (SELECT count(*) FROM (
								SELECT FROM tidewire.events_1_tag c
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
				SELECT e.type, e.position FROM tidewire.events_1 e
				WHERE (e.type, e.position) > (p.type, p.after) ORDER BY e.type, e.position LIMIT 1
			) AS hit
			WHERE p.driver IS NULL AND hit.type = p.type;
			RETURN QUERY
			SELECT p.call, hit.position
			FROM unnest(calls, afters, drivers, types) AS p (call, after, driver, type)
			CROSS JOIN LATERAL (
				SELECT e.position FROM tidewire.events_1 e WHERE e.position > p.after ORDER BY e.position LIMIT 1
			) AS hit
			WHERE p.driver IS NULL AND p.type IS NULL;
		END IF;
	END
	$$;
CREATE FUNCTION tidewire.events_1_conflicts(p_calls integer[], p_afters bigint[], p_drivers bigint[], p_others text[], p_signatures bigint[], p_type_hashes integer[], p_types text[], p_tags text[], p_tagless boolean, p_budget integer, OUT last_position bigint, OUT writer bigint, OUT number bigint, OUT calls integer[], OUT positions bigint[], OUT types text[]) RETURNS record
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
	BEGIN
		SELECT b.position, b.writer, b.number INTO last_position, writer, number
			FROM tidewire.events_1_batch b WHERE b.position > 0 ORDER BY b.position DESC LIMIT 1;
		SELECT array_agg(c.call), array_agg(c.at),
			array_agg(coalesce((SELECT e.type FROM tidewire.events_1 e WHERE e.position = c.at), ''))
		INTO calls, positions, types
		FROM (
			SELECT k.call, min(k.at) AS at FROM tidewire.events_1_check(
				p_calls, p_afters, p_drivers, p_others, p_signatures, p_type_hashes, p_types, p_tags, p_tagless, p_budget) k
			GROUP BY k.call
		) AS c;
	END
	$$;
CREATE FUNCTION tidewire.events_1_forget(after bigint, max_rows integer, my_writer bigint, my_number bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
	DECLARE
		slice bigint[] := ARRAY(
			SELECT b.position FROM tidewire.events_1_batch b
			WHERE b.position > after AND b.position < (SELECT l.position FROM tidewire.events_1_batch l ORDER BY l.position DESC LIMIT 1)
			ORDER BY b.position LIMIT max_rows);
	BEGIN
		DELETE FROM tidewire.events_1_batch b WHERE b.position = ANY (slice) AND (
			b.writer = my_writer AND b.number < my_number
			OR b.number = 0 AND b.created_at < now() - interval '5 minutes'
			OR b.created_at < now() - interval '1 day');
		RETURN slice[cardinality(slice)];
	END
	$$;
CREATE FUNCTION tidewire.events_1_page(after bigint, before bigint, max_rows integer, max_bytes bigint, by_position boolean, backwards boolean, everything boolean, span bigint, patience integer, drivers bigint[], others text[], signatures bigint[], type_hashes integer[], types text[], OUT head bigint, OUT positions bigint[], OUT page bytea, OUT searched bigint) RETURNS record
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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
		head := coalesce((SELECT e.position FROM tidewire.events_1 e ORDER BY e.position DESC LIMIT 1), 0);
		positions := '{}';
		IF everything THEN
			IF backwards THEN
				SELECT array_agg(f.position), array_agg(f.ctid) INTO positions, places FROM (
					SELECT e.position, e.ctid FROM tidewire.events_1 e WHERE e.position > after AND e.position < before ORDER BY e.position DESC LIMIT max_rows) AS f;
			ELSE
				SELECT array_agg(f.position), array_agg(f.ctid) INTO positions, places FROM (
					SELECT e.position, e.ctid FROM tidewire.events_1 e WHERE e.position > after AND e.position < before ORDER BY e.position LIMIT max_rows) AS f;
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
							(SELECT s.type FROM tidewire.events_1_tag s WHERE s.tag = p.driver ORDER BY s.tag, s.type LIMIT 1)
							UNION ALL
							SELECT (SELECT s.type FROM tidewire.events_1_tag s WHERE s.tag = p.driver AND s.type > o.hash ORDER BY s.tag, s.type LIMIT 1)
							FROM of_tag o WHERE o.hash IS NOT NULL
						) SELECT o.hash FROM of_tag o WHERE p.type_hash IS NULL AND o.hash IS NOT NULL)
					) AS t
					CROSS JOIN LATERAL (
						SELECT CASE WHEN p.others IS NULL THEN p.driver ELSE (
							SELECT h.hash FROM unnest(p.others::bigint[]) AS h (hash)
							ORDER BY (SELECT count(*) FROM (
								SELECT FROM tidewire.events_1_tag c
								WHERE c.tag = h.hash AND c.type = t.hash AND c.position > low AND c.position < high LIMIT 64) AS few)
							LIMIT 1) END AS hash
						OFFSET 0
					) AS d
					CROSS JOIN LATERAL (
						(SELECT s.position, s.event FROM tidewire.events_1_tag s
						WHERE NOT backwards AND s.tag = d.hash AND s.type = t.hash AND s.position > low AND s.position < high
							AND s.signature & p.signature = p.signature
						ORDER BY s.tag, s.type, s.position LIMIT max_rows)
						UNION ALL
						(SELECT s.position, s.event FROM tidewire.events_1_tag s
						WHERE backwards AND s.tag = d.hash AND s.type = t.hash AND s.position > low AND s.position < high
							AND s.signature & p.signature = p.signature
						ORDER BY s.tag DESC, s.type DESC, s.position DESC LIMIT max_rows)
						UNION ALL
						(SELECT e.position, e.ctid FROM tidewire.events_1 e
						WHERE NOT backwards AND p.driver IS NULL AND (e.type, e.position) > (p.type, low) AND (e.type, e.position) < (p.type, high)
						ORDER BY e.type, e.position LIMIT max_rows)
						UNION ALL
						(SELECT e.position, e.ctid FROM tidewire.events_1 e
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
		ELSE 
		IF by_position OR gaps THEN
			large := true; -- it may be
			SELECT string_agg(w.packed || w.data, '') INTO page FROM (
				SELECT e.packed, e.data, sum(octet_length(e.packed) + octet_length(e.data))
					OVER (ORDER BY e.position * direction ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
				FROM (
					SELECT x.position, x.data, coalesce(x.packed, tidewire.pack_event(x.position, x.created_at, x.is_json, x.type, x.id, x.tags, x.data)) AS packed
					FROM unnest(positions) AS f (at) CROSS JOIN LATERAL (
						SELECT * FROM tidewire.events_1 y WHERE y.position = f.at OFFSET 0
					) AS x
				) AS e
			) AS w WHERE coalesce(w.earlier, 0) < max_bytes;
		ELSE
			share := max_bytes / cardinality(places);
			SELECT string_agg(CASE WHEN octet_length(e.data) <= share
					THEN coalesce(e.packed, tidewire.pack_event(e.position, e.created_at, e.is_json, e.type, e.id, e.tags, e.data)) || e.data END, ''),
				max(octet_length(e.data) + coalesce(octet_length(e.packed), 0)) > share
				INTO page, large
				FROM tidewire.events_1 e WHERE e.ctid = ANY (places);
			IF large THEN
				SELECT string_agg(w.packed || w.data, '') INTO page FROM (
					SELECT e.packed, e.data, sum(octet_length(e.packed) + octet_length(e.data))
						OVER (ORDER BY e.position * direction ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
					FROM (
						SELECT x.position, x.data, coalesce(x.packed, tidewire.pack_event(x.position, x.created_at, x.is_json, x.type, x.id, x.tags, x.data)) AS packed
						FROM tidewire.events_1 x WHERE x.ctid = ANY (places)
					) AS e
				) AS w WHERE coalesce(w.earlier, 0) < max_bytes;
			END IF;
		END IF; 
		END IF;
	END
	$$;
CREATE FUNCTION tidewire.events_1_settle(my_writer bigint, my_number bigint, OUT head bigint, OUT calls integer[], OUT positions bigint[], OUT types text[], OUT again boolean) RETURNS record
    LANGUAGE plpgsql
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock(1953064037, 1073741824 + 1);
		SELECT b.first_position - 1, b.conflict_calls, b.conflict_positions, b.conflict_types, b.position > 0
			INTO head, calls, positions, types, again
			FROM tidewire.events_1_batch b WHERE b.writer = my_writer AND b.number = my_number;
		IF again IS NULL THEN
			head := 0;
			again := false;
			INSERT INTO tidewire.events_1_batch (position, first_position, writer, number, created_at)
				SELECT least(0, (SELECT b.position FROM tidewire.events_1_batch b ORDER BY b.position LIMIT 1)) - 1,
					1, my_writer, my_number, clock_timestamp();
		END IF;
	END
	$$;
CREATE FUNCTION tidewire.events_1_tagged(after bigint, before bigint, max_rows integer, max_bytes bigint, by_position boolean, with_head boolean, driver bigint, type_hash integer, OUT head bigint, OUT positions bigint[], OUT page bytea) RETURNS record
    LANGUAGE plpgsql STABLE
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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
				SELECT s.position, s.event FROM tidewire.events_1_tag s
				WHERE s.tag = driver AND s.type = type_hash AND s.position > after AND s.position < before
				ORDER BY s.tag, s.type, s.position LIMIT max_rows
			) AS f;
		ELSE
			SELECT array_agg(f.position), array_agg(f.event), count(*), count(f.event) INTO positions, places, size, held FROM (
				SELECT s.position, s.event FROM tidewire.events_1_tag s
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
		ELSE 
		IF by_position OR gaps THEN
			large := true; -- it may be
			SELECT string_agg(w.packed || w.data, '') INTO page FROM (
				SELECT e.packed, e.data, sum(octet_length(e.packed) + octet_length(e.data))
					OVER (ORDER BY e.position * direction ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
				FROM (
					SELECT x.position, x.data, coalesce(x.packed, tidewire.pack_event(x.position, x.created_at, x.is_json, x.type, x.id, x.tags, x.data)) AS packed
					FROM unnest(positions) AS f (at) CROSS JOIN LATERAL (
						SELECT * FROM tidewire.events_1 y WHERE y.position = f.at OFFSET 0
					) AS x
				) AS e
			) AS w WHERE coalesce(w.earlier, 0) < max_bytes;
		ELSE
			share := max_bytes / cardinality(places);
			SELECT string_agg(CASE WHEN octet_length(e.data) <= share
					THEN coalesce(e.packed, tidewire.pack_event(e.position, e.created_at, e.is_json, e.type, e.id, e.tags, e.data)) || e.data END, ''),
				max(octet_length(e.data) + coalesce(octet_length(e.packed), 0)) > share
				INTO page, large
				FROM tidewire.events_1 e WHERE e.ctid = ANY (places);
			IF large THEN
				SELECT string_agg(w.packed || w.data, '') INTO page FROM (
					SELECT e.packed, e.data, sum(octet_length(e.packed) + octet_length(e.data))
						OVER (ORDER BY e.position * direction ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
					FROM (
						SELECT x.position, x.data, coalesce(x.packed, tidewire.pack_event(x.position, x.created_at, x.is_json, x.type, x.id, x.tags, x.data)) AS packed
						FROM tidewire.events_1 x WHERE x.ctid = ANY (places)
					) AS e
				) AS w WHERE coalesce(w.earlier, 0) < max_bytes;
			END IF;
		END IF; 
		END IF;
		IF with_head OR size = max_rows OR large THEN
			head := (SELECT e.position FROM tidewire.events_1 e ORDER BY e.position DESC LIMIT 1);
		END IF;
	END
	$$;
CREATE FUNCTION tidewire.expired(stream_id integer, settled bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
	policy tidewire.retention;
	s tidewire.segment;
	oldest bigint;
	bytes bigint;
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
		SELECT min(committed) INTO read_by_all
			FROM tidewire.read_offsets(ARRAY(SELECT id FROM tidewire.stream_group WHERE stream = stream_id));
	END IF;
	IF policy.max_bytes IS NOT NULL THEN
		SELECT sum(pg_total_relation_size(to_regclass(format('tidewire.stream_%s_%s', stream_id, last)))) INTO bytes
			FROM tidewire.segment WHERE stream = stream_id;
	END IF;
	FOR s IN SELECT * FROM tidewire.segment WHERE stream = stream_id AND last <= settled ORDER BY last LOOP
		EXECUTE format('SELECT position, created_at FROM tidewire.%I ORDER BY position DESC LIMIT 1',
			'stream_' || stream_id || '_' || s.last) INTO newest;
		-- Below the oldest that is kept: PostgreSQL crashed while it was dropped.
		IF newest.position >= oldest THEN
			EXIT WHEN policy.consumed AND (newest.position <= read_by_all) IS NOT TRUE;
			EXIT WHEN (policy.max_age IS NOT NULL OR policy.max_bytes IS NOT NULL)
				AND (newest.created_at <= clock_timestamp() - policy.max_age) IS NOT TRUE
				AND (bytes > policy.max_bytes) IS NOT TRUE;
		END IF;
		bytes := bytes - pg_total_relation_size(to_regclass(format('tidewire.stream_%s_%s', stream_id, s.last)));
		upto := s.last;
	END LOOP;
	RETURN upto;
END
$$;
CREATE FUNCTION tidewire.extend_event_store(store integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$
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
$_$;
CREATE FUNCTION tidewire.find_requests(stream_id integer, producers text[], sequences bigint[]) RETURNS TABLE(first bigint, too_old boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
BEGIN
	IF to_regclass(format('tidewire.producer_%s_floor', stream_id)) IS NULL THEN -- one batch held a request twice
		RETURN QUERY SELECT NULL::bigint, false FROM unnest(producers);
		RETURN;
	END IF;
	RETURN QUERY EXECUTE format($sql$
		SELECT coalesce(
				(SELECT r.position FROM tidewire.%I AS r WHERE r.producer = p AND r.sequence = s),
				(SELECT r.position FROM tidewire.%I AS r WHERE r.producer = p AND r.sequence = s)),
			coalesce(s <= (SELECT f.sequence FROM tidewire.%I AS f WHERE f.producer = p), false)
		FROM unnest($1, $2) WITH ORDINALITY AS t (p, s, n) ORDER BY n$sql$,
		'producer_' || stream_id || '_0', 'producer_' || stream_id || '_1', 'producer_' || stream_id || '_floor')
		USING producers, sequences;
END
$_$;
CREATE FUNCTION tidewire.fold_requests(stream_id integer, keep interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
	w tidewire.producer_window;
BEGIN
	SELECT * INTO w FROM tidewire.producer_window
		WHERE stream = stream_id AND since <= clock_timestamp() - keep FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	IF NOT w.folded THEN
		EXECUTE format($sql$
			INSERT INTO tidewire.%1$I AS f (producer, sequence)
			SELECT producer, max(sequence) FROM tidewire.%2$I GROUP BY producer
			ON CONFLICT (producer) DO UPDATE SET sequence = excluded.sequence WHERE f.sequence < excluded.sequence$sql$,
			'producer_' || stream_id || '_floor', 'producer_' || stream_id || '_' || 1 - w.current);
		UPDATE tidewire.producer_window SET folded = true WHERE stream = stream_id;
	END IF;
	RETURN true;
END
$_$;
CREATE FUNCTION tidewire.hold_offsets() RETURNS text
    LANGUAGE plpgsql
    AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'offsets of groups need READ COMMITTED'
			USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock_shared(1953064037, 2);
	RETURN (SELECT 'group_offset_' || current FROM tidewire.group_rotation);
END
$$;
CREATE FUNCTION tidewire.hold_ownerships(tokens bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
	share_id int;
BEGIN
	FOR share_id IN SELECT DISTINCT share FROM tidewire.share_number WHERE token = ANY (tokens) ORDER BY share LOOP
		PERFORM tidewire.hold_share(share_id, false);
	END LOOP;
	RETURN ARRAY(SELECT token FROM tidewire.share_number WHERE token = ANY (tokens));
END
$$;
CREATE FUNCTION tidewire.hold_queue(queue_id integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
	in_use int;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'queues need READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, -queue_id);
	SELECT active INTO in_use FROM tidewire.queue WHERE id = queue_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no queue %', queue_id USING ERRCODE = 'TW003';
	END IF;
	RETURN in_use;
END
$$;
CREATE FUNCTION tidewire.hold_retention() RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'retention needs READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	RETURN pg_try_advisory_xact_lock(1953064037, 3);
END
$$;
CREATE FUNCTION tidewire.hold_share(share_id integer, alone boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'shares need READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	IF alone THEN
		PERFORM pg_advisory_xact_lock(1953064038, share_id);
	ELSE
		PERFORM pg_advisory_xact_lock_shared(1953064038, share_id);
	END IF;
END
$$;
CREATE FUNCTION tidewire.join_share(share_name text, stream_id integer, count integer, member_name text, lease interval, OUT share_id integer, OUT member_id bigint) RETURNS record
    LANGUAGE plpgsql
    SET lock_timeout TO '500ms'
    AS $$
BEGIN
	LOOP
		SELECT id INTO share_id FROM tidewire.share WHERE name = share_name;
		IF NOT FOUND THEN
			INSERT INTO tidewire.share (name, stream) VALUES (share_name, stream_id)
				ON CONFLICT (name) DO NOTHING RETURNING id INTO share_id;
			CONTINUE WHEN NOT FOUND;
		END IF;
		PERFORM tidewire.hold_share(share_id, true);
		PERFORM FROM tidewire.share WHERE id = share_id;
		EXIT WHEN FOUND; -- else its last member has left while it was waited for
	END LOOP;
	PERFORM tidewire.end_leases(share_id, NULL);
	IF (SELECT count(*) FROM tidewire.share_number AS n WHERE n.share = share_id) <> join_share.count THEN
		PERFORM FROM tidewire.share_member AS m WHERE m.share = share_id;
		IF FOUND THEN
			RAISE EXCEPTION 'the members share another number of things than %', join_share.count USING ERRCODE = 'TW006';
		END IF;
		DELETE FROM tidewire.share_number AS n WHERE n.share = share_id;
		INSERT INTO tidewire.share_number (share, number) SELECT share_id, n FROM generate_series(0, join_share.count - 1) AS n;
	END IF;
	INSERT INTO tidewire.share_member (share, name, until)
		VALUES (share_id, member_name, clock_timestamp() + lease) RETURNING id INTO member_id;
END
$$;
CREATE FUNCTION tidewire.last_partition(stream_id integer) RETURNS text
    LANGUAGE sql STABLE
    AS $$
	SELECT name FROM tidewire.stream WHERE parent = stream_id ORDER BY partition DESC LIMIT 1
$$;
CREATE TABLE tidewire.segment (
    stream integer NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    grow_at bigint NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE FUNCTION tidewire.last_segment(stream_id integer) RETURNS tidewire.segment
    LANGUAGE plpgsql
    AS $$
DECLARE
	found_last tidewire.segment;
	ends bigint[];
BEGIN
	IF current_setting('transaction_isolation') = 'read committed' THEN
		SELECT * INTO found_last FROM tidewire.segment WHERE stream = stream_id ORDER BY last DESC LIMIT 1;
		RETURN found_last;
	END IF;
	SELECT array_agg(e.last ORDER BY e.last DESC) INTO ends
		FROM pg_partition_tree(('tidewire.stream_' || stream_id)::regclass) AS p,
			LATERAL (SELECT split_part(p.relid::regclass::text, '_', 3)::bigint AS last) AS e
		WHERE p.isleaf AND p.level = 1;
	SELECT * INTO found_last FROM tidewire.segment WHERE stream = stream_id AND last = ends[1];
	IF NOT FOUND THEN -- made since, and so the one before it is still there, as a rule
		found_last.stream := stream_id;
		found_last.first := coalesce(ends[2], ends[1] - 16384) + 1;
		found_last.last := ends[1];
		found_last.grow_at := ends[1] - (ends[1] - found_last.first) / 4;
		found_last.created_at := clock_timestamp();
	END IF;
	RETURN found_last;
END
$$;
CREATE FUNCTION tidewire.leave_share(share_id integer, member_id bigint) RETURNS void
    LANGUAGE plpgsql
    SET lock_timeout TO '500ms'
    AS $$
BEGIN
	PERFORM tidewire.hold_share(share_id, true);
	PERFORM tidewire.end_leases(share_id, member_id);
	PERFORM FROM tidewire.share_member WHERE share = share_id;
	IF NOT FOUND THEN
		DELETE FROM tidewire.share WHERE id = share_id;
	END IF;
END
$$;
CREATE FUNCTION tidewire.look_at_queues(ids integer[], settled bigint[]) RETURNS TABLE(queue integer, last bigint, due timestamp with time zone, head bigint, at timestamp with time zone)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET lock_timeout TO '100ms'
    AS $$
#variable_conflict use_column
DECLARE
	in_use int;
BEGIN
	at := clock_timestamp();
	FOR i IN 1 .. cardinality(ids) LOOP
		BEGIN
			queue := ids[i];
			in_use := (SELECT active FROM tidewire.queue AS q WHERE q.id = ids[i]);
			EXECUTE format('SELECT max(sequence) FROM tidewire.%I', 'queue_' || ids[i] || '_journal_' || coalesce(in_use, 0)) INTO last;
			due := (SELECT min(s.due_at) FROM tidewire.queue_side AS s WHERE s.queue = ids[i] AND s.token IS NULL AND NOT s.dead);
			head := NULL;
			IF coalesce(pg_sequence_last_value(('tidewire.stream_' || ids[i] || '_position_seq')::regclass), 0) <> settled[i] THEN
				head := (SELECT s.head FROM tidewire.stream_state(ids[i]) AS s);
			END IF;
			RETURN NEXT;
		EXCEPTION WHEN undefined_table OR lock_not_available OR internal_error THEN
			NULL;
		END;
	END LOOP;
END
$$;
CREATE FUNCTION tidewire.make_partitions(stream_id integer, most integer) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
	whole tidewire.stream;
	made int;
	id int;
BEGIN
	SELECT * INTO whole FROM tidewire.stream AS s WHERE s.id = stream_id FOR UPDATE;
	IF NOT FOUND OR whole.state <> 'making' THEN
		RETURN coalesce(whole.state, 'dropping'); -- another one has dropped it
	END IF;
	SELECT count(*) INTO made FROM tidewire.stream AS s WHERE s.parent = stream_id;
	FOR n IN made .. least(made + most, whole.partitions) - 1 LOOP
		INSERT INTO tidewire.stream (name, keyed, parent, partition)
			VALUES (whole.name || '/' || n, whole.keyed, stream_id, n) RETURNING tidewire.stream.id INTO id;
		PERFORM tidewire.create_stream_table(id, whole.keyed);
	END LOOP;
	IF made + most < whole.partitions THEN
		RETURN 'making';
	END IF;
	UPDATE tidewire.stream AS s SET state = 'ready' WHERE s.id = stream_id;
	RETURN 'ready';
END
$$;
CREATE FUNCTION tidewire.make_room(stream_id integer, head bigint, upto bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
	s tidewire.segment := tidewire.last_segment(stream_id);
	usual bigint;
	size bigint;
BEGIN
	WHILE upto >= s.grow_at LOOP
		IF upto <= s.last THEN
			BEGIN
				EXECUTE format('LOCK TABLE ONLY tidewire.%I IN SHARE UPDATE EXCLUSIVE MODE NOWAIT', 'stream_' || stream_id);
			EXCEPTION WHEN lock_not_available THEN
				RETURN;
			END;
		END IF;
		usual := coalesce(usual, tidewire.segment_rows(s, head));
		size := greatest(usual, upto - s.last);
		PERFORM tidewire.add_segment(stream_id, s.last + 1, s.last + size);
		s := (stream_id, s.last + 1, s.last + size, s.last + size - (size - 1) / 4, clock_timestamp());
	END LOOP;
END
$$;
CREATE FUNCTION tidewire.move_outbox() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
	target record;
	positions regclass;
	head bigint;
BEGIN
	-- First, and the messages last: what is published behind this, by another
	-- trigger or with constraints set immediate, is due again.
	DELETE FROM pg_temp.tidewire_outbox_due;
	FOR target IN SELECT stream, count(*) AS size FROM pg_temp.tidewire_outbox GROUP BY stream ORDER BY stream LOOP
		PERFORM pg_advisory_xact_lock(1953064037, target.stream);
		BEGIN
			positions := ('tidewire.stream_' || target.stream || '_position_seq')::regclass;
			head := coalesce(pg_sequence_last_value(positions), 0);
		EXCEPTION WHEN undefined_table OR internal_error THEN -- the latter while it was waited for
			RAISE EXCEPTION 'stream % was dropped', target.stream USING ERRCODE = 'TW003';
		END;
		PERFORM tidewire.make_room(target.stream, head, head + target.size);
		PERFORM setval(positions, head + target.size);
		EXECUTE format($sql$
			INSERT INTO tidewire.%I (position, created_at, key, headers, payload)
			SELECT $1 + row_number() OVER (ORDER BY number), $2, key, headers, payload
			FROM pg_temp.tidewire_outbox WHERE stream = $3$sql$, 'stream_' || target.stream)
			USING head, clock_timestamp(), target.stream;
	END LOOP;
	DELETE FROM pg_temp.tidewire_outbox;
	RETURN NULL;
END
$_$;
CREATE FUNCTION tidewire.open_outbox() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
	CREATE TEMPORARY TABLE tidewire_outbox (
		number bigint GENERATED ALWAYS AS IDENTITY, -- order of the calls
		stream int NOT NULL,
		key text,
		headers jsonb,
		payload bytea NOT NULL
	) ON COMMIT DELETE ROWS;
	CREATE TEMPORARY TABLE tidewire_outbox_due (due boolean) ON COMMIT DELETE ROWS;
	CREATE CONSTRAINT TRIGGER tidewire_move_outbox AFTER INSERT ON pg_temp.tidewire_outbox_due
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tidewire.move_outbox();
END
$$;
CREATE FUNCTION tidewire.open_producers(stream_id integer) RETURNS void
    LANGUAGE plpgsql
    AS $_$
BEGIN
	FOR i IN 0 .. 1 LOOP
		EXECUTE format($sql$
			CREATE TABLE tidewire.%1$I (
				sequence bigint NOT NULL,
				position bigint NOT NULL, -- of the first message
				producer text COLLATE "C" NOT NULL,
				CONSTRAINT %2$I PRIMARY KEY (producer, sequence)
			) WITH (autovacuum_enabled = false)$sql$,
			'producer_' || stream_id || '_' || i, 'producer_' || stream_id || '_' || i || '_pkey');
	END LOOP;
	EXECUTE format('CREATE TABLE tidewire.%I (producer text COLLATE "C" PRIMARY KEY, sequence bigint NOT NULL)',
		'producer_' || stream_id || '_floor');
	INSERT INTO tidewire.producer_window VALUES (stream_id, 0, clock_timestamp(), false);
END
$_$;
CREATE FUNCTION tidewire.pack_event(at bigint, created_at timestamp with time zone, is_json boolean, type text, id text, tags text[], data bytea) RETURNS bytea
    LANGUAGE sql STABLE
    AS $$
	SELECT int8send(at) || timestamptz_send(created_at) || CASE WHEN is_json THEN '\x03'::bytea ELSE '\x02'::bytea END
		|| int4send(octet_length(data)) || array_send(ARRAY[type, coalesce(id, '')] || tags)
$$;
CREATE FUNCTION tidewire.partition_of(key text, partitions integer) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT
    AS $$
	SELECT (('x' || encode(substr(sha256(convert_to(key, 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint % partitions)::int
$$;
CREATE FUNCTION tidewire.publish(stream text, key text, headers jsonb, payload bytea) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
	target tidewire.stream;
	stream_id int;
BEGIN
	SELECT * INTO target FROM tidewire.stream AS s WHERE s.name = publish.stream AND s.state = 'ready';
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no stream %', quote_nullable(stream) USING ERRCODE = 'TW003';
	END IF;
	IF payload IS NULL OR octet_length(payload) > 256 * 1024 * 1024 THEN
		RAISE EXCEPTION 'message payload: want 0 to 268435456 bytes' USING ERRCODE = 'TW004';
	END IF;
	IF octet_length(key) > 1024 THEN
		RAISE EXCEPTION 'message key: want at most 1024 bytes' USING ERRCODE = 'TW004';
	END IF;
	IF jsonb_typeof(headers) <> 'object' OR octet_length(headers::text) > 64 * 1024 THEN
		RAISE EXCEPTION 'message headers: want a JSON object of at most 65536 bytes' USING ERRCODE = 'TW004';
	END IF;
	stream_id := target.id;
	IF target.partitions > 0 THEN
		SELECT s.id INTO stream_id FROM tidewire.stream AS s WHERE s.parent = target.id AND s.partition =
			coalesce(tidewire.partition_of(nullif(key, ''), target.partitions),
				mod(pg_current_xact_id()::text::numeric, target.partitions)::int);
	END IF;
	PERFORM tidewire.publish_batch(stream_id, ARRAY[key], ARRAY[headers], ARRAY[payload]);
END
$$;
CREATE FUNCTION tidewire.publish_batch(stream_id integer, keys text[], headers jsonb[], payloads bytea[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
	PERFORM FROM tidewire.stream WHERE id = stream_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no stream %', stream_id USING ERRCODE = 'TW003';
	END IF;
	IF to_regclass('pg_temp.tidewire_outbox') IS NULL THEN
		PERFORM tidewire.open_outbox();
	END IF;
	INSERT INTO pg_temp.tidewire_outbox (stream, key, headers, payload)
		SELECT stream_id, nullif(k, ''), h, p
		FROM unnest(keys, headers, payloads) WITH ORDINALITY AS t (k, h, p, n) ORDER BY n;
	IF NOT EXISTS (SELECT FROM pg_temp.tidewire_outbox_due) THEN
		INSERT INTO pg_temp.tidewire_outbox_due VALUES (true);
	END IF;
END
$$;
CREATE FUNCTION tidewire.queue_end_side(queue_id integer, ended bigint, tried boolean) RETURNS void
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
	UPDATE tidewire.queue_side SET token = NULL, attempts = attempts + tried::int
	WHERE queue = queue_id AND token = ended
$$;
CREATE FUNCTION tidewire.queue_write(queue_id integer, seen bigint, own bigint, valid_until timestamp with time zone, lease interval, kinds smallint[], tokens bigint[], los bigint[], his bigint[], untils timestamp with time zone[], bodies bytea[], claim bigint, side jsonb) RETURNS TABLE(sequence bigint, kind smallint, token bigint, lo bigint, hi bigint, until timestamp with time zone, body bytea)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET lock_timeout TO '2s'
    AS $_$
DECLARE
	journal text := 'queue_' || queue_id || '_journal_' || tidewire.hold_queue(queue_id);
	insert_row text := format('INSERT INTO tidewire.%I (sequence, kind, token, lo, hi, until, body, top)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)', journal);
	at timestamptz := clock_timestamp();
	outcome int := 0;
	last bigint;
	old_top bigint;
	new_top bigint;
	own_moved boolean := false;
	moved boolean := false;
	leased boolean := false;
	writers bigint[] := '{}';
BEGIN
	EXECUTE format('SELECT sequence, top FROM tidewire.%I ORDER BY sequence DESC LIMIT 1', journal) INTO last, old_top;
	IF last > seen THEN
		EXECUTE format($sql$
			SELECT bool_or(kind = 1 OR token = $2 AND $2 <> 0), bool_or(kind IN (1, 3, 5, 7, 8)), bool_or(kind = 2), array_agg(DISTINCT token)
			FROM tidewire.%I WHERE sequence > $1$sql$, journal) INTO own_moved, moved, leased, writers USING seen, own;
	END IF;
	IF cardinality(kinds) = 0 AND claim = 0 THEN
		NULL; -- only looks
	ELSIF own_moved THEN
		outcome := 3;
	ELSIF valid_until <= at THEN
		outcome := 2;
	ELSIF kinds && '{3,5,8,11}'::smallint[] AND EXISTS (
		SELECT FROM unnest(kinds, tokens, untils) AS e (kind, token, until)
		WHERE (e.kind IN (5, 8, 11) OR e.kind = 3 AND e.token <> own)
			AND (moved OR e.kind = 11 AND leased OR e.kind = 3 AND (e.until > at OR e.token = ANY (writers)))
	) THEN
		outcome := 1;
	END IF;
	sequence := last; kind := outcome; token := 0; lo := 0; hi := 0; until := at; body := NULL;
	RETURN NEXT;
	IF last > seen THEN
		RETURN QUERY EXECUTE format($sql$
			SELECT sequence, kind, token, lo, hi, until, body FROM tidewire.%I WHERE sequence > $1 ORDER BY sequence$sql$, journal)
			USING seen;
	END IF;
	IF outcome < 2 THEN
		new_top := old_top + claim;
		FOR n IN 1 .. cardinality(kinds) LOOP
			IF kinds[n] = 8 AND outcome = 0 THEN
				new_top := greatest(new_top, his[n]);
			END IF;
		END LOOP;
		sequence := last;
		FOR n IN 1 .. cardinality(kinds) LOOP
			CONTINUE WHEN outcome = 1 AND (kinds[n] IN (5, 8, 11) OR kinds[n] = 3 AND tokens[n] <> own);
			sequence := sequence + 1; kind := CASE kinds[n] WHEN 11 THEN 2 ELSE kinds[n] END; token := tokens[n]; lo := los[n]; hi := his[n]; body := bodies[n];
			until := CASE kind WHEN 2 THEN at + lease ELSE untils[n] END;
			EXECUTE insert_row USING sequence, kind, token, lo, hi, until, body, new_top;
			RETURN NEXT;
			IF kind = 3 AND token <> own THEN
				PERFORM tidewire.queue_end_side(queue_id, token, true);
			END IF;
		END LOOP;
		IF claim > 0 THEN
			sequence := sequence + 1; kind := 4; token := own; lo := old_top + 1; hi := old_top + claim; until := NULL; body := NULL;
			EXECUTE insert_row USING sequence, kind, token, lo, hi, until, body, new_top;
			RETURN NEXT;
		END IF;
		IF side IS NOT NULL THEN
			RETURN QUERY SELECT * FROM tidewire.queue_write_side(queue_id, own, at, side);
		END IF;
		FOR n IN 1 .. cardinality(kinds) LOOP
			IF kinds[n] = 3 AND tokens[n] = own THEN
				PERFORM tidewire.queue_end_side(queue_id, own, false);
			END IF;
		END LOOP;
	END IF;
END
$_$;
CREATE FUNCTION tidewire.queue_write_side(queue_id integer, own bigint, at timestamp with time zone, side jsonb) RETURNS TABLE(sequence bigint, kind smallint, token bigint, lo bigint, hi bigint, until timestamp with time zone, body bytea)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
BEGIN
	DELETE FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.token = own
		AND s.position = ANY (ARRAY(SELECT jsonb_array_elements_text(side->'done')::bigint));
	-- From the log: a row of its own, though the journal says it is done.
	INSERT INTO tidewire.queue_side (queue, position, due_at, attempts, dead, reason)
		SELECT queue_id, p.position, coalesce(p.due, at + p.delay * interval '1 microsecond'), p.attempts, p.dead, p.reason
		FROM jsonb_to_recordset(side->'put') AS p (position bigint, due timestamptz, delay bigint, attempts int, dead boolean, reason text, fresh boolean)
		WHERE p.fresh ORDER BY p.position
		ON CONFLICT DO NOTHING;
	UPDATE tidewire.queue_side AS s
		SET due_at = at + p.delay * interval '1 microsecond', token = NULL, attempts = p.attempts, dead = p.dead, reason = p.reason
		FROM jsonb_to_recordset(side->'put') AS p (position bigint, delay bigint, attempts int, dead boolean, reason text, fresh boolean)
		WHERE NOT p.fresh AND s.queue = queue_id AND s.position = p.position AND s.token = own;
	UPDATE tidewire.queue_side AS s SET token = own WHERE s.queue = queue_id AND s.position = ANY (ARRAY(
		SELECT d.position FROM tidewire.queue_side AS d
		WHERE d.queue = queue_id AND d.token IS NULL AND NOT d.dead AND d.due_at <= at
		ORDER BY d.due_at LIMIT (side->>'want')::int));
	RETURN QUERY SELECT 0::bigint, 101::smallint, 0::bigint, 0::bigint, 0::bigint, min(s.due_at), NULL::bytea
		FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.token IS NULL AND NOT s.dead;
	-- Also those of a call whose answer the caller never got.
	RETURN QUERY SELECT s.position, 102::smallint, s.attempts::bigint, 0::bigint, 0::bigint, s.due_at, NULL::bytea
		FROM tidewire.queue_side AS s WHERE s.queue = queue_id AND s.token = own AND own <> 0
		AND s.position <> ALL (ARRAY(SELECT jsonb_array_elements_text(side->'known')::bigint)) ORDER BY s.position;
END
$$;
CREATE FUNCTION tidewire.read_key(stream_id integer, the_key text, after bigint, upto bigint, most integer, backward boolean) RETURNS TABLE("position" bigint, key text, headers jsonb, payload bytea, created_at timestamp with time zone)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_column
DECLARE
	parent text := 'stream_' || stream_id;
	direction text := CASE WHEN backward THEN 'DESC' ELSE 'ASC' END;
	segment_last bigint;
	found_here int;
BEGIN
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
$_$;
CREATE FUNCTION tidewire.read_offsets(ids integer[]) RETURNS TABLE(id integer, committed bigint)
    LANGUAGE plpgsql
    AS $_$
DECLARE
	in_use text := tidewire.hold_offsets();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		SELECT g.id, o.position FROM tidewire.stream_group AS g
		CROSS JOIN LATERAL (
			SELECT position FROM tidewire.%I WHERE group_id = g.id
			ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
		) AS o WHERE g.id = ANY ($1)$sql$, in_use) USING ids;
END
$_$;
CREATE FUNCTION tidewire.record_event_requests(lock integer, head bigint, conflicts integer[], producers text[], sequences bigint[], calls integer[], firsts integer[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;
CREATE FUNCTION tidewire.record_requests(stream_id integer, size bigint, producers text[], sequences bigint[], rows bigint[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
	in_use int := (SELECT current FROM tidewire.producer_window WHERE stream = stream_id);
	first bigint := currval(format('tidewire.stream_%s_position_seq', stream_id)::regclass) - size + 1;
	recorded bigint;
BEGIN
	IF in_use IS NULL THEN
		PERFORM tidewire.open_producers(stream_id);
		in_use := 0;
	END IF;
	EXECUTE format($sql$
		INSERT INTO tidewire.%I (producer, sequence, position)
		SELECT p, s, $1 + r FROM unnest($2, $3, $4) AS t (p, s, r)
		WHERE (SELECT true FROM tidewire.%I AS o WHERE o.producer = p AND o.sequence = s) IS NULL
			AND (s <= (SELECT f.sequence FROM tidewire.%I AS f WHERE f.producer = p)) IS NOT TRUE$sql$,
		'producer_' || stream_id || '_' || in_use, 'producer_' || stream_id || '_' || 1 - in_use,
		'producer_' || stream_id || '_floor') USING first, producers, sequences, rows;
	GET DIAGNOSTICS recorded = ROW_COUNT;
	IF recorded < cardinality(producers) THEN
		RAISE EXCEPTION 'some requests of the batch are recorded already, or too old' USING ERRCODE = 'TW005';
	END IF;
END
$_$;
CREATE FUNCTION tidewire.refuse_partition(stream_name text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
	PERFORM FROM tidewire.stream WHERE name = stream_name AND parent IS NOT NULL;
	IF FOUND THEN
		RAISE EXCEPTION 'stream % is a partition of another', quote_ident(stream_name) USING ERRCODE = 'TW007';
	END IF;
END
$$;
CREATE FUNCTION tidewire.refuse_queue_retention() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, -NEW.stream);
	PERFORM FROM tidewire.queue WHERE id = NEW.stream;
	IF FOUND THEN
		RAISE EXCEPTION 'stream % belongs to a queue, which needs its messages until they are done: it takes no retention policy',
			(SELECT quote_ident(name) FROM tidewire.stream WHERE id = NEW.stream) USING ERRCODE = 'TW008';
	END IF;
	RETURN NEW;
END
$$;
CREATE FUNCTION tidewire.reserve_positions(lock_id integer, positions regclass, size bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
	head bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	head := coalesce(pg_sequence_last_value(positions), 0);
	PERFORM setval(positions, head + size);
	RETURN head + 1;
END
$$;
CREATE FUNCTION tidewire.rotate_offsets(max_rows bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET lock_timeout TO '100ms'
    AS $_$
DECLARE
	in_use int;
	at_size bigint;
	copied bigint;
	row_size CONSTANT int := 52; -- on the page, with its line pointer
BEGIN
	SELECT current, rotate_at INTO in_use, at_size FROM tidewire.group_rotation;
	IF pg_relation_size(('tidewire.group_offset_' || in_use)::regclass) < greatest(at_size, max_rows * row_size) THEN
		RETURN false;
	END IF;
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'offsets of groups need READ COMMITTED'
			USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, 2);
	PERFORM FROM tidewire.group_rotation WHERE current = in_use;
	IF NOT FOUND OR pg_relation_size(('tidewire.group_offset_' || 1 - in_use)::regclass) > 0 THEN
		RETURN false; -- another process was first, or the old rows are still there
	END IF;
	EXECUTE format($sql$
		INSERT INTO tidewire.%I
		SELECT o.* FROM tidewire.stream_group AS g
		CROSS JOIN LATERAL (
			SELECT * FROM tidewire.%I WHERE group_id = g.id
			ORDER BY group_id DESC, sequence DESC, position DESC LIMIT 1
		) AS o$sql$, 'group_offset_' || 1 - in_use, 'group_offset_' || in_use);
	GET DIAGNOSTICS copied = ROW_COUNT;
	-- Many groups alone fill a table: it is to double before it is worth it.
	UPDATE tidewire.group_rotation SET current = 1 - in_use, rotate_at = 2 * copied * row_size;
	RETURN true;
END
$_$;
CREATE FUNCTION tidewire.rotate_queue(queue_id integer, next_sequence bigint, top bigint, body bytea) RETURNS boolean
    LANGUAGE plpgsql
    AS $_$
DECLARE
	other int := 1 - tidewire.hold_queue(queue_id);
	journal text := 'queue_' || queue_id || '_journal_' || other;
BEGIN
	IF pg_relation_size(('tidewire.' || journal)::regclass) > 0 THEN
		RETURN false;
	END IF;
	EXECUTE format('INSERT INTO tidewire.%I VALUES ($1, 0, 0, 0, $2, NULL, 1, $3)', journal)
		USING next_sequence, top, body;
	UPDATE tidewire.queue SET active = other WHERE id = queue_id;
	RETURN true;
END
$_$;
CREATE FUNCTION tidewire.seal_segment(stream_id integer) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
	policy tidewire.retention;
	positions regclass := ('tidewire.stream_' || stream_id || '_position_seq')::regclass;
	head bigint;
	s tidewire.segment;
	name text;
	since timestamptz;
BEGIN
	IF NOT tidewire.hold_retention() THEN
		RETURN NULL;
	END IF;
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
CREATE FUNCTION tidewire.seek_offset(group_id integer, to_position bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $_$
DECLARE
	in_use text := tidewire.hold_offsets();
	last_sequence bigint;
BEGIN
	PERFORM FROM tidewire.stream_group WHERE id = group_id;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	EXECUTE format('SELECT max(sequence) FROM tidewire.%I WHERE group_id = $1', in_use)
		INTO last_sequence USING group_id;
	EXECUTE format('INSERT INTO tidewire.%I VALUES ($1, $2, $3) ON CONFLICT DO NOTHING', in_use)
		USING group_id, last_sequence + 1, to_position;
	RETURN true;
END
$_$;
CREATE FUNCTION tidewire.segment_bytes(stream_id integer) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
	SELECT least(128 * 1024 * 1024, (SELECT max_bytes / 8 FROM tidewire.retention WHERE stream = stream_id))
$$;
CREATE FUNCTION tidewire.segment_rows(s tidewire.segment, head bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
	used bigint := least(head, s.last) - s.first + 1;
	size bigint := s.last - s.first + 1;
	bytes bigint;
	age interval := (SELECT max_age FROM tidewire.retention WHERE stream = s.stream);
	target bigint;
BEGIN
	IF used < 100 THEN
		RETURN size;
	END IF;
	bytes := pg_total_relation_size(to_regclass(format('tidewire.stream_%s_%s', s.stream, s.last)));
	target := used * (tidewire.segment_bytes(s.stream)::numeric / greatest(bytes, 1))
		* (1 + (SELECT count(*) FROM tidewire.segment AS g WHERE g.stream = s.stream) / 100);
	IF age IS NOT NULL THEN
		target := least(target, (used * extract(epoch FROM age) / 8
			/ greatest(extract(epoch FROM clock_timestamp() - s.created_at), 0.001))::bigint);
	END IF;
	RETURN greatest(100, least(target, 16 * size, 10000000));
END
$$;
CREATE FUNCTION tidewire.set_retention(stream_name text, age interval, bytes bigint, when_consumed boolean) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
	whole tidewire.stream;
	ids int[];
BEGIN
	PERFORM tidewire.refuse_partition(stream_name);
	SELECT * INTO whole FROM tidewire.stream WHERE name = stream_name AND state = 'ready' FOR KEY SHARE;
	ids := whole.id || ARRAY(SELECT id FROM tidewire.stream WHERE parent = whole.id ORDER BY id FOR KEY SHARE);
	DELETE FROM tidewire.retention WHERE stream = ANY (ids);
	IF age IS NOT NULL OR bytes IS NOT NULL OR when_consumed THEN
		INSERT INTO tidewire.retention
			SELECT id, age, CASE WHEN id = whole.id THEN bytes ELSE greatest(bytes / nullif(whole.partitions, 0), 1) END, when_consumed
			FROM unnest(ids) AS id WHERE id IS NOT NULL ORDER BY id
		ON CONFLICT (stream) DO UPDATE SET max_age = excluded.max_age, max_bytes = excluded.max_bytes, consumed = excluded.consumed;
	END IF;
	RETURN whole.id IS NOT NULL;
END
$$;
CREATE FUNCTION tidewire.share_quota(share_id integer, member_id bigint, OUT quota integer, OUT owned integer, OUT free integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
	total int;
BEGIN
	SELECT count(*), count(*) FILTER (WHERE owner = member_id), count(*) FILTER (WHERE owner IS NULL) INTO total, owned, free
		FROM tidewire.share_number WHERE share = share_id;
	SELECT total / r.members + (r.rank <= total % r.members)::int INTO quota FROM (
		SELECT m.id, count(*) OVER () AS members, row_number() OVER (ORDER BY count(n.number) DESC, m.id) AS rank
		FROM tidewire.share_member AS m
		LEFT JOIN tidewire.share_number AS n ON n.share = m.share AND n.owner = m.id
		WHERE m.share = share_id AND NOT m.leaving GROUP BY m.id
	) AS r WHERE r.id = member_id;
	quota := coalesce(quota, 0);
END
$$;
CREATE FUNCTION tidewire.stream_heads(ids integer[], settled bigint[]) RETURNS TABLE(id integer, reserved bigint, head bigint)
    LANGUAGE plpgsql
    SET lock_timeout TO '100ms'
    AS $$
DECLARE
	positions regclass;
BEGIN
	FOR i IN 1 .. cardinality(ids) LOOP
		BEGIN
			id := ids[i];
			head := NULL;
			positions := to_regclass('tidewire.stream_' || id || '_position_seq');
			IF positions IS NOT NULL THEN
				reserved := coalesce(pg_sequence_last_value(positions), 0);
				CONTINUE WHEN reserved = settled[i];
				SELECT s.head INTO head FROM tidewire.stream_state(id) AS s;
			END IF;
			RETURN NEXT;
		EXCEPTION WHEN undefined_table OR lock_not_available OR internal_error THEN
			NULL; -- being dropped, as the next poll will see, or being altered
		END;
	END LOOP;
END
$$;
CREATE FUNCTION tidewire.stream_state(stream_id integer, OUT head bigint, OUT oldest bigint, OUT reserved bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
	name text := 'stream_' || stream_id;
	back bigint := 1024;
BEGIN
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
CREATE FUNCTION tidewire.swap_requests(stream_id integer, keep interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
	w tidewire.producer_window;
	old text;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE EXCEPTION 'records of producers need READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	SELECT * INTO w FROM tidewire.producer_window
		WHERE stream = stream_id AND since <= clock_timestamp() - keep AND folded FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN false; -- another process was first, or the stream was dropped
	END IF;
	old := 'producer_' || stream_id || '_' || 1 - w.current;
	EXECUTE format('LOCK TABLE tidewire.%I IN ACCESS EXCLUSIVE MODE NOWAIT', old);
	EXECUTE format('TRUNCATE tidewire.%I', old);
	UPDATE tidewire.producer_window SET current = 1 - w.current, since = clock_timestamp(), folded = false
		WHERE stream = stream_id;
	RETURN true;
END
$$;
CREATE FUNCTION tidewire.take_positions(lock_id integer, positions regclass, size bigint, writer bigint, number bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
	head bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	head := coalesce(pg_sequence_last_value(positions), 0);
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = lock_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(lock_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
	RETURN head + 1;
END
$$;
CREATE FUNCTION tidewire.truncate_offsets() RETURNS void
    LANGUAGE plpgsql
    SET lock_timeout TO '100ms'
    AS $$
DECLARE
	old text := CASE tidewire.hold_offsets() WHEN 'group_offset_0' THEN 'group_offset_1' ELSE 'group_offset_0' END;
BEGIN
	IF pg_relation_size(('tidewire.' || old)::regclass) > 0 THEN
		EXECUTE format('LOCK TABLE tidewire.%I IN ACCESS EXCLUSIVE MODE NOWAIT', old);
		EXECUTE format('TRUNCATE tidewire.%I', old);
	END IF;
END
$$;
CREATE FUNCTION tidewire.truncate_queue(queue_id integer) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
	old text := 'queue_' || queue_id || '_journal_' || (1 - tidewire.hold_queue(queue_id));
BEGIN
	IF pg_relation_size(('tidewire.' || old)::regclass) > 0 THEN
		EXECUTE format('LOCK TABLE tidewire.%I IN ACCESS EXCLUSIVE MODE NOWAIT', old);
		EXECUTE format('TRUNCATE tidewire.%I', old);
	END IF;
END
$$;
CREATE FUNCTION tidewire.utf8_text(payload bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT
    AS $$
BEGIN
	RETURN convert_from(payload, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
	RETURN NULL;
END
$$;
CREATE TABLE public.messages (
    "position" bigint NOT NULL,
    payload bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON TABLE public.messages IS 'tidewire: messages as /ws/ingest received them';
CREATE SEQUENCE public.messages_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.messages_position_seq OWNED BY public.messages."position";
CREATE VIEW public.messages_text AS
 SELECT messages."position" AS id,
    tidewire.utf8_text(messages.payload) AS payload,
    messages.created_at
   FROM public.messages;
CREATE TABLE tidewire.batch (
    writer bigint NOT NULL,
    number bigint NOT NULL,
    first_position bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE tidewire.event_snapshot (
    store integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    fingerprint bytea NOT NULL,
    checksum bytea NOT NULL,
    state bytea NOT NULL,
    saved_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT event_snapshot_position_check CHECK (("position" > 0))
);
ALTER TABLE tidewire.event_store ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tidewire.event_store_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE tidewire.events_1 (
    "position" bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    is_json boolean NOT NULL,
    type text NOT NULL COLLATE pg_catalog."C",
    id text COLLATE pg_catalog."C",
    tags text[] NOT NULL COLLATE pg_catalog."C",
    data bytea NOT NULL,
    packed bytea
);
CREATE TABLE tidewire.events_1_batch (
    "position" bigint NOT NULL,
    first_position bigint NOT NULL,
    writer bigint NOT NULL,
    number bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    conflict_calls integer[],
    conflict_positions bigint[],
    conflict_types text[]
);
CREATE SEQUENCE tidewire.events_1_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE tidewire.events_1_position_seq OWNED BY tidewire.events_1."position";
CREATE TABLE tidewire.events_1_tag (
    tag bigint NOT NULL,
    "position" bigint NOT NULL,
    signature bigint NOT NULL,
    type integer NOT NULL,
    event tid
);
CREATE TABLE tidewire.group_offset_0 (
    group_id integer NOT NULL,
    sequence bigint NOT NULL,
    "position" bigint NOT NULL,
    CONSTRAINT group_offset_0_position_check CHECK (("position" >= 0))
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.group_offset_1 (
    group_id integer NOT NULL,
    sequence bigint NOT NULL,
    "position" bigint NOT NULL,
    CONSTRAINT group_offset_0_position_check CHECK (("position" >= 0))
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.group_rotation (
    current integer NOT NULL,
    rotate_at bigint NOT NULL
);
CREATE TABLE tidewire.migration (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE tidewire.producer_1000_0 (
    sequence bigint NOT NULL,
    "position" bigint NOT NULL,
    producer text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.producer_1000_1 (
    sequence bigint NOT NULL,
    "position" bigint NOT NULL,
    producer text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.producer_1000_floor (
    producer text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL
);
CREATE TABLE tidewire.producer_1073741825_0 (
    sequence bigint NOT NULL,
    "position" bigint NOT NULL,
    producer text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.producer_1073741825_1 (
    sequence bigint NOT NULL,
    "position" bigint NOT NULL,
    producer text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.producer_1073741825_floor (
    producer text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL
);
CREATE TABLE tidewire.producer_window (
    stream integer NOT NULL,
    current integer NOT NULL,
    since timestamp with time zone NOT NULL,
    folded boolean NOT NULL
);
CREATE TABLE tidewire.queue_1001_journal_0 (
    sequence bigint NOT NULL,
    token bigint NOT NULL,
    lo bigint NOT NULL,
    hi bigint NOT NULL,
    top bigint NOT NULL,
    until timestamp with time zone,
    kind smallint NOT NULL,
    body bytea
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.queue_1001_journal_1 (
    sequence bigint NOT NULL,
    token bigint NOT NULL,
    lo bigint NOT NULL,
    hi bigint NOT NULL,
    top bigint NOT NULL,
    until timestamp with time zone,
    kind smallint NOT NULL,
    body bytea
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.queue_1002_journal_0 (
    sequence bigint NOT NULL,
    token bigint NOT NULL,
    lo bigint NOT NULL,
    hi bigint NOT NULL,
    top bigint NOT NULL,
    until timestamp with time zone,
    kind smallint NOT NULL,
    body bytea
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.queue_1002_journal_1 (
    sequence bigint NOT NULL,
    token bigint NOT NULL,
    lo bigint NOT NULL,
    hi bigint NOT NULL,
    top bigint NOT NULL,
    until timestamp with time zone,
    kind smallint NOT NULL,
    body bytea
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.queue_1003_journal_0 (
    sequence bigint NOT NULL,
    token bigint NOT NULL,
    lo bigint NOT NULL,
    hi bigint NOT NULL,
    top bigint NOT NULL,
    until timestamp with time zone,
    kind smallint NOT NULL,
    body bytea
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.queue_1003_journal_1 (
    sequence bigint NOT NULL,
    token bigint NOT NULL,
    lo bigint NOT NULL,
    hi bigint NOT NULL,
    top bigint NOT NULL,
    until timestamp with time zone,
    kind smallint NOT NULL,
    body bytea
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.queue_1004_journal_0 (
    sequence bigint NOT NULL,
    token bigint NOT NULL,
    lo bigint NOT NULL,
    hi bigint NOT NULL,
    top bigint NOT NULL,
    until timestamp with time zone,
    kind smallint NOT NULL,
    body bytea
)
WITH (autovacuum_enabled='false');
CREATE TABLE tidewire.queue_1004_journal_1 (
    sequence bigint NOT NULL,
    token bigint NOT NULL,
    lo bigint NOT NULL,
    hi bigint NOT NULL,
    top bigint NOT NULL,
    until timestamp with time zone,
    kind smallint NOT NULL,
    body bytea
)
WITH (autovacuum_enabled='false');
ALTER TABLE tidewire.queue_family ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tidewire.queue_family_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE tidewire.queue_side (
    queue integer NOT NULL,
    "position" bigint NOT NULL,
    due_at timestamp with time zone NOT NULL,
    token bigint,
    attempts integer NOT NULL,
    dead boolean NOT NULL,
    reason text NOT NULL
);
CREATE TABLE tidewire.retention (
    stream integer NOT NULL,
    max_age interval,
    max_bytes bigint,
    consumed boolean NOT NULL,
    CONSTRAINT retention_max_age_check CHECK ((max_age > '00:00:00'::interval)),
    CONSTRAINT retention_max_bytes_check CHECK ((max_bytes > 0))
);
CREATE TABLE tidewire.share (
    id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    stream integer
);
ALTER TABLE tidewire.share ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tidewire.share_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE tidewire.share_member (
    id bigint NOT NULL,
    share integer NOT NULL,
    name text NOT NULL,
    until timestamp with time zone NOT NULL,
    leaving boolean DEFAULT false NOT NULL
);
ALTER TABLE tidewire.share_member ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tidewire.share_member_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE tidewire.share_number (
    share integer NOT NULL,
    number integer NOT NULL,
    owner bigint,
    token bigint
);
CREATE SEQUENCE tidewire.share_token_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE tidewire.stream_1000 (
    "position" bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    key text COLLATE pg_catalog."C",
    headers jsonb,
    payload bytea NOT NULL
)
PARTITION BY RANGE ("position");
CREATE TABLE tidewire.stream_1000_16384 (
    "position" bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    key text COLLATE pg_catalog."C",
    headers jsonb,
    payload bytea NOT NULL
);
CREATE SEQUENCE tidewire.stream_1000_oldest_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE tidewire.stream_1000_oldest_seq OWNED BY tidewire.stream_1000."position";
CREATE SEQUENCE tidewire.stream_1000_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE tidewire.stream_1000_position_seq OWNED BY tidewire.stream_1000."position";
CREATE TABLE tidewire.stream_1001 (
    "position" bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    key text COLLATE pg_catalog."C",
    headers jsonb,
    payload bytea NOT NULL
)
PARTITION BY RANGE ("position");
CREATE TABLE tidewire.stream_1001_16384 (
    "position" bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    key text COLLATE pg_catalog."C",
    headers jsonb,
    payload bytea NOT NULL
);
CREATE SEQUENCE tidewire.stream_1001_oldest_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE tidewire.stream_1001_oldest_seq OWNED BY tidewire.stream_1001."position";
CREATE SEQUENCE tidewire.stream_1001_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE tidewire.stream_1001_position_seq OWNED BY tidewire.stream_1001."position";
CREATE TABLE tidewire.stream_1002 (
    "position" bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    key text COLLATE pg_catalog."C",
    headers jsonb,
    payload bytea NOT NULL
)
PARTITION BY RANGE ("position");
CREATE TABLE tidewire.stream_1002_16384 (
    "position" bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    key text COLLATE pg_catalog."C",
    headers jsonb,
    payload bytea NOT NULL
);
CREATE SEQUENCE tidewire.stream_1002_oldest_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE tidewire.stream_1002_oldest_seq OWNED BY tidewire.stream_1002."position";
CREATE SEQUENCE tidewire.stream_1002_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE tidewire.stream_1002_position_seq OWNED BY tidewire.stream_1002."position";
CREATE TABLE tidewire.stream_1003 (
    "position" bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    key text COLLATE pg_catalog."C",
    headers jsonb,
    payload bytea NOT NULL
)
PARTITION BY RANGE ("position");
CREATE TABLE tidewire.stream_1003_16384 (
    "position" bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    key text COLLATE pg_catalog."C",
    headers jsonb,
    payload bytea NOT NULL
);
CREATE SEQUENCE tidewire.stream_1003_oldest_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE tidewire.stream_1003_oldest_seq OWNED BY tidewire.stream_1003."position";
CREATE SEQUENCE tidewire.stream_1003_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE tidewire.stream_1003_position_seq OWNED BY tidewire.stream_1003."position";
CREATE TABLE tidewire.stream_1004 (
    "position" bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    key text COLLATE pg_catalog."C",
    headers jsonb,
    payload bytea NOT NULL
)
PARTITION BY RANGE ("position");
CREATE TABLE tidewire.stream_1004_16384 (
    "position" bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    key text COLLATE pg_catalog."C",
    headers jsonb,
    payload bytea NOT NULL
);
CREATE SEQUENCE tidewire.stream_1004_oldest_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE tidewire.stream_1004_oldest_seq OWNED BY tidewire.stream_1004."position";
CREATE SEQUENCE tidewire.stream_1004_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE tidewire.stream_1004_position_seq OWNED BY tidewire.stream_1004."position";
CREATE TABLE tidewire.stream_group (
    id integer NOT NULL,
    stream integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT stream_group_name_check CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 128)))
);
ALTER TABLE tidewire.stream_group ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tidewire.stream_group_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
ALTER TABLE tidewire.stream ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tidewire.stream_id_seq
    START WITH 1000
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
ALTER TABLE ONLY tidewire.stream_1000 ATTACH PARTITION tidewire.stream_1000_16384 FOR VALUES FROM ('1') TO ('16385');
ALTER TABLE ONLY tidewire.stream_1001 ATTACH PARTITION tidewire.stream_1001_16384 FOR VALUES FROM ('1') TO ('16385');
ALTER TABLE ONLY tidewire.stream_1002 ATTACH PARTITION tidewire.stream_1002_16384 FOR VALUES FROM ('1') TO ('16385');
ALTER TABLE ONLY tidewire.stream_1003 ATTACH PARTITION tidewire.stream_1003_16384 FOR VALUES FROM ('1') TO ('16385');
ALTER TABLE ONLY tidewire.stream_1004 ATTACH PARTITION tidewire.stream_1004_16384 FOR VALUES FROM ('1') TO ('16385');
INSERT INTO public.messages VALUES
	(1, '\x696e6765737465642031', '2026-11-22 05:48:12.202939+00'),
	(2, '\x696e6765737465642032', '2026-11-22 05:48:12.202939+00'),
	(3, '\x696e6765737465642033', '2026-11-22 05:48:12.202939+00');
INSERT INTO tidewire.batch VALUES
	(2261276581012678860, 1, 1, '2026-11-22 05:48:12.202939+00'),
	(2890306306697618083, 1, 1, '2026-11-22 05:48:12.313198+00'),
	(2890306306697618083, 2, 2, '2026-11-22 05:48:12.35504+00'),
	(2890306306697618083, 3, 3, '2026-11-22 05:48:12.356301+00'),
	(2890306306697618083, 4, 4, '2026-11-22 05:48:12.358722+00'),
	(2890306306697618083, 5, 5, '2026-11-22 05:48:12.361136+00'),
	(2890306306697618083, 6, 6, '2026-11-22 05:48:12.365868+00'),
	(2890306306697618083, 7, 7, '2026-11-22 05:48:12.367773+00'),
	(2890306306697618083, 8, 8, '2026-11-22 05:48:12.370117+00'),
	(2890306306697618083, 9, 9, '2026-11-22 05:48:12.370682+00'),
	(2890306306697618083, 10, 10, '2026-11-22 05:48:12.373998+00'),
	(2890306306697618083, 11, 11, '2026-11-22 05:48:12.391147+00'),
	(2890306306697618083, 12, 12, '2026-11-22 05:48:12.396881+00'),
	(2890306306697618083, 13, 13, '2026-11-22 05:48:12.404866+00'),
	(2890306306697618083, 14, 14, '2026-11-22 05:48:12.405823+00'),
	(2890306306697618083, 15, 15, '2026-11-22 05:48:12.406583+00'),
	(2890306306697618083, 16, 16, '2026-11-22 05:48:12.411155+00'),
	(2890306306697618083, 17, 17, '2026-11-22 05:48:12.412963+00'),
	(2890306306697618083, 18, 18, '2026-11-22 05:48:12.418937+00'),
	(2890306306697618083, 19, 19, '2026-11-22 05:48:12.42016+00'),
	(2890306306697618083, 20, 20, '2026-11-22 05:48:12.424912+00'),
	(2890306306697618083, 21, 21, '2026-11-22 05:48:12.428522+00'),
	(2890306306697618083, 22, 22, '2026-11-22 05:48:12.429261+00'),
	(2890306306697618083, 23, 23, '2026-11-22 05:48:12.432159+00'),
	(2890306306697618083, 24, 24, '2026-11-22 05:48:12.432941+00'),
	(2890306306697618083, 25, 25, '2026-11-22 05:48:12.436827+00'),
	(2890306306697618083, 26, 26, '2026-11-22 05:48:12.439311+00'),
	(2890306306697618083, 27, 27, '2026-11-22 05:48:12.439975+00'),
	(2890306306697618083, 28, 28, '2026-11-22 05:48:12.440537+00'),
	(2890306306697618083, 29, 29, '2026-11-22 05:48:12.442762+00'),
	(2890306306697618083, 30, 30, '2026-11-22 05:48:12.444821+00'),
	(2890306306697618083, 31, 31, '2026-11-22 05:48:12.456917+00'),
	(2890306306697618083, 32, 32, '2026-11-22 05:48:12.460826+00'),
	(2890306306697618083, 33, 33, '2026-11-22 05:48:12.463497+00'),
	(2890306306697618083, 34, 34, '2026-11-22 05:48:12.464133+00'),
	(2890306306697618083, 35, 35, '2026-11-22 05:48:12.466611+00'),
	(2890306306697618083, 36, 36, '2026-11-22 05:48:12.46732+00'),
	(2890306306697618083, 37, 37, '2026-11-22 05:48:12.467878+00'),
	(2890306306697618083, 38, 38, '2026-11-22 05:48:12.468389+00'),
	(2890306306697618083, 39, 39, '2026-11-22 05:48:12.469101+00'),
	(2890306306697618083, 40, 40, '2026-11-22 05:48:12.469619+00'),
	(2890306306697618083, 41, 41, '2026-11-22 05:48:12.472835+00'),
	(2890306306697618083, 42, 42, '2026-11-22 05:48:12.47675+00'),
	(2890306306697618083, 43, 43, '2026-11-22 05:48:12.47745+00'),
	(2890306306697618083, 44, 44, '2026-11-22 05:48:12.478144+00'),
	(2890306306697618083, 45, 45, '2026-11-22 05:48:12.47869+00'),
	(2890306306697618083, 46, 46, '2026-11-22 05:48:12.480898+00'),
	(2890306306697618083, 47, 47, '2026-11-22 05:48:12.483423+00'),
	(2890306306697618083, 48, 48, '2026-11-22 05:48:12.485473+00'),
	(2890306306697618083, 49, 49, '2026-11-22 05:48:12.488825+00'),
	(2890306306697618083, 50, 50, '2026-11-22 05:48:12.492924+00'),
	(6826326973878511888, 1, 1, '2026-11-22 05:48:13.662402+00'),
	(6826326973878511888, 2, 2, '2026-11-22 05:48:13.669067+00'),
	(6826326973878511888, 3, 3, '2026-11-22 05:48:13.669612+00'),
	(6826326973878511888, 4, 4, '2026-11-22 05:48:13.670021+00'),
	(6826326973878511888, 5, 5, '2026-11-22 05:48:13.67033+00'),
	(6826326973878511888, 6, 6, '2026-11-22 05:48:13.6729+00'),
	(6826326973878511888, 7, 7, '2026-11-22 05:48:13.673311+00'),
	(6826326973878511888, 8, 8, '2026-11-22 05:48:13.674345+00'),
	(6826326973878511888, 9, 9, '2026-11-22 05:48:13.674872+00'),
	(6826326973878511888, 10, 10, '2026-11-22 05:48:13.675306+00'),
	(6826326973878511888, 11, 11, '2026-11-22 05:48:13.67579+00'),
	(6826326973878511888, 12, 12, '2026-11-22 05:48:13.676914+00'),
	(6826326973878511888, 13, 13, '2026-11-22 05:48:13.677682+00'),
	(6826326973878511888, 14, 14, '2026-11-22 05:48:13.678191+00'),
	(6826326973878511888, 15, 15, '2026-11-22 05:48:13.680491+00'),
	(6826326973878511888, 16, 16, '2026-11-22 05:48:13.683117+00'),
	(6826326973878511888, 17, 17, '2026-11-22 05:48:13.688992+00'),
	(6826326973878511888, 18, 18, '2026-11-22 05:48:13.689339+00'),
	(6826326973878511888, 19, 19, '2026-11-22 05:48:13.689775+00'),
	(6826326973878511888, 20, 20, '2026-11-22 05:48:13.690038+00'),
	(6826326973878511888, 21, 21, '2026-11-22 05:48:13.690575+00'),
	(6826326973878511888, 22, 22, '2026-11-22 05:48:13.691072+00'),
	(6826326973878511888, 23, 23, '2026-11-22 05:48:13.691476+00'),
	(6826326973878511888, 24, 24, '2026-11-22 05:48:13.691713+00'),
	(6826326973878511888, 25, 25, '2026-11-22 05:48:13.692118+00'),
	(6826326973878511888, 26, 26, '2026-11-22 05:48:13.692561+00'),
	(6826326973878511888, 27, 27, '2026-11-22 05:48:13.69287+00'),
	(6826326973878511888, 28, 28, '2026-11-22 05:48:13.69336+00'),
	(6826326973878511888, 29, 29, '2026-11-22 05:48:13.693714+00'),
	(6826326973878511888, 30, 30, '2026-11-22 05:48:13.695639+00'),
	(6193305625758600491, 1, 1, '2026-11-22 05:48:14.063283+00'),
	(6193305625758600491, 2, 2, '2026-11-22 05:48:14.064339+00'),
	(6193305625758600491, 3, 3, '2026-11-22 05:48:14.064827+00'),
	(6193305625758600491, 4, 4, '2026-11-22 05:48:14.065234+00'),
	(6193305625758600491, 5, 5, '2026-11-22 05:48:14.065607+00'),
	(6193305625758600491, 6, 6, '2026-11-22 05:48:14.066006+00'),
	(6193305625758600491, 7, 7, '2026-11-22 05:48:14.066425+00'),
	(6193305625758600491, 8, 8, '2026-11-22 05:48:14.066638+00'),
	(6193305625758600491, 9, 9, '2026-11-22 05:48:14.066926+00'),
	(6193305625758600491, 10, 10, '2026-11-22 05:48:14.067161+00'),
	(6193305625758600491, 11, 11, '2026-11-22 05:48:14.067435+00'),
	(6193305625758600491, 12, 12, '2026-11-22 05:48:14.069402+00'),
	(6193305625758600491, 13, 13, '2026-11-22 05:48:14.069829+00'),
	(6193305625758600491, 14, 14, '2026-11-22 05:48:14.070094+00'),
	(6193305625758600491, 15, 15, '2026-11-22 05:48:14.070431+00'),
	(6193305625758600491, 16, 16, '2026-11-22 05:48:14.071592+00'),
	(6193305625758600491, 17, 17, '2026-11-22 05:48:14.07471+00'),
	(6193305625758600491, 18, 18, '2026-11-22 05:48:14.075107+00'),
	(6193305625758600491, 19, 19, '2026-11-22 05:48:14.075514+00');
INSERT INTO tidewire.batch VALUES
	(6193305625758600491, 20, 20, '2026-11-22 05:48:14.075764+00'),
	(6193305625758600491, 21, 21, '2026-11-22 05:48:14.075999+00'),
	(6193305625758600491, 22, 22, '2026-11-22 05:48:14.076248+00'),
	(6193305625758600491, 23, 23, '2026-11-22 05:48:14.076484+00'),
	(6193305625758600491, 24, 24, '2026-11-22 05:48:14.076756+00'),
	(6193305625758600491, 25, 25, '2026-11-22 05:48:14.076982+00'),
	(6193305625758600491, 26, 26, '2026-11-22 05:48:14.077235+00'),
	(6193305625758600491, 27, 27, '2026-11-22 05:48:14.07745+00'),
	(6193305625758600491, 28, 28, '2026-11-22 05:48:14.077755+00'),
	(6193305625758600491, 29, 29, '2026-11-22 05:48:14.078042+00'),
	(6193305625758600491, 30, 30, '2026-11-22 05:48:14.078274+00'),
	(6193305625758600491, 31, 31, '2026-11-22 05:48:14.078524+00'),
	(6193305625758600491, 32, 32, '2026-11-22 05:48:14.078808+00'),
	(6193305625758600491, 33, 33, '2026-11-22 05:48:14.079057+00'),
	(6193305625758600491, 34, 34, '2026-11-22 05:48:14.079275+00'),
	(6193305625758600491, 35, 35, '2026-11-22 05:48:14.079502+00'),
	(6193305625758600491, 36, 36, '2026-11-22 05:48:14.079718+00'),
	(6193305625758600491, 37, 37, '2026-11-22 05:48:14.07996+00'),
	(6193305625758600491, 38, 38, '2026-11-22 05:48:14.080185+00'),
	(6193305625758600491, 39, 39, '2026-11-22 05:48:14.080447+00'),
	(6193305625758600491, 40, 40, '2026-11-22 05:48:14.080662+00'),
	(6193305625758600491, 41, 41, '2026-11-22 05:48:14.080921+00'),
	(6193305625758600491, 42, 42, '2026-11-22 05:48:14.081137+00'),
	(6193305625758600491, 43, 43, '2026-11-22 05:48:14.081362+00'),
	(6193305625758600491, 44, 44, '2026-11-22 05:48:14.081573+00'),
	(6193305625758600491, 45, 45, '2026-11-22 05:48:14.081796+00'),
	(6193305625758600491, 46, 46, '2026-11-22 05:48:14.082009+00'),
	(6193305625758600491, 47, 47, '2026-11-22 05:48:14.082233+00'),
	(6193305625758600491, 48, 48, '2026-11-22 05:48:14.082445+00'),
	(6193305625758600491, 49, 49, '2026-11-22 05:48:14.08503+00'),
	(6193305625758600491, 50, 50, '2026-11-22 05:48:14.085331+00'),
	(6193305625758600491, 51, 51, '2026-11-22 05:48:14.085587+00'),
	(6193305625758600491, 52, 52, '2026-11-22 05:48:14.085822+00'),
	(6193305625758600491, 53, 53, '2026-11-22 05:48:14.086064+00'),
	(6193305625758600491, 54, 54, '2026-11-22 05:48:14.086278+00'),
	(6193305625758600491, 55, 55, '2026-11-22 05:48:14.086512+00'),
	(6193305625758600491, 56, 56, '2026-11-22 05:48:14.086722+00'),
	(6193305625758600491, 57, 57, '2026-11-22 05:48:14.087503+00'),
	(6193305625758600491, 58, 58, '2026-11-22 05:48:14.087735+00'),
	(6193305625758600491, 59, 59, '2026-11-22 05:48:14.087968+00'),
	(6193305625758600491, 60, 60, '2026-11-22 05:48:14.088195+00'),
	(6193305625758600491, 61, 61, '2026-11-22 05:48:14.088434+00'),
	(6193305625758600491, 62, 62, '2026-11-22 05:48:14.088652+00'),
	(6193305625758600491, 63, 63, '2026-11-22 05:48:14.089036+00'),
	(6193305625758600491, 64, 64, '2026-11-22 05:48:14.089258+00'),
	(6193305625758600491, 65, 65, '2026-11-22 05:48:14.089497+00'),
	(6193305625758600491, 66, 66, '2026-11-22 05:48:14.089801+00'),
	(6193305625758600491, 67, 67, '2026-11-22 05:48:14.089995+00'),
	(6193305625758600491, 68, 68, '2026-11-22 05:48:14.090239+00'),
	(6193305625758600491, 69, 69, '2026-11-22 05:48:14.090493+00'),
	(6193305625758600491, 70, 70, '2026-11-22 05:48:14.090716+00'),
	(6193305625758600491, 71, 71, '2026-11-22 05:48:14.090936+00'),
	(6193305625758600491, 72, 72, '2026-11-22 05:48:14.091136+00'),
	(6193305625758600491, 73, 73, '2026-11-22 05:48:14.091389+00'),
	(6193305625758600491, 74, 74, '2026-11-22 05:48:14.091601+00'),
	(6193305625758600491, 75, 75, '2026-11-22 05:48:14.091818+00'),
	(6193305625758600491, 76, 76, '2026-11-22 05:48:14.09202+00'),
	(6193305625758600491, 77, 77, '2026-11-22 05:48:14.092239+00'),
	(6193305625758600491, 78, 78, '2026-11-22 05:48:14.092458+00'),
	(6193305625758600491, 79, 79, '2026-11-22 05:48:14.092652+00'),
	(6193305625758600491, 80, 80, '2026-11-22 05:48:14.09293+00'),
	(6193305625758600491, 81, 81, '2026-11-22 05:48:14.093132+00'),
	(6193305625758600491, 82, 82, '2026-11-22 05:48:14.093384+00'),
	(6193305625758600491, 83, 83, '2026-11-22 05:48:14.093608+00'),
	(6193305625758600491, 84, 84, '2026-11-22 05:48:14.093826+00'),
	(6193305625758600491, 85, 85, '2026-11-22 05:48:14.094073+00'),
	(6193305625758600491, 86, 86, '2026-11-22 05:48:14.094291+00'),
	(6193305625758600491, 87, 87, '2026-11-22 05:48:14.094481+00'),
	(6193305625758600491, 88, 88, '2026-11-22 05:48:14.094727+00'),
	(6193305625758600491, 89, 89, '2026-11-22 05:48:14.094946+00'),
	(6193305625758600491, 90, 90, '2026-11-22 05:48:14.095165+00'),
	(6193305625758600491, 91, 91, '2026-11-22 05:48:14.095373+00'),
	(6193305625758600491, 92, 92, '2026-11-22 05:48:14.095613+00'),
	(6193305625758600491, 93, 93, '2026-11-22 05:48:14.095855+00'),
	(6193305625758600491, 94, 94, '2026-11-22 05:48:14.096098+00'),
	(6193305625758600491, 95, 95, '2026-11-22 05:48:14.096386+00'),
	(6193305625758600491, 96, 96, '2026-11-22 05:48:14.096712+00'),
	(6193305625758600491, 97, 97, '2026-11-22 05:48:14.097057+00'),
	(6193305625758600491, 98, 98, '2026-11-22 05:48:14.097308+00'),
	(6193305625758600491, 99, 99, '2026-11-22 05:48:14.097565+00'),
	(6193305625758600491, 100, 100, '2026-11-22 05:48:14.097796+00'),
	(7436716316175799951, 1, 1, '2026-11-22 05:48:14.368581+00'),
	(3952466279368920277, 1, 1, '2026-11-22 05:48:14.372552+00'),
	(7436716316175799951, 2, 2, '2026-11-22 05:48:14.379536+00'),
	(3952466279368920277, 2, 2, '2026-11-22 05:48:14.380301+00'),
	(7436716316175799951, 3, 3, '2026-11-22 05:48:14.382461+00'),
	(3952466279368920277, 3, 3, '2026-11-22 05:48:14.383055+00'),
	(7436716316175799951, 4, 4, '2026-11-22 05:48:14.384905+00'),
	(3952466279368920277, 4, 4, '2026-11-22 05:48:14.385325+00'),
	(7436716316175799951, 5, 5, '2026-11-22 05:48:14.385925+00'),
	(3952466279368920277, 5, 5, '2026-11-22 05:48:14.386492+00');
INSERT INTO tidewire.event_store OVERRIDING SYSTEM VALUE VALUES
	(1, 'default', '2026-11-22 05:48:14.516764+00');
INSERT INTO tidewire.events_1 VALUES
	(1, '2026-11-22 05:48:14.693678+00', false, 'T', NULL, '{tag:0}', '\x7b226e223a317d', '\x0000000000000001000303d5cac0f92e00000000070100015400057461673a30'),
	(2, '2026-11-22 05:48:14.743883+00', false, 'T', NULL, '{tag:1}', '\x7b226e223a327d', '\x0000000000000002000303d5cac1bd4b00000000070100015400057461673a31'),
	(3, '2026-11-22 05:48:14.746715+00', false, 'T', NULL, '{tag:2}', '\x7b226e223a337d', '\x0000000000000003000303d5cac1c85b00000000070100015400057461673a32'),
	(4, '2026-11-22 05:48:14.748049+00', false, 'T', NULL, '{tag:0}', '\x7b226e223a347d', '\x0000000000000004000303d5cac1cd9100000000070100015400057461673a30'),
	(5, '2026-11-22 05:48:14.748996+00', false, 'T', NULL, '{tag:1}', '\x7b226e223a357d', '\x0000000000000005000303d5cac1d14400000000070100015400057461673a31'),
	(6, '2026-11-22 05:48:14.822138+00', false, 'T', NULL, '{tag:2}', '\x7b226e223a367d', '\x0000000000000006000303d5cac2eefa00000000070100015400057461673a32'),
	(7, '2026-11-22 05:48:14.82532+00', false, 'T', NULL, '{tag:0}', '\x7b226e223a377d', '\x0000000000000007000303d5cac2fb6800000000070100015400057461673a30'),
	(8, '2026-11-22 05:48:14.826247+00', false, 'T', NULL, '{tag:1}', '\x7b226e223a387d', '\x0000000000000008000303d5cac2ff0700000000070100015400057461673a31'),
	(9, '2026-11-22 05:48:14.826852+00', false, 'T', NULL, '{tag:2}', '\x7b226e223a397d', '\x0000000000000009000303d5cac3016400000000070100015400057461673a32'),
	(10, '2026-11-22 05:48:14.827579+00', false, 'T', NULL, '{tag:0}', '\x7b226e223a31307d', '\x000000000000000a000303d5cac3043b00000000080100015400057461673a30'),
	(11, '2026-11-22 05:48:14.828357+00', false, 'T', NULL, '{tag:1}', '\x7b226e223a31317d', '\x000000000000000b000303d5cac3074500000000080100015400057461673a31'),
	(12, '2026-11-22 05:48:14.829242+00', false, 'T', NULL, '{tag:2}', '\x7b226e223a31327d', '\x000000000000000c000303d5cac30aba00000000080100015400057461673a32'),
	(13, '2026-11-22 05:48:14.829959+00', false, 'T', NULL, '{tag:0}', '\x7b226e223a31337d', '\x000000000000000d000303d5cac30d8700000000080100015400057461673a30'),
	(14, '2026-11-22 05:48:14.830751+00', false, 'T', NULL, '{tag:1}', '\x7b226e223a31347d', '\x000000000000000e000303d5cac3109f00000000080100015400057461673a31'),
	(15, '2026-11-22 05:48:14.831439+00', false, 'T', NULL, '{tag:2}', '\x7b226e223a31357d', '\x000000000000000f000303d5cac3134f00000000080100015400057461673a32'),
	(16, '2026-11-22 05:48:14.8322+00', false, 'T', NULL, '{tag:0}', '\x7b226e223a31367d', '\x0000000000000010000303d5cac3164800000000080100015400057461673a30'),
	(17, '2026-11-22 05:48:14.833041+00', false, 'T', NULL, '{tag:1}', '\x7b226e223a31377d', '\x0000000000000011000303d5cac3199100000000080100015400057461673a31'),
	(18, '2026-11-22 05:48:14.833734+00', false, 'T', NULL, '{tag:2}', '\x7b226e223a31387d', '\x0000000000000012000303d5cac31c4600000000080100015400057461673a32'),
	(19, '2026-11-22 05:48:14.834457+00', false, 'T', NULL, '{tag:0}', '\x7b226e223a31397d', '\x0000000000000013000303d5cac31f1900000000080100015400057461673a30'),
	(20, '2026-11-22 05:48:14.83514+00', false, 'T', NULL, '{tag:1}', '\x7b226e223a32307d', '\x0000000000000014000303d5cac321c400000000080100015400057461673a31');
INSERT INTO tidewire.events_1_batch VALUES
	(1, 1, 5637715298478145776, 1, '2026-11-22 05:48:14.693678+00', NULL, NULL, NULL),
	(2, 2, 5637715298478145776, 2, '2026-11-22 05:48:14.743883+00', NULL, NULL, NULL),
	(3, 3, 5637715298478145776, 3, '2026-11-22 05:48:14.746715+00', NULL, NULL, NULL),
	(4, 4, 5637715298478145776, 4, '2026-11-22 05:48:14.748049+00', NULL, NULL, NULL),
	(5, 5, 5637715298478145776, 5, '2026-11-22 05:48:14.748996+00', NULL, NULL, NULL),
	(6, 6, 5637715298478145776, 6, '2026-11-22 05:48:14.822138+00', NULL, NULL, NULL),
	(7, 7, 5637715298478145776, 7, '2026-11-22 05:48:14.82532+00', NULL, NULL, NULL),
	(8, 8, 5637715298478145776, 8, '2026-11-22 05:48:14.826247+00', NULL, NULL, NULL),
	(9, 9, 5637715298478145776, 9, '2026-11-22 05:48:14.826852+00', NULL, NULL, NULL),
	(10, 10, 5637715298478145776, 10, '2026-11-22 05:48:14.827579+00', NULL, NULL, NULL),
	(11, 11, 5637715298478145776, 11, '2026-11-22 05:48:14.828357+00', NULL, NULL, NULL),
	(12, 12, 5637715298478145776, 12, '2026-11-22 05:48:14.829242+00', NULL, NULL, NULL),
	(13, 13, 5637715298478145776, 13, '2026-11-22 05:48:14.829959+00', NULL, NULL, NULL),
	(14, 14, 5637715298478145776, 14, '2026-11-22 05:48:14.830751+00', NULL, NULL, NULL),
	(15, 15, 5637715298478145776, 15, '2026-11-22 05:48:14.831439+00', NULL, NULL, NULL),
	(16, 16, 5637715298478145776, 16, '2026-11-22 05:48:14.8322+00', NULL, NULL, NULL),
	(17, 17, 5637715298478145776, 17, '2026-11-22 05:48:14.833041+00', NULL, NULL, NULL),
	(18, 18, 5637715298478145776, 18, '2026-11-22 05:48:14.833734+00', NULL, NULL, NULL),
	(19, 19, 5637715298478145776, 19, '2026-11-22 05:48:14.834457+00', NULL, NULL, NULL),
	(20, 20, 5637715298478145776, 20, '2026-11-22 05:48:14.83514+00', NULL, NULL, NULL);
INSERT INTO tidewire.events_1_tag VALUES
	(2354000398746874588, 1, 36028797287401472, 376504937, '(0,1)'),
	(3962548943998445344, 2, 4563402816, 376504937, '(0,2)'),
	(-8196828954623169016, 3, 72057594037929216, 376504937, '(0,3)'),
	(2354000398746874588, 4, 36028797287401472, 376504937, '(0,4)'),
	(3962548943998445344, 5, 4563402816, 376504937, '(0,5)'),
	(-8196828954623169016, 6, 72057594037929216, 376504937, '(0,6)'),
	(2354000398746874588, 7, 36028797287401472, 376504937, '(0,7)'),
	(3962548943998445344, 8, 4563402816, 376504937, '(0,8)'),
	(-8196828954623169016, 9, 72057594037929216, 376504937, '(0,9)'),
	(2354000398746874588, 10, 36028797287401472, 376504937, '(0,10)'),
	(3962548943998445344, 11, 4563402816, 376504937, '(0,11)'),
	(-8196828954623169016, 12, 72057594037929216, 376504937, '(0,12)'),
	(2354000398746874588, 13, 36028797287401472, 376504937, '(0,13)'),
	(3962548943998445344, 14, 4563402816, 376504937, '(0,14)'),
	(-8196828954623169016, 15, 72057594037929216, 376504937, '(0,15)'),
	(2354000398746874588, 16, 36028797287401472, 376504937, '(0,16)'),
	(3962548943998445344, 17, 4563402816, 376504937, '(0,17)'),
	(-8196828954623169016, 18, 72057594037929216, 376504937, '(0,18)'),
	(2354000398746874588, 19, 36028797287401472, 376504937, '(0,19)'),
	(3962548943998445344, 20, 4563402816, 376504937, '(0,20)');
INSERT INTO tidewire.group_offset_1 VALUES
	(1, 1, 0),
	(2, 1, 10),
	(3, 1, 45),
	(4, 1, 30);
INSERT INTO tidewire.group_rotation VALUES
	(1, 416);
INSERT INTO tidewire.migration VALUES
	(1, '0001_messages', '2026-11-22 05:48:11.370909+00'),
	(2, '0002_streams', '2026-11-22 05:48:11.534269+00'),
	(3, '0003_groups', '2026-11-22 05:48:11.59581+00'),
	(4, '0004_queue', '2026-11-22 05:48:11.718123+00'),
	(5, '0005_segments', '2026-11-22 05:48:11.805771+00'),
	(6, '0006_retention', '2026-11-22 05:48:11.884419+00'),
	(7, '0007_producers', '2026-11-22 05:48:11.887914+00'),
	(8, '0008_partitions', '2026-11-22 05:48:11.907211+00'),
	(9, '0009_queue_write', '2026-11-22 05:48:12.015258+00'),
	(10, '0010_queue_families', '2026-11-22 05:48:12.033589+00'),
	(11, '0011_events', '2026-11-22 05:48:12.078278+00'),
	(12, '0012_event_functions', '2026-11-22 05:48:12.120718+00'),
	(13, '0013_event_reads', '2026-11-22 05:48:12.145747+00');
INSERT INTO tidewire.producer_1000_0 VALUES
	(30, 31, 'p'),
	(31, 32, 'p'),
	(32, 33, 'p'),
	(33, 34, 'p'),
	(34, 35, 'p'),
	(35, 36, 'p'),
	(36, 37, 'p'),
	(37, 38, 'p'),
	(38, 39, 'p'),
	(39, 40, 'p'),
	(40, 41, 'p'),
	(41, 42, 'p'),
	(42, 43, 'p'),
	(43, 44, 'p'),
	(44, 45, 'p'),
	(45, 46, 'p'),
	(46, 47, 'p'),
	(47, 48, 'p'),
	(48, 49, 'p'),
	(49, 50, 'p');
INSERT INTO tidewire.producer_1000_1 VALUES
	(10, 11, 'p'),
	(11, 12, 'p'),
	(12, 13, 'p'),
	(13, 14, 'p'),
	(14, 15, 'p'),
	(15, 16, 'p'),
	(16, 17, 'p'),
	(17, 18, 'p'),
	(18, 19, 'p'),
	(19, 20, 'p'),
	(20, 21, 'p'),
	(21, 22, 'p'),
	(22, 23, 'p'),
	(23, 24, 'p'),
	(24, 25, 'p'),
	(25, 26, 'p'),
	(26, 27, 'p'),
	(27, 28, 'p'),
	(28, 29, 'p'),
	(29, 30, 'p');
INSERT INTO tidewire.producer_1000_floor VALUES
	('p', 9);
INSERT INTO tidewire.producer_1073741825_0 VALUES
	(0, 1, 'p'),
	(1, 2, 'p'),
	(2, 3, 'p'),
	(3, 4, 'p'),
	(4, 5, 'p');
INSERT INTO tidewire.producer_1073741825_1 VALUES
	(5, 6, 'p'),
	(6, 7, 'p'),
	(7, 8, 'p'),
	(8, 9, 'p'),
	(9, 10, 'p'),
	(10, 11, 'p'),
	(11, 12, 'p'),
	(12, 13, 'p'),
	(13, 14, 'p'),
	(14, 15, 'p'),
	(15, 16, 'p'),
	(16, 17, 'p'),
	(17, 18, 'p'),
	(18, 19, 'p'),
	(19, 20, 'p');
INSERT INTO tidewire.producer_window VALUES
	(1000, 0, '2026-11-22 05:48:12.456112+00', false),
	(1073741825, 1, '2026-11-22 05:48:14.820843+00', false);
INSERT INTO tidewire.queue VALUES
	(1001, 0, 2, '00:00:00.01', '00:05:00', NULL, NULL),
	(1002, 1, 10, '00:00:01', '00:05:00', NULL, NULL),
	(1003, 0, 10, '00:00:01', '00:05:00', 1, 0),
	(1004, 0, 10, '00:00:01', '00:05:00', 1, 1);
INSERT INTO tidewire.queue_1001_journal_0 VALUES
	(1, 0, 0, 0, 0, NULL, 1, NULL),
	(2, 3269272808712218927, 0, 0, 1, '2026-11-22 05:48:15.713078+00', 2, NULL),
	(3, 3269272808712218927, 1, 1, 1, NULL, 4, NULL),
	(4, 3269272808712218927, 0, 0, 2, NULL, 6, '\x0100'),
	(5, 3269272808712218927, 2, 2, 2, NULL, 4, NULL),
	(6, 3269272808712218927, 0, 0, 3, NULL, 6, '\x0200'),
	(7, 3269272808712218927, 3, 3, 3, NULL, 4, NULL),
	(8, 3269272808712218927, 0, 0, 4, NULL, 6, '\x0300'),
	(9, 3269272808712218927, 4, 4, 4, NULL, 4, NULL),
	(10, 3269272808712218927, 0, 0, 5, NULL, 6, '\x0400'),
	(11, 3269272808712218927, 5, 5, 5, NULL, 4, NULL),
	(12, 3269272808712218927, 0, 0, 6, NULL, 6, '\x0500'),
	(13, 3269272808712218927, 6, 6, 6, NULL, 4, NULL),
	(14, 3269272808712218927, 0, 0, 7, NULL, 6, '\x0600'),
	(15, 3269272808712218927, 7, 7, 7, NULL, 4, NULL),
	(16, 3269272808712218927, 0, 0, 8, NULL, 6, '\x0700'),
	(17, 3269272808712218927, 8, 8, 8, NULL, 4, NULL),
	(18, 3269272808712218927, 0, 0, 9, NULL, 6, '\x0800'),
	(19, 3269272808712218927, 9, 9, 9, NULL, 4, NULL),
	(20, 3269272808712218927, 0, 0, 10, NULL, 6, '\x0900'),
	(21, 3269272808712218927, 10, 10, 10, NULL, 4, NULL),
	(22, 3269272808712218927, 0, 0, 11, NULL, 6, '\x0a00'),
	(23, 3269272808712218927, 11, 11, 11, NULL, 4, NULL),
	(24, 3269272808712218927, 0, 0, 12, NULL, 6, '\x0b00'),
	(25, 3269272808712218927, 12, 12, 12, NULL, 4, NULL),
	(26, 3269272808712218927, 0, 0, 13, NULL, 6, '\x0c00'),
	(27, 3269272808712218927, 13, 13, 13, NULL, 4, NULL),
	(28, 3269272808712218927, 0, 0, 13, NULL, 10, NULL),
	(29, 3269272808712218927, 0, 0, 14, NULL, 6, '\x0d00'),
	(30, 3269272808712218927, 14, 14, 14, NULL, 4, NULL);
INSERT INTO tidewire.queue_1002_journal_1 VALUES
	(14, 0, 0, 0, 6, NULL, 1, '\x7b22746f70223a362c226c697665223a5b5b362c362c313537373435393331383239393136383437352c305d5d2c226c6561736573223a7b2231353737343539333138323939313638343735223a313739353332363439363130333635367d2c226c617374223a7b2231353737343539333138323939313638343735223a5b31332c313739353332363439363130333635365d7d2c22706175736564223a66616c73657d'),
	(15, 1577459318299168475, 7, 7, 7, NULL, 4, NULL),
	(16, 1577459318299168475, 0, 0, 7, NULL, 6, '\x0600'),
	(17, 1577459318299168475, 0, 0, 8, NULL, 6, '\x0700'),
	(18, 1577459318299168475, 8, 8, 8, NULL, 4, NULL),
	(19, 1577459318299168475, 0, 0, 9, NULL, 6, '\x0800'),
	(20, 1577459318299168475, 9, 9, 9, NULL, 4, NULL),
	(21, 1577459318299168475, 0, 0, 10, NULL, 6, '\x0900'),
	(22, 1577459318299168475, 10, 10, 10, NULL, 4, NULL),
	(23, 1577459318299168475, 0, 0, 11, NULL, 6, '\x0a00'),
	(24, 1577459318299168475, 11, 11, 11, NULL, 4, NULL),
	(25, 1577459318299168475, 0, 0, 12, NULL, 6, '\x0b00'),
	(26, 1577459318299168475, 12, 12, 12, NULL, 4, NULL),
	(27, 1577459318299168475, 0, 0, 13, NULL, 6, '\x0c00'),
	(28, 1577459318299168475, 13, 13, 13, NULL, 4, NULL),
	(29, 1577459318299168475, 0, 0, 14, NULL, 6, '\x0d00'),
	(30, 1577459318299168475, 14, 14, 14, NULL, 4, NULL),
	(31, 1577459318299168475, 0, 0, 15, NULL, 6, '\x0e00'),
	(32, 1577459318299168475, 15, 15, 15, NULL, 4, NULL),
	(33, 1577459318299168475, 0, 0, 16, NULL, 6, '\x0f00'),
	(34, 1577459318299168475, 16, 16, 16, NULL, 4, NULL),
	(35, 1577459318299168475, 0, 0, 17, NULL, 6, '\x1000'),
	(36, 1577459318299168475, 17, 17, 17, NULL, 4, NULL),
	(37, 1577459318299168475, 0, 0, 18, NULL, 6, '\x1100'),
	(38, 1577459318299168475, 18, 18, 18, NULL, 4, NULL),
	(39, 1577459318299168475, 0, 0, 19, NULL, 6, '\x1200'),
	(40, 1577459318299168475, 19, 19, 19, NULL, 4, NULL),
	(41, 1577459318299168475, 0, 0, 20, NULL, 6, '\x1300'),
	(42, 1577459318299168475, 20, 20, 20, NULL, 4, NULL),
	(43, 1577459318299168475, 0, 0, 21, NULL, 6, '\x1400'),
	(44, 1577459318299168475, 21, 21, 21, NULL, 4, NULL),
	(45, 1577459318299168475, 0, 0, 22, NULL, 6, '\x1500'),
	(46, 1577459318299168475, 22, 22, 22, NULL, 4, NULL),
	(47, 1577459318299168475, 0, 0, 23, NULL, 6, '\x1600'),
	(48, 1577459318299168475, 23, 23, 23, NULL, 4, NULL),
	(49, 1577459318299168475, 0, 0, 24, NULL, 6, '\x1700'),
	(50, 1577459318299168475, 24, 24, 24, NULL, 4, NULL),
	(51, 1577459318299168475, 0, 0, 25, NULL, 6, '\x1800'),
	(52, 1577459318299168475, 25, 25, 25, NULL, 4, NULL),
	(53, 1577459318299168475, 0, 0, 26, NULL, 6, '\x1900'),
	(54, 1577459318299168475, 26, 26, 26, NULL, 4, NULL),
	(55, 1577459318299168475, 0, 0, 27, NULL, 6, '\x1a00'),
	(56, 1577459318299168475, 27, 27, 27, NULL, 4, NULL),
	(57, 1577459318299168475, 0, 0, 28, NULL, 6, '\x1b00'),
	(58, 1577459318299168475, 28, 28, 28, NULL, 4, NULL),
	(59, 1577459318299168475, 0, 0, 29, NULL, 6, '\x1c00'),
	(60, 1577459318299168475, 29, 29, 29, NULL, 4, NULL),
	(61, 1577459318299168475, 0, 0, 30, NULL, 6, '\x1d00'),
	(62, 1577459318299168475, 30, 30, 30, NULL, 4, NULL),
	(63, 1577459318299168475, 0, 0, 31, NULL, 6, '\x1e00'),
	(64, 1577459318299168475, 31, 31, 31, NULL, 4, NULL),
	(65, 1577459318299168475, 0, 0, 32, NULL, 6, '\x1f00'),
	(66, 1577459318299168475, 32, 32, 32, NULL, 4, NULL),
	(67, 1577459318299168475, 0, 0, 33, NULL, 6, '\x2000'),
	(68, 1577459318299168475, 33, 33, 33, NULL, 4, NULL),
	(69, 1577459318299168475, 0, 0, 34, NULL, 6, '\x2100'),
	(70, 1577459318299168475, 34, 34, 34, NULL, 4, NULL),
	(71, 1577459318299168475, 0, 0, 35, NULL, 6, '\x2200'),
	(72, 1577459318299168475, 35, 35, 35, NULL, 4, NULL),
	(73, 1577459318299168475, 0, 0, 36, NULL, 6, '\x2300'),
	(74, 1577459318299168475, 36, 36, 36, NULL, 4, NULL),
	(75, 1577459318299168475, 0, 0, 37, NULL, 6, '\x2400'),
	(76, 1577459318299168475, 37, 37, 37, NULL, 4, NULL),
	(77, 1577459318299168475, 0, 0, 38, NULL, 6, '\x2500'),
	(78, 1577459318299168475, 38, 38, 38, NULL, 4, NULL),
	(79, 1577459318299168475, 0, 0, 39, NULL, 6, '\x2600'),
	(80, 1577459318299168475, 39, 39, 39, NULL, 4, NULL),
	(81, 1577459318299168475, 0, 0, 40, NULL, 6, '\x2700'),
	(82, 1577459318299168475, 40, 40, 40, NULL, 4, NULL),
	(83, 1577459318299168475, 0, 0, 41, NULL, 6, '\x2800'),
	(84, 1577459318299168475, 41, 41, 41, NULL, 4, NULL),
	(85, 1577459318299168475, 0, 0, 42, NULL, 6, '\x2900'),
	(86, 1577459318299168475, 42, 42, 42, NULL, 4, NULL),
	(87, 1577459318299168475, 0, 0, 43, NULL, 6, '\x2a00'),
	(88, 1577459318299168475, 43, 43, 43, NULL, 4, NULL),
	(89, 1577459318299168475, 0, 0, 44, NULL, 6, '\x2b00'),
	(90, 1577459318299168475, 44, 44, 44, NULL, 4, NULL),
	(91, 1577459318299168475, 0, 0, 45, NULL, 6, '\x2c00'),
	(92, 1577459318299168475, 45, 45, 45, NULL, 4, NULL),
	(93, 1577459318299168475, 0, 0, 46, NULL, 6, '\x2d00'),
	(94, 1577459318299168475, 46, 46, 46, NULL, 4, NULL),
	(95, 1577459318299168475, 0, 0, 47, NULL, 6, '\x2e00'),
	(96, 1577459318299168475, 47, 47, 47, NULL, 4, NULL),
	(97, 1577459318299168475, 0, 0, 48, NULL, 6, '\x2f00'),
	(98, 1577459318299168475, 48, 48, 48, NULL, 4, NULL),
	(99, 1577459318299168475, 0, 0, 49, NULL, 6, '\x3000'),
	(100, 1577459318299168475, 49, 49, 49, NULL, 4, NULL),
	(101, 1577459318299168475, 0, 0, 50, NULL, 6, '\x3100'),
	(102, 1577459318299168475, 50, 50, 50, NULL, 4, NULL),
	(103, 1577459318299168475, 0, 0, 51, NULL, 6, '\x3200'),
	(104, 1577459318299168475, 51, 51, 51, NULL, 4, NULL),
	(105, 1577459318299168475, 0, 0, 52, NULL, 6, '\x3300'),
	(106, 1577459318299168475, 52, 52, 52, NULL, 4, NULL),
	(107, 1577459318299168475, 0, 0, 53, NULL, 6, '\x3400'),
	(108, 1577459318299168475, 53, 53, 53, NULL, 4, NULL),
	(109, 1577459318299168475, 0, 0, 54, NULL, 6, '\x3500'),
	(110, 1577459318299168475, 54, 54, 54, NULL, 4, NULL),
	(111, 1577459318299168475, 0, 0, 55, NULL, 6, '\x3600'),
	(112, 1577459318299168475, 55, 55, 55, NULL, 4, NULL),
	(113, 1577459318299168475, 0, 0, 56, NULL, 6, '\x3700');
INSERT INTO tidewire.queue_1002_journal_1 VALUES
	(114, 1577459318299168475, 56, 56, 56, NULL, 4, NULL),
	(115, 1577459318299168475, 0, 0, 57, NULL, 6, '\x3800'),
	(116, 1577459318299168475, 57, 57, 57, NULL, 4, NULL),
	(117, 1577459318299168475, 0, 0, 58, NULL, 6, '\x3900'),
	(118, 1577459318299168475, 58, 58, 58, NULL, 4, NULL),
	(119, 1577459318299168475, 0, 0, 59, NULL, 6, '\x3a00'),
	(120, 1577459318299168475, 59, 59, 59, NULL, 4, NULL),
	(121, 1577459318299168475, 0, 0, 60, NULL, 6, '\x3b00'),
	(122, 1577459318299168475, 60, 60, 60, NULL, 4, NULL),
	(123, 1577459318299168475, 0, 0, 61, NULL, 6, '\x3c00'),
	(124, 1577459318299168475, 61, 61, 61, NULL, 4, NULL),
	(125, 1577459318299168475, 0, 0, 61, NULL, 10, NULL),
	(126, 1577459318299168475, 0, 0, 61, NULL, 3, NULL);
INSERT INTO tidewire.queue_1003_journal_0 VALUES
	(1, 0, 0, 0, 0, NULL, 1, NULL);
INSERT INTO tidewire.queue_1004_journal_0 VALUES
	(1, 0, 0, 0, 0, NULL, 1, NULL),
	(2, 3991893470613921384, 0, 0, 1, '2026-11-22 05:48:16.426535+00', 2, NULL),
	(3, 3991893470613921384, 1, 1, 1, NULL, 4, NULL),
	(4, 3991893470613921384, 0, 0, 2, NULL, 6, '\x0100'),
	(5, 3991893470613921384, 2, 2, 2, NULL, 4, NULL),
	(6, 3991893470613921384, 0, 0, 3, NULL, 6, '\x0200'),
	(7, 3991893470613921384, 3, 3, 3, NULL, 4, NULL),
	(8, 3991893470613921384, 0, 0, 4, NULL, 6, '\x0300'),
	(9, 3991893470613921384, 4, 4, 4, NULL, 4, NULL),
	(10, 3991893470613921384, 0, 0, 5, NULL, 6, '\x0400'),
	(11, 3991893470613921384, 5, 5, 5, NULL, 4, NULL),
	(12, 3991893470613921384, 0, 0, 5, NULL, 10, NULL),
	(13, 3991893470613921384, 0, 0, 5, NULL, 3, NULL);
INSERT INTO tidewire.queue_family OVERRIDING SYSTEM VALUE VALUES
	(1, 'ranked', 2, 0, false);
INSERT INTO tidewire.queue_side VALUES
	(1001, 11, '2026-11-22 05:48:13.993046+00', NULL, 2, true, 'no'),
	(1001, 13, '2026-11-22 06:48:13.976953+00', NULL, 1, false, 'later');
INSERT INTO tidewire.segment VALUES
	(1000, 1, 16384, 12289, '2026-11-22 05:48:12.277938+00'),
	(1001, 1, 16384, 12289, '2026-11-22 05:48:13.621888+00'),
	(1002, 1, 16384, 12289, '2026-11-22 05:48:14.027066+00'),
	(1003, 1, 16384, 12289, '2026-11-22 05:48:14.269677+00'),
	(1004, 1, 16384, 12289, '2026-11-22 05:48:14.287518+00');
INSERT INTO tidewire.stream OVERRIDING SYSTEM VALUE VALUES
	(1000, 'orders', true, '2026-11-22 05:48:12.22543+00', NULL, NULL, 0, 'ready'),
	(1001, 'jobs', false, '2026-11-22 05:48:13.584314+00', NULL, NULL, 0, 'ready'),
	(1002, 'rotated', false, '2026-11-22 05:48:14.004831+00', NULL, NULL, 0, 'ready'),
	(1003, 'ranked/0', false, '2026-11-22 05:48:14.246006+00', NULL, NULL, 0, 'ready'),
	(1004, 'ranked/1', false, '2026-11-22 05:48:14.270662+00', NULL, NULL, 0, 'ready');
INSERT INTO tidewire.stream_1000_16384 VALUES
	(1, '2026-11-22 05:48:12.313198+00', 'k0', NULL, '\x6f726465722031'),
	(2, '2026-11-22 05:48:12.35504+00', 'k1', NULL, '\x6f726465722032'),
	(3, '2026-11-22 05:48:12.356301+00', 'k2', NULL, '\x6f726465722033'),
	(4, '2026-11-22 05:48:12.358722+00', 'k3', NULL, '\x6f726465722034'),
	(5, '2026-11-22 05:48:12.361136+00', 'k4', NULL, '\x6f726465722035'),
	(6, '2026-11-22 05:48:12.365868+00', 'k0', NULL, '\x6f726465722036'),
	(7, '2026-11-22 05:48:12.367773+00', 'k1', NULL, '\x6f726465722037'),
	(8, '2026-11-22 05:48:12.370117+00', 'k2', NULL, '\x6f726465722038'),
	(9, '2026-11-22 05:48:12.370682+00', 'k3', NULL, '\x6f726465722039'),
	(10, '2026-11-22 05:48:12.373998+00', 'k4', NULL, '\x6f72646572203130'),
	(11, '2026-11-22 05:48:12.391147+00', 'k0', NULL, '\x6f72646572203131'),
	(12, '2026-11-22 05:48:12.396881+00', 'k1', NULL, '\x6f72646572203132'),
	(13, '2026-11-22 05:48:12.404866+00', 'k2', NULL, '\x6f72646572203133'),
	(14, '2026-11-22 05:48:12.405823+00', 'k3', NULL, '\x6f72646572203134'),
	(15, '2026-11-22 05:48:12.406583+00', 'k4', NULL, '\x6f72646572203135'),
	(16, '2026-11-22 05:48:12.411155+00', 'k0', NULL, '\x6f72646572203136'),
	(17, '2026-11-22 05:48:12.412963+00', 'k1', NULL, '\x6f72646572203137'),
	(18, '2026-11-22 05:48:12.418937+00', 'k2', NULL, '\x6f72646572203138'),
	(19, '2026-11-22 05:48:12.42016+00', 'k3', NULL, '\x6f72646572203139'),
	(20, '2026-11-22 05:48:12.424912+00', 'k4', NULL, '\x6f72646572203230'),
	(21, '2026-11-22 05:48:12.428522+00', 'k0', NULL, '\x6f72646572203231'),
	(22, '2026-11-22 05:48:12.429261+00', 'k1', NULL, '\x6f72646572203232'),
	(23, '2026-11-22 05:48:12.432159+00', 'k2', NULL, '\x6f72646572203233'),
	(24, '2026-11-22 05:48:12.432941+00', 'k3', NULL, '\x6f72646572203234'),
	(25, '2026-11-22 05:48:12.436827+00', 'k4', NULL, '\x6f72646572203235'),
	(26, '2026-11-22 05:48:12.439311+00', 'k0', NULL, '\x6f72646572203236'),
	(27, '2026-11-22 05:48:12.439975+00', 'k1', NULL, '\x6f72646572203237'),
	(28, '2026-11-22 05:48:12.440537+00', 'k2', NULL, '\x6f72646572203238'),
	(29, '2026-11-22 05:48:12.442762+00', 'k3', NULL, '\x6f72646572203239'),
	(30, '2026-11-22 05:48:12.444821+00', 'k4', NULL, '\x6f72646572203330'),
	(31, '2026-11-22 05:48:12.456917+00', 'k0', NULL, '\x6f72646572203331'),
	(32, '2026-11-22 05:48:12.460826+00', 'k1', NULL, '\x6f72646572203332'),
	(33, '2026-11-22 05:48:12.463497+00', 'k2', NULL, '\x6f72646572203333'),
	(34, '2026-11-22 05:48:12.464133+00', 'k3', NULL, '\x6f72646572203334'),
	(35, '2026-11-22 05:48:12.466611+00', 'k4', NULL, '\x6f72646572203335'),
	(36, '2026-11-22 05:48:12.46732+00', 'k0', NULL, '\x6f72646572203336'),
	(37, '2026-11-22 05:48:12.467878+00', 'k1', NULL, '\x6f72646572203337'),
	(38, '2026-11-22 05:48:12.468389+00', 'k2', NULL, '\x6f72646572203338'),
	(39, '2026-11-22 05:48:12.469101+00', 'k3', NULL, '\x6f72646572203339'),
	(40, '2026-11-22 05:48:12.469619+00', 'k4', NULL, '\x6f72646572203430'),
	(41, '2026-11-22 05:48:12.472835+00', 'k0', NULL, '\x6f72646572203431'),
	(42, '2026-11-22 05:48:12.47675+00', 'k1', NULL, '\x6f72646572203432'),
	(43, '2026-11-22 05:48:12.47745+00', 'k2', NULL, '\x6f72646572203433'),
	(44, '2026-11-22 05:48:12.478144+00', 'k3', NULL, '\x6f72646572203434'),
	(45, '2026-11-22 05:48:12.47869+00', 'k4', NULL, '\x6f72646572203435'),
	(46, '2026-11-22 05:48:12.480898+00', 'k0', NULL, '\x6f72646572203436'),
	(47, '2026-11-22 05:48:12.483423+00', 'k1', NULL, '\x6f72646572203437'),
	(48, '2026-11-22 05:48:12.485473+00', 'k2', NULL, '\x6f72646572203438'),
	(49, '2026-11-22 05:48:12.488825+00', 'k3', NULL, '\x6f72646572203439'),
	(50, '2026-11-22 05:48:12.492924+00', 'k4', NULL, '\x6f72646572203530');
INSERT INTO tidewire.stream_1001_16384 VALUES
	(1, '2026-11-22 05:48:13.662402+00', NULL, NULL, '\x6a6f62732031'),
	(2, '2026-11-22 05:48:13.669067+00', NULL, NULL, '\x6a6f62732032'),
	(3, '2026-11-22 05:48:13.669612+00', NULL, NULL, '\x6a6f62732033'),
	(4, '2026-11-22 05:48:13.670021+00', NULL, NULL, '\x6a6f62732034'),
	(5, '2026-11-22 05:48:13.67033+00', NULL, NULL, '\x6a6f62732035'),
	(6, '2026-11-22 05:48:13.6729+00', NULL, NULL, '\x6a6f62732036'),
	(7, '2026-11-22 05:48:13.673311+00', NULL, NULL, '\x6a6f62732037'),
	(8, '2026-11-22 05:48:13.674345+00', NULL, NULL, '\x6a6f62732038'),
	(9, '2026-11-22 05:48:13.674872+00', NULL, NULL, '\x6a6f62732039'),
	(10, '2026-11-22 05:48:13.675306+00', NULL, NULL, '\x6a6f6273203130'),
	(11, '2026-11-22 05:48:13.67579+00', NULL, NULL, '\x6a6f6273203131'),
	(12, '2026-11-22 05:48:13.676914+00', NULL, NULL, '\x6a6f6273203132'),
	(13, '2026-11-22 05:48:13.677682+00', NULL, NULL, '\x6a6f6273203133'),
	(14, '2026-11-22 05:48:13.678191+00', NULL, NULL, '\x6a6f6273203134'),
	(15, '2026-11-22 05:48:13.680491+00', NULL, NULL, '\x6a6f6273203135'),
	(16, '2026-11-22 05:48:13.683117+00', NULL, NULL, '\x6a6f6273203136'),
	(17, '2026-11-22 05:48:13.688992+00', NULL, NULL, '\x6a6f6273203137'),
	(18, '2026-11-22 05:48:13.689339+00', NULL, NULL, '\x6a6f6273203138'),
	(19, '2026-11-22 05:48:13.689775+00', NULL, NULL, '\x6a6f6273203139'),
	(20, '2026-11-22 05:48:13.690038+00', NULL, NULL, '\x6a6f6273203230'),
	(21, '2026-11-22 05:48:13.690575+00', NULL, NULL, '\x6a6f6273203231'),
	(22, '2026-11-22 05:48:13.691072+00', NULL, NULL, '\x6a6f6273203232'),
	(23, '2026-11-22 05:48:13.691476+00', NULL, NULL, '\x6a6f6273203233'),
	(24, '2026-11-22 05:48:13.691713+00', NULL, NULL, '\x6a6f6273203234'),
	(25, '2026-11-22 05:48:13.692118+00', NULL, NULL, '\x6a6f6273203235'),
	(26, '2026-11-22 05:48:13.692561+00', NULL, NULL, '\x6a6f6273203236'),
	(27, '2026-11-22 05:48:13.69287+00', NULL, NULL, '\x6a6f6273203237'),
	(28, '2026-11-22 05:48:13.69336+00', NULL, NULL, '\x6a6f6273203238'),
	(29, '2026-11-22 05:48:13.693714+00', NULL, NULL, '\x6a6f6273203239'),
	(30, '2026-11-22 05:48:13.695639+00', NULL, NULL, '\x6a6f6273203330');
INSERT INTO tidewire.stream_1002_16384 VALUES
	(1, '2026-11-22 05:48:14.063283+00', NULL, NULL, '\x726f74617465642031'),
	(2, '2026-11-22 05:48:14.064339+00', NULL, NULL, '\x726f74617465642032'),
	(3, '2026-11-22 05:48:14.064827+00', NULL, NULL, '\x726f74617465642033'),
	(4, '2026-11-22 05:48:14.065234+00', NULL, NULL, '\x726f74617465642034'),
	(5, '2026-11-22 05:48:14.065607+00', NULL, NULL, '\x726f74617465642035'),
	(6, '2026-11-22 05:48:14.066006+00', NULL, NULL, '\x726f74617465642036'),
	(7, '2026-11-22 05:48:14.066425+00', NULL, NULL, '\x726f74617465642037'),
	(8, '2026-11-22 05:48:14.066638+00', NULL, NULL, '\x726f74617465642038'),
	(9, '2026-11-22 05:48:14.066926+00', NULL, NULL, '\x726f74617465642039'),
	(10, '2026-11-22 05:48:14.067161+00', NULL, NULL, '\x726f7461746564203130'),
	(11, '2026-11-22 05:48:14.067435+00', NULL, NULL, '\x726f7461746564203131'),
	(12, '2026-11-22 05:48:14.069402+00', NULL, NULL, '\x726f7461746564203132'),
	(13, '2026-11-22 05:48:14.069829+00', NULL, NULL, '\x726f7461746564203133'),
	(14, '2026-11-22 05:48:14.070094+00', NULL, NULL, '\x726f7461746564203134'),
	(15, '2026-11-22 05:48:14.070431+00', NULL, NULL, '\x726f7461746564203135'),
	(16, '2026-11-22 05:48:14.071592+00', NULL, NULL, '\x726f7461746564203136'),
	(17, '2026-11-22 05:48:14.07471+00', NULL, NULL, '\x726f7461746564203137'),
	(18, '2026-11-22 05:48:14.075107+00', NULL, NULL, '\x726f7461746564203138'),
	(19, '2026-11-22 05:48:14.075514+00', NULL, NULL, '\x726f7461746564203139'),
	(20, '2026-11-22 05:48:14.075764+00', NULL, NULL, '\x726f7461746564203230'),
	(21, '2026-11-22 05:48:14.075999+00', NULL, NULL, '\x726f7461746564203231'),
	(22, '2026-11-22 05:48:14.076248+00', NULL, NULL, '\x726f7461746564203232'),
	(23, '2026-11-22 05:48:14.076484+00', NULL, NULL, '\x726f7461746564203233'),
	(24, '2026-11-22 05:48:14.076756+00', NULL, NULL, '\x726f7461746564203234'),
	(25, '2026-11-22 05:48:14.076982+00', NULL, NULL, '\x726f7461746564203235'),
	(26, '2026-11-22 05:48:14.077235+00', NULL, NULL, '\x726f7461746564203236'),
	(27, '2026-11-22 05:48:14.07745+00', NULL, NULL, '\x726f7461746564203237'),
	(28, '2026-11-22 05:48:14.077755+00', NULL, NULL, '\x726f7461746564203238'),
	(29, '2026-11-22 05:48:14.078042+00', NULL, NULL, '\x726f7461746564203239'),
	(30, '2026-11-22 05:48:14.078274+00', NULL, NULL, '\x726f7461746564203330'),
	(31, '2026-11-22 05:48:14.078524+00', NULL, NULL, '\x726f7461746564203331'),
	(32, '2026-11-22 05:48:14.078808+00', NULL, NULL, '\x726f7461746564203332'),
	(33, '2026-11-22 05:48:14.079057+00', NULL, NULL, '\x726f7461746564203333'),
	(34, '2026-11-22 05:48:14.079275+00', NULL, NULL, '\x726f7461746564203334'),
	(35, '2026-11-22 05:48:14.079502+00', NULL, NULL, '\x726f7461746564203335'),
	(36, '2026-11-22 05:48:14.079718+00', NULL, NULL, '\x726f7461746564203336'),
	(37, '2026-11-22 05:48:14.07996+00', NULL, NULL, '\x726f7461746564203337'),
	(38, '2026-11-22 05:48:14.080185+00', NULL, NULL, '\x726f7461746564203338'),
	(39, '2026-11-22 05:48:14.080447+00', NULL, NULL, '\x726f7461746564203339'),
	(40, '2026-11-22 05:48:14.080662+00', NULL, NULL, '\x726f7461746564203430'),
	(41, '2026-11-22 05:48:14.080921+00', NULL, NULL, '\x726f7461746564203431'),
	(42, '2026-11-22 05:48:14.081137+00', NULL, NULL, '\x726f7461746564203432'),
	(43, '2026-11-22 05:48:14.081362+00', NULL, NULL, '\x726f7461746564203433'),
	(44, '2026-11-22 05:48:14.081573+00', NULL, NULL, '\x726f7461746564203434'),
	(45, '2026-11-22 05:48:14.081796+00', NULL, NULL, '\x726f7461746564203435'),
	(46, '2026-11-22 05:48:14.082009+00', NULL, NULL, '\x726f7461746564203436'),
	(47, '2026-11-22 05:48:14.082233+00', NULL, NULL, '\x726f7461746564203437'),
	(48, '2026-11-22 05:48:14.082445+00', NULL, NULL, '\x726f7461746564203438'),
	(49, '2026-11-22 05:48:14.08503+00', NULL, NULL, '\x726f7461746564203439'),
	(50, '2026-11-22 05:48:14.085331+00', NULL, NULL, '\x726f7461746564203530'),
	(51, '2026-11-22 05:48:14.085587+00', NULL, NULL, '\x726f7461746564203531'),
	(52, '2026-11-22 05:48:14.085822+00', NULL, NULL, '\x726f7461746564203532'),
	(53, '2026-11-22 05:48:14.086064+00', NULL, NULL, '\x726f7461746564203533'),
	(54, '2026-11-22 05:48:14.086278+00', NULL, NULL, '\x726f7461746564203534'),
	(55, '2026-11-22 05:48:14.086512+00', NULL, NULL, '\x726f7461746564203535'),
	(56, '2026-11-22 05:48:14.086722+00', NULL, NULL, '\x726f7461746564203536'),
	(57, '2026-11-22 05:48:14.087503+00', NULL, NULL, '\x726f7461746564203537'),
	(58, '2026-11-22 05:48:14.087735+00', NULL, NULL, '\x726f7461746564203538'),
	(59, '2026-11-22 05:48:14.087968+00', NULL, NULL, '\x726f7461746564203539'),
	(60, '2026-11-22 05:48:14.088195+00', NULL, NULL, '\x726f7461746564203630'),
	(61, '2026-11-22 05:48:14.088434+00', NULL, NULL, '\x726f7461746564203631'),
	(62, '2026-11-22 05:48:14.088652+00', NULL, NULL, '\x726f7461746564203632'),
	(63, '2026-11-22 05:48:14.089036+00', NULL, NULL, '\x726f7461746564203633'),
	(64, '2026-11-22 05:48:14.089258+00', NULL, NULL, '\x726f7461746564203634'),
	(65, '2026-11-22 05:48:14.089497+00', NULL, NULL, '\x726f7461746564203635'),
	(66, '2026-11-22 05:48:14.089801+00', NULL, NULL, '\x726f7461746564203636'),
	(67, '2026-11-22 05:48:14.089995+00', NULL, NULL, '\x726f7461746564203637'),
	(68, '2026-11-22 05:48:14.090239+00', NULL, NULL, '\x726f7461746564203638'),
	(69, '2026-11-22 05:48:14.090493+00', NULL, NULL, '\x726f7461746564203639'),
	(70, '2026-11-22 05:48:14.090716+00', NULL, NULL, '\x726f7461746564203730'),
	(71, '2026-11-22 05:48:14.090936+00', NULL, NULL, '\x726f7461746564203731'),
	(72, '2026-11-22 05:48:14.091136+00', NULL, NULL, '\x726f7461746564203732'),
	(73, '2026-11-22 05:48:14.091389+00', NULL, NULL, '\x726f7461746564203733'),
	(74, '2026-11-22 05:48:14.091601+00', NULL, NULL, '\x726f7461746564203734'),
	(75, '2026-11-22 05:48:14.091818+00', NULL, NULL, '\x726f7461746564203735'),
	(76, '2026-11-22 05:48:14.09202+00', NULL, NULL, '\x726f7461746564203736'),
	(77, '2026-11-22 05:48:14.092239+00', NULL, NULL, '\x726f7461746564203737'),
	(78, '2026-11-22 05:48:14.092458+00', NULL, NULL, '\x726f7461746564203738'),
	(79, '2026-11-22 05:48:14.092652+00', NULL, NULL, '\x726f7461746564203739'),
	(80, '2026-11-22 05:48:14.09293+00', NULL, NULL, '\x726f7461746564203830'),
	(81, '2026-11-22 05:48:14.093132+00', NULL, NULL, '\x726f7461746564203831'),
	(82, '2026-11-22 05:48:14.093384+00', NULL, NULL, '\x726f7461746564203832'),
	(83, '2026-11-22 05:48:14.093608+00', NULL, NULL, '\x726f7461746564203833'),
	(84, '2026-11-22 05:48:14.093826+00', NULL, NULL, '\x726f7461746564203834'),
	(85, '2026-11-22 05:48:14.094073+00', NULL, NULL, '\x726f7461746564203835'),
	(86, '2026-11-22 05:48:14.094291+00', NULL, NULL, '\x726f7461746564203836'),
	(87, '2026-11-22 05:48:14.094481+00', NULL, NULL, '\x726f7461746564203837'),
	(88, '2026-11-22 05:48:14.094727+00', NULL, NULL, '\x726f7461746564203838'),
	(89, '2026-11-22 05:48:14.094946+00', NULL, NULL, '\x726f7461746564203839'),
	(90, '2026-11-22 05:48:14.095165+00', NULL, NULL, '\x726f7461746564203930'),
	(91, '2026-11-22 05:48:14.095373+00', NULL, NULL, '\x726f7461746564203931'),
	(92, '2026-11-22 05:48:14.095613+00', NULL, NULL, '\x726f7461746564203932'),
	(93, '2026-11-22 05:48:14.095855+00', NULL, NULL, '\x726f7461746564203933'),
	(94, '2026-11-22 05:48:14.096098+00', NULL, NULL, '\x726f7461746564203934'),
	(95, '2026-11-22 05:48:14.096386+00', NULL, NULL, '\x726f7461746564203935'),
	(96, '2026-11-22 05:48:14.096712+00', NULL, NULL, '\x726f7461746564203936'),
	(97, '2026-11-22 05:48:14.097057+00', NULL, NULL, '\x726f7461746564203937'),
	(98, '2026-11-22 05:48:14.097308+00', NULL, NULL, '\x726f7461746564203938'),
	(99, '2026-11-22 05:48:14.097565+00', NULL, NULL, '\x726f7461746564203939'),
	(100, '2026-11-22 05:48:14.097796+00', NULL, NULL, '\x726f746174656420313030');
INSERT INTO tidewire.stream_1003_16384 VALUES
	(1, '2026-11-22 05:48:14.368581+00', NULL, NULL, '\x72616e6b65642031'),
	(2, '2026-11-22 05:48:14.379536+00', NULL, NULL, '\x72616e6b65642033'),
	(3, '2026-11-22 05:48:14.382461+00', NULL, NULL, '\x72616e6b65642035'),
	(4, '2026-11-22 05:48:14.384905+00', NULL, NULL, '\x72616e6b65642037'),
	(5, '2026-11-22 05:48:14.385925+00', NULL, NULL, '\x72616e6b65642039');
INSERT INTO tidewire.stream_1004_16384 VALUES
	(1, '2026-11-22 05:48:14.372552+00', NULL, NULL, '\x72616e6b65642032'),
	(2, '2026-11-22 05:48:14.380301+00', NULL, NULL, '\x72616e6b65642034'),
	(3, '2026-11-22 05:48:14.383055+00', NULL, NULL, '\x72616e6b65642036'),
	(4, '2026-11-22 05:48:14.385325+00', NULL, NULL, '\x72616e6b65642038'),
	(5, '2026-11-22 05:48:14.386492+00', NULL, NULL, '\x72616e6b6564203130');
INSERT INTO tidewire.stream_group OVERRIDING SYSTEM VALUE VALUES
	(1, 1000, 'none', '2026-11-22 05:48:12.499066+00'),
	(2, 1000, 'ten', '2026-11-22 05:48:12.505417+00'),
	(3, 1000, 'busy', '2026-11-22 05:48:12.543322+00'),
	(4, 1000, 'late', '2026-11-22 05:48:13.53252+00');
SELECT pg_catalog.setval('public.messages_position_seq', 3, true);
SELECT pg_catalog.setval('tidewire.event_store_id_seq', 1, true);
SELECT pg_catalog.setval('tidewire.events_1_position_seq', 20, true);
SELECT pg_catalog.setval('tidewire.queue_family_id_seq', 1, true);
SELECT pg_catalog.setval('tidewire.share_id_seq', 1, false);
SELECT pg_catalog.setval('tidewire.share_member_id_seq', 1, false);
SELECT pg_catalog.setval('tidewire.share_token_seq', 1, false);
SELECT pg_catalog.setval('tidewire.stream_1000_oldest_seq', 1, false);
SELECT pg_catalog.setval('tidewire.stream_1000_position_seq', 50, true);
SELECT pg_catalog.setval('tidewire.stream_1001_oldest_seq', 1, false);
SELECT pg_catalog.setval('tidewire.stream_1001_position_seq', 30, true);
SELECT pg_catalog.setval('tidewire.stream_1002_oldest_seq', 1, false);
SELECT pg_catalog.setval('tidewire.stream_1002_position_seq', 100, true);
SELECT pg_catalog.setval('tidewire.stream_1003_oldest_seq', 1, false);
SELECT pg_catalog.setval('tidewire.stream_1003_position_seq', 5, true);
SELECT pg_catalog.setval('tidewire.stream_1004_oldest_seq', 1, false);
SELECT pg_catalog.setval('tidewire.stream_1004_position_seq', 5, true);
SELECT pg_catalog.setval('tidewire.stream_group_id_seq', 4, true);
SELECT pg_catalog.setval('tidewire.stream_id_seq', 1004, true);
ALTER TABLE ONLY tidewire.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (writer, number);
ALTER TABLE ONLY tidewire.event_snapshot
    ADD CONSTRAINT event_snapshot_pkey PRIMARY KEY (store, name);
ALTER TABLE ONLY tidewire.event_store
    ADD CONSTRAINT event_store_name_key UNIQUE (name);
ALTER TABLE ONLY tidewire.event_store
    ADD CONSTRAINT event_store_pkey PRIMARY KEY (id);
ALTER TABLE ONLY tidewire.events_1_batch
    ADD CONSTRAINT events_1_batch_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.events_1_batch
    ADD CONSTRAINT events_1_batch_writer_number_key UNIQUE (writer, number);
ALTER TABLE ONLY tidewire.events_1
    ADD CONSTRAINT events_1_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.group_offset_0
    ADD CONSTRAINT group_offset_0_pkey PRIMARY KEY (group_id, sequence, "position");
ALTER TABLE ONLY tidewire.group_offset_1
    ADD CONSTRAINT group_offset_1_pkey PRIMARY KEY (group_id, sequence, "position");
ALTER TABLE ONLY tidewire.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);
ALTER TABLE ONLY tidewire.producer_1000_0
    ADD CONSTRAINT producer_1000_0_pkey PRIMARY KEY (producer, sequence);
ALTER TABLE ONLY tidewire.producer_1000_1
    ADD CONSTRAINT producer_1000_1_pkey PRIMARY KEY (producer, sequence);
ALTER TABLE ONLY tidewire.producer_1000_floor
    ADD CONSTRAINT producer_1000_floor_pkey PRIMARY KEY (producer);
ALTER TABLE ONLY tidewire.producer_1073741825_0
    ADD CONSTRAINT producer_1073741825_0_pkey PRIMARY KEY (producer, sequence);
ALTER TABLE ONLY tidewire.producer_1073741825_1
    ADD CONSTRAINT producer_1073741825_1_pkey PRIMARY KEY (producer, sequence);
ALTER TABLE ONLY tidewire.producer_1073741825_floor
    ADD CONSTRAINT producer_1073741825_floor_pkey PRIMARY KEY (producer);
ALTER TABLE ONLY tidewire.producer_window
    ADD CONSTRAINT producer_window_pkey PRIMARY KEY (stream);
ALTER TABLE ONLY tidewire.queue_1001_journal_0
    ADD CONSTRAINT queue_1001_journal_0_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY tidewire.queue_1001_journal_1
    ADD CONSTRAINT queue_1001_journal_1_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY tidewire.queue_1002_journal_0
    ADD CONSTRAINT queue_1002_journal_0_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY tidewire.queue_1002_journal_1
    ADD CONSTRAINT queue_1002_journal_1_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY tidewire.queue_1003_journal_0
    ADD CONSTRAINT queue_1003_journal_0_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY tidewire.queue_1003_journal_1
    ADD CONSTRAINT queue_1003_journal_1_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY tidewire.queue_1004_journal_0
    ADD CONSTRAINT queue_1004_journal_0_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY tidewire.queue_1004_journal_1
    ADD CONSTRAINT queue_1004_journal_1_pkey PRIMARY KEY (sequence);
ALTER TABLE ONLY tidewire.queue_family
    ADD CONSTRAINT queue_family_name_key UNIQUE (name);
ALTER TABLE ONLY tidewire.queue_family
    ADD CONSTRAINT queue_family_pkey PRIMARY KEY (id);
ALTER TABLE ONLY tidewire.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (id);
ALTER TABLE ONLY tidewire.queue_side
    ADD CONSTRAINT queue_side_pkey PRIMARY KEY (queue, "position");
ALTER TABLE ONLY tidewire.retention
    ADD CONSTRAINT retention_pkey PRIMARY KEY (stream);
ALTER TABLE ONLY tidewire.segment
    ADD CONSTRAINT segment_pkey PRIMARY KEY (stream, last);
ALTER TABLE ONLY tidewire.share_member
    ADD CONSTRAINT share_member_pkey PRIMARY KEY (id);
ALTER TABLE ONLY tidewire.share
    ADD CONSTRAINT share_name_key UNIQUE (name);
ALTER TABLE ONLY tidewire.share_number
    ADD CONSTRAINT share_number_pkey PRIMARY KEY (share, number);
ALTER TABLE ONLY tidewire.share_number
    ADD CONSTRAINT share_number_token_key UNIQUE (token);
ALTER TABLE ONLY tidewire.share
    ADD CONSTRAINT share_pkey PRIMARY KEY (id);
ALTER TABLE ONLY tidewire.stream_1000
    ADD CONSTRAINT stream_1000_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.stream_1000_16384
    ADD CONSTRAINT stream_1000_16384_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.stream_1001
    ADD CONSTRAINT stream_1001_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.stream_1001_16384
    ADD CONSTRAINT stream_1001_16384_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.stream_1002
    ADD CONSTRAINT stream_1002_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.stream_1002_16384
    ADD CONSTRAINT stream_1002_16384_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.stream_1003
    ADD CONSTRAINT stream_1003_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.stream_1003_16384
    ADD CONSTRAINT stream_1003_16384_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.stream_1004
    ADD CONSTRAINT stream_1004_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.stream_1004_16384
    ADD CONSTRAINT stream_1004_16384_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY tidewire.stream_group
    ADD CONSTRAINT stream_group_pkey PRIMARY KEY (id);
ALTER TABLE ONLY tidewire.stream_group
    ADD CONSTRAINT stream_group_stream_name_key UNIQUE (stream, name);
ALTER TABLE ONLY tidewire.stream
    ADD CONSTRAINT stream_name_key UNIQUE (name);
ALTER TABLE ONLY tidewire.stream
    ADD CONSTRAINT stream_parent_partition_key UNIQUE (parent, partition);
ALTER TABLE ONLY tidewire.stream
    ADD CONSTRAINT stream_pkey PRIMARY KEY (id);
CREATE INDEX messages_position_idx ON public.messages USING brin ("position") WITH (pages_per_range='128');
CREATE UNIQUE INDEX events_1_id_key ON tidewire.events_1 USING btree (id) WHERE (id IS NOT NULL);
CREATE INDEX events_1_tag_idx ON tidewire.events_1_tag USING btree (tag, type, "position") INCLUDE (signature, event);
CREATE INDEX events_1_type_idx ON tidewire.events_1 USING btree (type, "position");
CREATE INDEX queue_family_idx ON tidewire.queue USING btree (family) WHERE (family IS NOT NULL);
CREATE INDEX queue_side_dead_idx ON tidewire.queue_side USING btree (queue, "position") WHERE dead;
CREATE INDEX queue_side_due_idx ON tidewire.queue_side USING btree (queue, due_at) WHERE ((token IS NULL) AND (NOT dead));
CREATE INDEX queue_side_token_idx ON tidewire.queue_side USING btree (queue, token) WHERE (token IS NOT NULL);
CREATE INDEX share_member_idx ON tidewire.share_member USING btree (share);
CREATE INDEX share_stream_idx ON tidewire.share USING btree (stream) WHERE (stream IS NOT NULL);
CREATE INDEX stream_1000_key_idx ON ONLY tidewire.stream_1000 USING btree (key, "position") WHERE (key IS NOT NULL);
CREATE INDEX stream_1000_16384_key_position_idx ON tidewire.stream_1000_16384 USING btree (key, "position") WHERE (key IS NOT NULL);
ALTER INDEX tidewire.stream_1000_key_idx ATTACH PARTITION tidewire.stream_1000_16384_key_position_idx;
ALTER INDEX tidewire.stream_1000_pkey ATTACH PARTITION tidewire.stream_1000_16384_pkey;
ALTER INDEX tidewire.stream_1001_pkey ATTACH PARTITION tidewire.stream_1001_16384_pkey;
ALTER INDEX tidewire.stream_1002_pkey ATTACH PARTITION tidewire.stream_1002_16384_pkey;
ALTER INDEX tidewire.stream_1003_pkey ATTACH PARTITION tidewire.stream_1003_16384_pkey;
ALTER INDEX tidewire.stream_1004_pkey ATTACH PARTITION tidewire.stream_1004_16384_pkey;
CREATE TRIGGER refuse_queue BEFORE INSERT OR UPDATE ON tidewire.retention FOR EACH ROW EXECUTE FUNCTION tidewire.refuse_queue_retention();
ALTER TABLE ONLY tidewire.event_snapshot
    ADD CONSTRAINT event_snapshot_store_fkey FOREIGN KEY (store) REFERENCES tidewire.event_store(id) ON DELETE CASCADE;
ALTER TABLE ONLY tidewire.queue
    ADD CONSTRAINT queue_family_fkey FOREIGN KEY (family) REFERENCES tidewire.queue_family(id);
ALTER TABLE ONLY tidewire.queue
    ADD CONSTRAINT queue_id_fkey FOREIGN KEY (id) REFERENCES tidewire.stream(id);
ALTER TABLE ONLY tidewire.retention
    ADD CONSTRAINT retention_stream_fkey FOREIGN KEY (stream) REFERENCES tidewire.stream(id) ON DELETE CASCADE;
ALTER TABLE ONLY tidewire.share_member
    ADD CONSTRAINT share_member_share_fkey FOREIGN KEY (share) REFERENCES tidewire.share(id) ON DELETE CASCADE;
ALTER TABLE ONLY tidewire.share_number
    ADD CONSTRAINT share_number_share_fkey FOREIGN KEY (share) REFERENCES tidewire.share(id) ON DELETE CASCADE;
ALTER TABLE ONLY tidewire.share
    ADD CONSTRAINT share_stream_fkey FOREIGN KEY (stream) REFERENCES tidewire.stream(id) ON DELETE CASCADE;
ALTER TABLE ONLY tidewire.stream_group
    ADD CONSTRAINT stream_group_stream_fkey FOREIGN KEY (stream) REFERENCES tidewire.stream(id) ON DELETE CASCADE;
ALTER TABLE ONLY tidewire.stream
    ADD CONSTRAINT stream_parent_fkey FOREIGN KEY (parent) REFERENCES tidewire.stream(id);
