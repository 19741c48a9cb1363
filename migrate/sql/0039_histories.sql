-- A position never means two things, also if a standby takes over that lacks the last of what was committed.
--
-- A history is what was committed one after the other, without a failover in between. A new one begins when a
-- standby is promoted, or the database is recovered to a point in time: PostgreSQL gives the write-ahead log a new
-- timeline then. What the old primary had committed and the new one lacks is lost, and nobody can say here how
-- much that was. So positions go on much higher: after the base of the new history, which is made of the time at
-- which it began. The base is above all positions of all histories before, known or not, as long as a
-- stream has had fewer than 2^18 messages a second since its history began.
--
-- A base is the seconds from 2020 on, times 2^18. Clients read positions as JSON numbers, which are exact below 2^53: those of
-- streams and events are until 2088, when the seconds outgrow history_seq, and those of a queue with 64 lanes, which are 64 times as
-- high, until 2037.

-- timeline is that of the write-ahead log: it is the same as long as nobody is promoted. pg_control_checkpoint tells the
-- old one until the next checkpoint. Where a service does not let anybody look at its log, as Aurora, which has one storage
-- for all its servers and loses nothing, all is one timeline.
DO $$
BEGIN
	PERFORM pg_walfile_name(pg_current_wal_lsn());
	CREATE FUNCTION tidewire.timeline() RETURNS bigint LANGUAGE sql VOLATILE AS
		$f$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint $f$;
EXCEPTION WHEN feature_not_supported OR insufficient_privilege OR internal_error THEN
	CREATE FUNCTION tidewire.timeline() RETURNS bigint LANGUAGE sql VOLATILE AS $f$ SELECT 1::bigint $f$;
END
$$;

-- history_seq names the history that goes on: the seconds from 2020 on at which it began, 0 for the first, times 2^32, plus its
-- timeline. A sequence, because every snapshot sees where it stands now.
CREATE SEQUENCE tidewire.history_seq CACHE 1;
SELECT setval('tidewire.history_seq', tidewire.timeline());

-- history has a row for each that has begun: positions after its base belong to it, or to a later one. The row of the one that
-- goes on may be missing, if who began it has rolled back: see bases.
CREATE TABLE tidewire.history (
	base bigint PRIMARY KEY,
	timeline bigint NOT NULL,
	system bigint, -- the identifier of the database cluster, which a restored dump has left
	began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
GRANT SELECT ON tidewire.history, tidewire.history_seq TO PUBLIC; -- who may use the schema; each read says which history goes on

-- system_identifier is that of the cluster, or NULL where nobody may look.
CREATE FUNCTION tidewire.system_identifier() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT c.system_identifier FROM pg_control_system() AS c);
EXCEPTION WHEN feature_not_supported OR insufficient_privilege OR internal_error THEN
	RETURN NULL;
END
$$;
INSERT INTO tidewire.history (base, timeline, system) VALUES (0, tidewire.timeline(), tidewire.system_identifier());

-- bases are those of all histories.
CREATE FUNCTION tidewire.bases() RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
	SELECT base FROM tidewire.history UNION SELECT pg_sequence_last_value('tidewire.history_seq') >> 32 << 18
$$;

-- history_base returns the base of the history that goes on, and begins it if nobody has. Whoever gives out
-- positions gives out higher ones.
CREATE FUNCTION tidewire.history_base() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	history bigint := pg_sequence_last_value('tidewire.history_seq');
BEGIN
	IF history & 4294967295 <> tidewire.timeline() THEN
		RETURN tidewire.begin_history(history);
	END IF;
	RETURN history >> 32 << 18;
END
$$;

-- begin_history begins a new history after the one that history_seq named, unless another has begun it, and returns the
-- base. It can be called by hand, as SELECT tidewire.begin_history(), after a dump was restored into the cluster that it
-- is from, or a disk was set back to a snapshot: PostgreSQL keeps its timeline then, and clients may know positions that
-- are not here.
--
-- The lock is given back at once: a sequence does not wait for the end of the transaction.
--
-- Runs with the rights of who migrated, who owns the sequence. A role of its own
-- for Tidewire needs EXECUTE on this.
CREATE FUNCTION tidewire.begin_history(before bigint DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	history bigint;
	last bigint;
	base bigint;
BEGIN
	PERFORM pg_advisory_lock(1953064037, 5);
	history := pg_sequence_last_value('tidewire.history_seq');
	last := history;
	IF history = coalesce(before, history) THEN
		history := greatest(extract(epoch FROM clock_timestamp())::bigint - 1577836800, (history >> 32) + 1) << 32 | tidewire.timeline();
		base := history >> 32 << 18;
		-- A transaction with an old snapshot, which does not see where a stream ends, goes on after the base, too.
		IF pg_sequence_last_value('tidewire.shared_top_seq') < base OR pg_sequence_last_value('tidewire.shared_top_seq') IS NULL THEN
			PERFORM setval('tidewire.shared_top_seq', base);
		END IF;
		PERFORM setval('tidewire.history_seq', history);
	END IF;
	PERFORM pg_advisory_unlock(1953064037, 5);
	base := history >> 32 << 18;
	PERFORM tidewire.note_growth();
	INSERT INTO tidewire.history (base, timeline, system) VALUES
		(base, tidewire.timeline(), tidewire.system_identifier()),
		(last >> 32 << 18, last & 4294967295, NULL) -- who began it may have rolled back
		ON CONFLICT DO NOTHING;
	RETURN base;
END
$$;

-- enter_history begins a new history if the timeline, or the cluster, is another than that of the last one, and
-- writes the row of the last if who began it has rolled back. It returns the base. On a standby it only looks.
-- READ COMMITTED.
CREATE FUNCTION tidewire.enter_history() RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	history bigint := pg_sequence_last_value('tidewire.history_seq');
	now_at bigint;
BEGIN
	IF pg_is_in_recovery() THEN
		RETURN history >> 32 << 18;
	END IF;
	now_at := tidewire.history_base();
	PERFORM FROM tidewire.history AS h WHERE h.base = now_at AND h.system <> tidewire.system_identifier();
	IF FOUND THEN
		RETURN tidewire.begin_history(pg_sequence_last_value('tidewire.history_seq'));
	END IF;
	INSERT INTO tidewire.history (base, timeline, system)
		SELECT now_at, tidewire.timeline(), tidewire.system_identifier()
		WHERE NOT EXISTS (SELECT FROM tidewire.history AS h WHERE h.base = now_at) ON CONFLICT DO NOTHING;
	RETURN now_at;
END
$$;

-- last_kept returns the position of the last message up to that position which a stream keeps, or of the last one
-- dropped. If messages of a later history come after it, that is where theirs goes on from.
CREATE FUNCTION tidewire.last_kept(stream_id int, upto bigint) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	low bigint;
	last bigint;
	s record;
BEGIN
	SELECT coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = stream_id ORDER BY f.floor DESC LIMIT 1), 0)
		INTO low FROM tidewire.stream WHERE id = stream_id AND shared;
	IF FOUND THEN
		RETURN greatest(low, (SELECT m.position FROM tidewire.shared_message AS m
			WHERE m.stream = stream_id AND m.position > low AND m.position <= upto ORDER BY m.position DESC LIMIT 1));
	END IF;
	-- Holds off a drop, without which the sequences could vanish.
	EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS SHARE MODE', 'stream_' || stream_id);
	low := coalesce(pg_sequence_last_value(('tidewire.stream_' || stream_id || '_oldest_seq')::regclass), 1) - 1;
	FOR s IN SELECT g.last FROM tidewire.segment AS g WHERE g.stream = stream_id AND g.first <= upto AND g.last > low ORDER BY g.last DESC LOOP
		EXECUTE format('SELECT position FROM tidewire.%I WHERE position <= $1 ORDER BY position DESC LIMIT 1', 'stream_' || stream_id || '_' || s.last)
			INTO last USING upto;
		EXIT WHEN last IS NOT NULL;
	END LOOP;
	RETURN greatest(low, last);
END
$$;

-- lost_since returns the position of the last message that a stream has of those up to after, if what came next is lost:
-- if another history began between after, where there is no message any more, and next, where there is one, or where the
-- stream ends. Else it returns NULL, and always on a standby, which may not have got so far.
CREATE FUNCTION tidewire.lost_since(stream_id int, after bigint, next bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	last bigint;
BEGIN
	IF pg_is_in_recovery() OR next > after AND tidewire.history_base() NOT BETWEEN after + 1 AND next - 1
		AND NOT EXISTS (SELECT FROM tidewire.bases() AS base WHERE base > after AND base < next) THEN
		RETURN NULL;
	END IF;
	last := tidewire.last_kept(stream_id, after);
	RETURN CASE WHEN last < after THEN last END;
END
$$;

-- read_shared as before. The time of the last row is when the history began, in seconds from 1970, of those from 2020 on: 0 is
-- the first.
CREATE OR REPLACE FUNCTION tidewire.read_shared(stream_id int, after bigint, upto bigint, most bigint, bytes bigint)
RETURNS TABLE ("position" bigint, key text, headers jsonb, payload bytea, created_at timestamptz)
LANGUAGE plpgsql STABLE SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
	low bigint := coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = stream_id ORDER BY f.floor DESC LIMIT 1), 0);
BEGIN
	IF after < low THEN
		NULL; -- too old
	ELSIF bytes IS NULL THEN
		RETURN QUERY SELECT m.position, coalesce(m.key, ''), m.headers, m.payload, m.created_at FROM tidewire.shared_message AS m
			WHERE m.stream = stream_id AND m.position > after AND m.position <= upto ORDER BY m.position LIMIT most;
	ELSE
		RETURN QUERY SELECT c.position, coalesce(c.key, ''), c.headers, c.payload, c.created_at FROM (
			SELECT m.*, sum(octet_length(m.payload) + coalesce(pg_column_size(m.headers), 0) / 8)
				OVER (ORDER BY m.position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM (
				SELECT * FROM tidewire.shared_message AS m
				WHERE m.stream = stream_id AND m.position > after AND m.position <= upto ORDER BY m.position LIMIT most
			) AS m
		) AS c WHERE coalesce(c.before, 0) < bytes ORDER BY c.position;
	END IF;
	RETURN QUERY SELECT -1 - low, tidewire.shared_head(s.id)::text, CASE WHEN NOT s.shared THEN '{}'::jsonb END, ''::bytea, to_timestamp(pg_sequence_last_value('tidewire.history_seq') >> 32)
		FROM tidewire.stream AS s WHERE s.id = stream_id;
END
$$;

-- gaps returns where failovers have left positions without messages: those after the one, up to the other.
CREATE FUNCTION tidewire.gaps(stream_id int) RETURNS TABLE (after bigint, upto bigint) LANGUAGE plpgsql AS $$
BEGIN
	IF pg_sequence_last_value('tidewire.history_seq') >> 32 > 0 THEN
		RETURN QUERY SELECT k.after, k.base FROM (
			SELECT tidewire.last_kept(stream_id, base) AS after, base FROM tidewire.bases() AS base
			WHERE base > 0 AND base < (SELECT s.head FROM tidewire.stream_state(stream_id) AS s)
		) AS k WHERE k.after < k.base ORDER BY k.base;
	END IF;
END
$$;

-- segment_rows as before. Of a segment in which a history began, only the positions after its base count.
CREATE OR REPLACE FUNCTION tidewire.segment_rows(s tidewire.segment, head bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	before bigint := greatest(s.first - 1, (SELECT max(base) FROM tidewire.bases() AS base WHERE base < least(head, s.last)));
	used bigint := least(head, s.last) - before;
	size bigint := s.last - before;
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

-- take_positions as before, from the history's base on. Locks below 1000 are no streams': those tables have no
-- readers who would know positions.
CREATE OR REPLACE FUNCTION tidewire.take_positions(
	lock_id int, positions regclass, size bigint, writer bigint, number bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	head bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	head := coalesce(pg_sequence_last_value(positions), 0);
	IF lock_id >= 1000 THEN
		head := greatest(head, tidewire.history_base());
	END IF;
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = lock_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(lock_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
	IF lock_id >= 1000 THEN
		PERFORM tidewire.note_growth();
	END IF;
	RETURN head + 1;
END
$$;

-- begin_batch as before, in the same way.
CREATE OR REPLACE FUNCTION tidewire.begin_batch(
	lock_id int, positions regclass, head bigint, size bigint, writer bigint, number bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	actual bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	actual := coalesce(pg_sequence_last_value(positions), 0);
	IF lock_id >= 1000 THEN
		actual := greatest(actual, tidewire.history_base());
	END IF;
	IF actual <> head THEN
		RAISE EXCEPTION 'stream head is %, not %', actual, head
			USING ERRCODE = 'TW001', DETAIL = actual::text;
	END IF;
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = lock_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(lock_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
	IF lock_id >= 1000 THEN
		PERFORM tidewire.note_growth();
	END IF;
END
$$;

-- take_shared as before.
CREATE OR REPLACE FUNCTION tidewire.take_shared(stream_id int, size bigint, writer bigint, number bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	is_shared boolean;
	head bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	SELECT shared INTO is_shared FROM tidewire.stream WHERE id = stream_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stream % was dropped', stream_id USING ERRCODE = 'undefined_table';
	ELSIF NOT is_shared THEN
		RAISE EXCEPTION 'stream % has tables of its own', stream_id USING ERRCODE = 'TW010';
	END IF;
	head := greatest(tidewire.shared_head(stream_id), tidewire.history_base());
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	PERFORM tidewire.raise_shared_top(head + size);
	PERFORM tidewire.note_growth();
	RETURN head + 1;
END
$$;

-- look_for_ends as before: batches of streams that share a table begin after the base.
CREATE OR REPLACE FUNCTION tidewire.look_for_ends(
	streams int[], heads bigint[], sizes int[], locked boolean[], OUT firsts bigint[], OUT top bigint, OUT keyed boolean[], OUT own int[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET jit = off AS $$
DECLARE
	base bigint := tidewire.history_base();
BEGIN
	SELECT array_agg(CASE WHEN b.head IS NULL THEN 0 ELSE b.head + 1 END ORDER BY b.n), max(b.head + b.size),
			array_agg(b.keyed ORDER BY b.n), array_agg(b.n::int ORDER BY b.n) FILTER (WHERE NOT b.shared)
		INTO firsts, top, keyed, own
		FROM (
			SELECT u.n, u.size, s.keyed, s.shared, CASE WHEN s.shared THEN greatest(base, coalesce(
				(SELECT m.position FROM tidewire.shared_message AS m
					WHERE m.stream = s.id AND m.position >= nullif(u.head, 0) ORDER BY m.position DESC LIMIT 1),
				(SELECT m.position FROM tidewire.shared_message AS m WHERE m.stream = s.id AND m.position > coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = s.id ORDER BY f.floor DESC LIMIT 1), 0) ORDER BY m.position DESC LIMIT 1),
				coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = s.id ORDER BY f.floor DESC LIMIT 1), 0))) END AS head
			FROM unnest(streams, heads, sizes, locked) WITH ORDINALITY AS u (id, head, size, locked, n)
			LEFT JOIN tidewire.stream AS s ON s.id = u.id AND u.locked
			OFFSET 0 -- looks once for each head, not once for each use of it
		) AS b;
END
$$;

-- append_own as before.
CREATE OR REPLACE FUNCTION tidewire.append_own(
	stream_id int, payloads bytea[], keys text[], headers jsonb[], producers text[], sequences bigint[], rows bigint[], counts int[],
	OUT first bigint, OUT ms bigint
) LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
	positions regclass := to_regclass('tidewire.stream_' || stream_id || '_position_seq');
	size int := cardinality(payloads);
	head bigint;
BEGIN
	first := 0;
	ms := 0;
	IF positions IS NULL THEN -- it has partitions
		RETURN;
	END IF;
	IF cardinality(producers) > 0 THEN
		PERFORM FROM tidewire.find_requests(stream_id, producers, sequences) AS f WHERE f.first IS NOT NULL OR f.too_old;
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;
	head := greatest(pg_sequence_last_value(positions), tidewire.history_base());
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = stream_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(stream_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
	IF cardinality(producers) > 0 THEN
		PERFORM tidewire.record_requests(stream_id, size, producers, sequences, rows, counts);
	END IF;
	IF size = 1 THEN
		EXECUTE format('INSERT INTO tidewire.%I (position, payload, key, headers) VALUES ($1, $2, $3, $4)', 'stream_' || stream_id)
			USING head + 1, payloads[1], keys[1], headers[1];
	ELSE
		EXECUTE format('INSERT INTO tidewire.%I (position, payload, key, headers)
			SELECT $1 + n, p, k, h FROM unnest($2, $3, $4) WITH ORDINALITY AS t (p, k, h, n)', 'stream_' || stream_id)
			USING head, payloads, keys, headers;
	END IF;
	first := head + 1;
	ms := 1000 * extract(epoch FROM clock_timestamp() - began);
END
$$;

-- move_outbox as before.
CREATE OR REPLACE FUNCTION tidewire.move_outbox() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	target record;
	positions regclass;
	head bigint;
BEGIN
	-- First, and the messages last: what is published after this, by another
	-- trigger or with constraints set immediate, is due again.
	DELETE FROM pg_temp.tidewire_outbox_due;
	PERFORM tidewire.note_growth();
	FOR target IN SELECT stream, count(*) AS size FROM pg_temp.tidewire_outbox GROUP BY stream ORDER BY stream LOOP
		PERFORM pg_advisory_xact_lock(1953064037, target.stream);
		IF tidewire.move_outbox_shared(target.stream, target.size) THEN
			CONTINUE;
		END IF;
		BEGIN
			EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ROW EXCLUSIVE MODE', 'stream_' || target.stream);
			positions := ('tidewire.stream_' || target.stream || '_position_seq')::regclass;
			head := greatest(pg_sequence_last_value(positions), tidewire.history_base());
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
$$;

-- move_outbox_shared as before.
CREATE OR REPLACE FUNCTION tidewire.move_outbox_shared(stream_id int, size bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	s tidewire.stream;
	head bigint;
BEGIN
	SELECT * INTO s FROM tidewire.stream WHERE id = stream_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stream % was dropped', stream_id USING ERRCODE = 'TW003';
	ELSIF NOT s.shared THEN
		RETURN false;
	END IF;
	IF current_setting('transaction_isolation') = 'read committed' THEN
		head := greatest(tidewire.shared_head(stream_id), tidewire.history_base());
	ELSE
		BEGIN
			PERFORM FROM tidewire.stream WHERE id = stream_id FOR SHARE NOWAIT;
		EXCEPTION
			WHEN lock_not_available THEN
				NULL;
			WHEN serialization_failure THEN
				BEGIN
					EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ROW EXCLUSIVE MODE', 'stream_' || stream_id);
					RETURN false;
				EXCEPTION WHEN undefined_table THEN
					RAISE EXCEPTION 'could not serialize access to stream %, which may be dropped', stream_id USING ERRCODE = 'serialization_failure';
				END;
		END;
		PERFORM tidewire.history_base(); -- raises what comes next, if it begins one
		head := coalesce(pg_sequence_last_value('tidewire.shared_top_seq'), 0);
	END IF;
	PERFORM tidewire.raise_shared_top(head + size);
	INSERT INTO tidewire.shared_message (stream, position, created_at, keyed, key, headers, payload)
		SELECT stream_id, head + row_number() OVER (ORDER BY number), clock_timestamp(), s.keyed, key, headers, payload
		FROM pg_temp.tidewire_outbox WHERE stream = stream_id;
	RETURN true;
END
$$;

-- A journal's rows have numbers of the history, too, so that no node takes a row for one that is lost: what it knows of
-- the journal is whole only if the last row that it has seen is there.

-- queue_write as before. With the outcome 4 it returns the whole journal, and has written nothing: what the caller has seen
-- is of a history that was lost.
CREATE OR REPLACE FUNCTION tidewire.queue_write(
	queue_id int, seen bigint, own bigint, valid_until timestamptz, lease interval,
	kinds smallint[], tokens bigint[], los bigint[], his bigint[], untils timestamptz[], bodies bytea[],
	claim bigint, side jsonb
) RETURNS TABLE (sequence bigint, kind smallint, token bigint, lo bigint, hi bigint, until timestamptz, body bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
	at timestamptz;
	outcome int := 0;
	last bigint;
	known bigint;
	old_top bigint;
	old_base bigint;
	new_top bigint;
	own_moved boolean := false;
	moved boolean := false;
	leased boolean := false;
	writers bigint[] := '{}';
BEGIN
	PERFORM tidewire.hold_queue(queue_id);
	at := clock_timestamp();
	SELECT j.sequence, j.top, j.base INTO last, old_top, old_base
		FROM tidewire.queue_journal AS j WHERE j.queue = queue_id ORDER BY j.sequence DESC LIMIT 1;
	IF last IS NULL THEN
		PERFORM tidewire.refuse_lost_journal(queue_id);
	END IF;
	known := greatest(seen, old_base - 1);
	IF seen BETWEEN old_base AND 9223372036854775806 AND seen <> last AND NOT EXISTS (SELECT FROM tidewire.queue_journal AS j WHERE j.queue = queue_id AND j.sequence = seen) THEN
		outcome := 4;
		known := old_base - 1;
	END IF;
	IF outcome = 0 AND last > known THEN
		SELECT bool_or(j.kind = 1 OR j.token = own AND own <> 0), bool_or(j.kind IN (1, 3, 5, 7, 8)), bool_or(j.kind = 2), array_agg(DISTINCT j.token)
			INTO own_moved, moved, leased, writers
			FROM tidewire.queue_journal AS j WHERE j.queue = queue_id AND j.sequence > known;
	END IF;
	IF outcome = 4 OR cardinality(kinds) = 0 AND claim = 0 THEN
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
	IF last > known THEN
		RETURN QUERY SELECT j.sequence, j.kind, j.token, j.lo, j.hi, j.until, j.body
			FROM tidewire.queue_journal AS j WHERE j.queue = queue_id AND j.sequence > known ORDER BY j.sequence;
	END IF;
	IF outcome < 2 THEN
		new_top := old_top + claim;
		FOR n IN 1 .. cardinality(kinds) LOOP
			IF kinds[n] = 8 AND outcome = 0 THEN
				new_top := greatest(new_top, his[n]);
			END IF;
		END LOOP;
		sequence := greatest(last, tidewire.history_base());
		FOR n IN 1 .. cardinality(kinds) LOOP
			CONTINUE WHEN outcome = 1 AND (kinds[n] IN (5, 8, 11) OR kinds[n] = 3 AND tokens[n] <> own);
			sequence := sequence + 1; kind := CASE kinds[n] WHEN 11 THEN 2 ELSE kinds[n] END; token := tokens[n]; lo := los[n]; hi := his[n]; body := bodies[n];
			until := CASE kind WHEN 2 THEN at + lease ELSE untils[n] END;
			INSERT INTO tidewire.queue_journal (queue, sequence, kind, token, lo, hi, until, body, top, base)
				VALUES (queue_id, sequence, kind, token, lo, hi, until, body, new_top, old_base);
			RETURN NEXT;
			IF kind = 3 AND token <> own THEN
				PERFORM tidewire.queue_end_side(queue_id, token, true);
			END IF;
		END LOOP;
		IF claim > 0 THEN
			sequence := sequence + 1; kind := 4; token := own; lo := old_top + 1; hi := old_top + claim; until := NULL; body := NULL;
			INSERT INTO tidewire.queue_journal (queue, sequence, kind, token, lo, hi, until, body, top, base)
				VALUES (queue_id, sequence, kind, token, lo, hi, until, body, new_top, old_base);
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
$$;

-- record_together as before. The first rows in a history are written by queue_write.
CREATE OR REPLACE FUNCTION tidewire.record_together(
	queues int[], seens bigint[], untils timestamptz[], leases interval[], owns bigint[], claims bigint[], sizes int[],
	kinds smallint[], los bigint[], his bigint[], bodies bytea[]
) RETURNS TABLE (number int, top bigint, at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
	next_row int := 1;
	from_rows int[];
	locked int[];
	history bigint := tidewire.history_base();
BEGIN
	FOR i IN 1 .. cardinality(queues) LOOP
		from_rows[i] := next_row;
		next_row := next_row + sizes[i];
		IF pg_try_advisory_xact_lock(1953064037, -queues[i]) THEN
			locked := locked || i;
		END IF;
	END LOOP;
	at := clock_timestamp();
	RETURN QUERY
		WITH head AS MATERIALIZED (
			SELECT l.i, j.sequence, j.top, j.base FROM unnest(locked) AS l (i), LATERAL (
				SELECT * FROM tidewire.queue_journal AS j WHERE j.queue = queues[l.i] ORDER BY j.sequence DESC LIMIT 1
			) AS j WHERE j.sequence = seens[l.i] AND j.sequence >= history AND at < untils[l.i]
		), written AS (
			INSERT INTO tidewire.queue_journal (queue, sequence, kind, token, lo, hi, until, body, top, base)
			SELECT queues[h.i], h.sequence + 1 + r.n - from_rows[h.i], r.kind, owns[h.i],
				r.lo + above.top, r.hi + above.top, CASE r.kind WHEN 2 THEN at + leases[h.i] END, r.body, h.top + claims[h.i], h.base
			FROM (SELECT head.*, from_rows[head.i] + g AS n FROM head, generate_series(0, sizes[head.i] - 1) AS g) AS h
			JOIN unnest(kinds, los, his, bodies) WITH ORDINALITY AS r (kind, lo, hi, body, n) USING (n),
			LATERAL (SELECT CASE r.kind WHEN 4 THEN h.top ELSE 0 END AS top) AS above
		)
		SELECT head.i, head.top, at FROM head;
END
$$;

-- rotate_queue as before.
CREATE OR REPLACE FUNCTION tidewire.rotate_queue(queue_id int, next_sequence bigint, top bigint, body bytea)
RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	old_base bigint;
BEGIN
	PERFORM tidewire.hold_queue(queue_id);
	next_sequence := greatest(next_sequence, tidewire.history_base() + 1);
	SELECT j.base INTO old_base FROM tidewire.queue_journal AS j WHERE j.queue = queue_id ORDER BY j.sequence DESC LIMIT 1;
	INSERT INTO tidewire.queue_journal (queue, sequence, token, lo, hi, top, kind, body, base)
		VALUES (queue_id, next_sequence, 0, 0, 0, top, 1, body, next_sequence);
	DELETE FROM tidewire.queue_journal AS j WHERE j.queue = queue_id AND j.sequence >= old_base AND j.sequence < next_sequence;
END
$$;

-- keep_history_of_events makes what a store needs so that no position of it means two things: its append, again, and what finds
-- out whether a position is of a history that was lost.
CREATE FUNCTION tidewire.keep_history_of_events(store int) RETURNS void LANGUAGE plpgsql AS $define$
DECLARE
	made regprocedure;
	settings text := $set$
		SET plan_cache_mode = force_generic_plan SET jit = off
		SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off $set$;
BEGIN
	FOR made IN SELECT oid FROM pg_proc
		WHERE pronamespace = 'tidewire'::regnamespace AND proname = 'events_' || store || '_append'
	LOOP
		EXECUTE format('DROP FUNCTION %s', made);
	END LOOP;

	-- lost_since returns the position of the last event before after, if events up to after are lost: if the store has not
	-- got so far, or another history began after it, before the position upto, and there is no event in between. Else it
	-- returns NULL, and always on a standby, which may not have got so far.
	EXECUTE replace($sql$
	CREATE FUNCTION tidewire.events_#_lost_since(after bigint, upto bigint) RETURNS bigint LANGUAGE plpgsql $sql$ || settings || $sql$ AS $f$
	DECLARE
		base bigint;
	BEGIN
		IF after = 0 OR pg_is_in_recovery() THEN
			RETURN NULL;
		END IF;
		IF after <= upto THEN
			PERFORM tidewire.history_base(); -- begins one, if nobody has
			base := (SELECT min(b) FROM tidewire.bases() AS b WHERE b > after);
			IF base IS NULL OR EXISTS (SELECT FROM tidewire.events_# AS e WHERE e.position >= after AND e.position <= base) THEN
				RETURN NULL;
			END IF;
		END IF;
		RETURN coalesce((SELECT e.position FROM tidewire.events_# AS e WHERE e.position < after ORDER BY e.position DESC LIMIT 1), 0);
	END
	$f$ $sql$, '#', store::text);

	-- append as extend_event_store has it. c_afters are the positions that the conditions of calls name, from the least to the
	-- most. A call whose position is of a history that was lost is left out, with -1 - the last position of before.
	EXECUTE replace($sql$
	CREATE FUNCTION tidewire.events_#_append(
		my_writer bigint, my_number bigint, bases bigint[], basis_writers bigint[], basis_numbers bigint[],
		ev_types text[], ev_hashes int[], ev_signatures bigint[], ev_json boolean[], ev_ids text[],
		ev_tags text[], ev_data bytea[], ev_packed bytea[], ev_calls int[],
		tag_hashes bigint[], tag_events int[], least_after bigint,
		p_calls int[], p_afters bigint[], p_drivers bigint[], p_others text[], p_signatures bigint[],
		p_type_hashes int[], p_types text[], p_tags text[], p_tagless boolean, p_budget int,
		r_producers text[], r_sequences bigint[], r_calls int[], r_firsts int[],
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
SELECT tidewire.keep_history_of_events(id) FROM tidewire.event_store;

-- ensure_event_store as before, with that.
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
			PERFORM tidewire.keep_history_of_events(found_or_made.id);
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;

-- commit_offsets as before. A position in what a failover has lost is refused as one past the end is.
CREATE OR REPLACE FUNCTION tidewire.commit_offsets(ids int[], positions bigint[])
RETURNS TABLE (id int, committed bigint, written boolean) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	in_use text := tidewire.hold_offsets();
	base bigint := tidewire.history_base();
BEGIN
	RETURN QUERY EXECUTE format($sql$
		WITH given AS MATERIALIZED (
			SELECT DISTINCT ON (w.id) * FROM (
				SELECT g.id, o.sequence, o.position, u.position AS wanted,
					u.position > o.position AND (CASE WHEN s.shared THEN u.position > low.floor AND NOT EXISTS (
						SELECT FROM tidewire.shared_message AS m WHERE m.stream = g.stream AND m.position >= u.position AND m.position > low.floor
					) ELSE u.position > tidewire.stream_reserved(g.stream) END
						OR u.position <= $3 AND tidewire.lost_since(g.stream, u.position, $3 + 1) IS NOT NULL) AS ahead
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
		USING ids, positions, base;
END
$$;
