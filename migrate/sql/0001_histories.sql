-- A position never means two messages, even if a standby that lacks the last commits takes over.
--
-- A history is a sequence of commits without a failover in between. A new history begins when a standby is
-- promoted, or the database is recovered to a point in time: PostgreSQL then gives the write-ahead log a new
-- timeline. Commits of the old primary that the new one lacks are lost, and the new one cannot know how many they
-- were. So positions continue from a much higher number, the base of the new history, which is computed from the
-- time at which it began. The base is higher than all positions of all earlier histories, known or not, as long as
-- each stream has had fewer than 2^18 messages a second since its history began.
--
-- A base is the number of seconds since 2020, times 2^18. Clients read positions as JSON numbers, which are exact below 2^53.
-- Positions of streams and events are below that until 2088, when the seconds outgrow history_seq; those of a queue with 64
-- partitions, which are 64 times as high, until 2037.

-- close_functions takes the right to execute functions of this schema from PUBLIC, to whom PostgreSQL gives it with each new function. So a role may call
-- what it was granted, and nothing else. It runs at the end of each migration, and after functions were made.
CREATE FUNCTION tidewire.close_functions() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	open regprocedure;
BEGIN
	FOR open IN SELECT p.oid FROM pg_proc AS p
		WHERE p.pronamespace = 'tidewire'::regnamespace AND pg_has_role(p.proowner, 'USAGE')
			AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0)
	LOOP
		EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM PUBLIC', open);
	END LOOP;
END
$$;

-- timeline returns the timeline of the write-ahead log: it stays the same until a standby is promoted.
-- pg_control_checkpoint returns the old one until the next checkpoint. Some services do not allow access to the log, for
-- example Aurora, which has one storage for all its servers and loses nothing: there, everything is one timeline.
DO $$
BEGIN
	PERFORM pg_walfile_name(pg_current_wal_lsn());
	CREATE FUNCTION tidewire.timeline() RETURNS bigint LANGUAGE sql VOLATILE AS
		$f$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint $f$;
EXCEPTION WHEN feature_not_supported OR insufficient_privilege OR internal_error THEN
	CREATE FUNCTION tidewire.timeline() RETURNS bigint LANGUAGE sql VOLATILE AS $f$ SELECT 1::bigint $f$;
END
$$;

-- history_seq identifies the current history: the time at which it began, in seconds since 2020 (0 for the first one), times
-- 2^32, plus its timeline. It is a sequence because every snapshot sees its current value, and no rollback undoes it.
CREATE SEQUENCE tidewire.history_seq CACHE 1;
SELECT setval('tidewire.history_seq', tidewire.timeline());

-- The beginnings of the last histories are in a ring buffer of sequences: history n is in sequence n modulo their number. They
-- are not in a table, because a transaction that begins a history may roll back, or stay open.
CREATE SEQUENCE tidewire.history_number_seq CACHE 1;
DO $$
BEGIN
	FOR n IN 0 .. 7 LOOP
		EXECUTE format('CREATE SEQUENCE tidewire.history_%s_seq CACHE 1', n);
		EXECUTE format('GRANT SELECT ON tidewire.history_%s_seq TO PUBLIC', n);
	END LOOP;
END
$$;

-- history_ring returns the sequences of the ring.
CREATE FUNCTION tidewire.history_ring() RETURNS regclass[] LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg(('tidewire.history_' || n || '_seq')::regclass ORDER BY n) FROM generate_series(0, 7) AS n
$$;

-- history has a row for each history that a node has seen: positions after its base belong to it, or to a later one.
CREATE TABLE tidewire.history (
	base bigint PRIMARY KEY,
	timeline bigint NOT NULL,
	system bigint, -- the identifier of the database cluster; another one means that a dump was restored
	began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
GRANT SELECT ON tidewire.history, tidewire.history_seq TO PUBLIC; -- for every role that may use the schema; each read returns the current history

-- system_identifier returns the identifier of the cluster, or NULL where no role may read it.
CREATE FUNCTION tidewire.system_identifier() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT c.system_identifier FROM pg_control_system() AS c);
EXCEPTION WHEN feature_not_supported OR insufficient_privilege OR internal_error THEN
	RETURN NULL;
END
$$;

INSERT INTO tidewire.history (base, timeline, system) VALUES (0, tidewire.timeline(), tidewire.system_identifier());

-- bases returns the bases of all histories. A base is forgotten if eight more histories begin before
-- a node has seen it.
CREATE FUNCTION tidewire.bases() RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
	SELECT base FROM tidewire.history
	UNION SELECT h.history >> 32 << 18 FROM (
		SELECT pg_sequence_last_value('tidewire.history_seq') AS history
		UNION ALL SELECT pg_sequence_last_value(s) FROM unnest(tidewire.history_ring()) AS s
	) AS h WHERE h.history IS NOT NULL
$$;

-- history_base returns the base of the current history, and begins the history if necessary. All new positions are higher. A
-- read-only transaction begins no history; it gets the base that the history would have.
CREATE FUNCTION tidewire.history_base() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	history bigint := pg_sequence_last_value('tidewire.history_seq');
BEGIN
	IF history & 4294967295 = tidewire.timeline() THEN
		RETURN history >> 32 << 18;
	ELSIF current_setting('transaction_read_only')::boolean THEN
		RETURN greatest(extract(epoch FROM clock_timestamp())::bigint - 1577836800, (history >> 32) + 1) << 18;
	END IF;
	RETURN tidewire.begin_history(history);
END
$$;

-- Sequences of ids. A standby that takes over has the sequence as it was some ids earlier, so a new object there could get the id
-- of a lost one, and a client that holds the lost id would use the new object. So ids leap when a history begins. Ids are never
-- used again: a client that holds the id of a dropped object cannot reach a new one of the same name.
--
-- The id of a stream is also the number of its lock. Numbers below 1000 are Tidewire's internal locks; numbers from 2^30 on are
-- locks of event stores, and negative ones are locks of queues.
CREATE SEQUENCE tidewire.stream_id_seq AS int START WITH 1000 MAXVALUE 1073741823 CACHE 1;
CREATE SEQUENCE tidewire.stream_group_id_seq AS int CACHE 1;
CREATE SEQUENCE tidewire.share_id_seq AS int CACHE 1;
CREATE SEQUENCE tidewire.share_member_id_seq CACHE 1;
CREATE SEQUENCE tidewire.share_token_seq CACHE 1;
CREATE SEQUENCE tidewire.queue_family_id_seq AS int CACHE 1;
CREATE SEQUENCE tidewire.event_store_id_seq AS int MAXVALUE 1073741823 CACHE 1;

CREATE FUNCTION tidewire.id_sequences() RETURNS regclass[] LANGUAGE sql IMMUTABLE AS $$
	SELECT ARRAY['tidewire.stream_id_seq', 'tidewire.stream_group_id_seq', 'tidewire.share_id_seq', 'tidewire.share_member_id_seq',
		'tidewire.queue_family_id_seq', 'tidewire.event_store_id_seq', 'tidewire.share_token_seq']::regclass[]
$$;

-- next_id is nextval in the current history.
--
-- Runs with the rights of the role that migrated, as an identity column does.
CREATE FUNCTION tidewire.next_id(ids regclass) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF ids <> ALL (tidewire.id_sequences()) THEN
		RAISE EXCEPTION '% has no ids', ids;
	END IF;
	PERFORM tidewire.history_base();
	RETURN nextval(ids);
END
$$;

-- leap moves a sequence of ids about 500,000 higher, or a thousandth of the remaining ids if that is less. The number is random:
-- after two failovers in a row neither primary can know which ids the other one has assigned.
CREATE FUNCTION tidewire.leap(ids regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	last bigint;
	highest bigint;
BEGIN
	SELECT coalesce(pg_sequence_last_value(s.seqrelid), s.seqstart), s.seqmax INTO last, highest FROM pg_sequence AS s WHERE s.seqrelid = ids;
	PERFORM setval(ids, last + least(50000 + (random() * 950000)::bigint, (highest - last) / 1000));
END
$$;

-- begin_history begins a new history after the one that history_seq named, unless another session has already begun it,
-- and returns the base. It can also be called manually, as SELECT tidewire.begin_history(), after a dump was restored
-- into the cluster that it is from, or a disk was reset to a snapshot: PostgreSQL then keeps its timeline, and clients
-- may know positions that no longer exist.
--
-- A rollback undoes nothing of it, and no other session waits for the transaction: it only moves sequences, under a lock that is
-- released at once.
--
-- Runs with the rights of the role that migrated, which owns the sequences.
CREATE FUNCTION tidewire.begin_history(before bigint DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	history bigint;
	next bigint;
	ids regclass;
BEGIN
	PERFORM pg_advisory_lock(1953064037, 5);
	BEGIN
		history := pg_sequence_last_value('tidewire.history_seq');
		IF history = coalesce(before, history) THEN
			next := greatest(extract(epoch FROM clock_timestamp())::bigint - 1577836800, (history >> 32) + 1) << 32 | tidewire.timeline();
			-- So that a transaction with an old snapshot, which does not see the end of a stream, continues after the
			-- base too.
			IF pg_sequence_last_value('tidewire.shared_top_seq') < next >> 32 << 18 OR pg_sequence_last_value('tidewire.shared_top_seq') IS NULL THEN
				PERFORM setval('tidewire.shared_top_seq', next >> 32 << 18);
			END IF;
			FOREACH ids IN ARRAY tidewire.id_sequences() LOOP
				PERFORM tidewire.leap(ids);
			END LOOP;
			-- The old history must be in the ring before it is overwritten here.
			PERFORM setval((tidewire.history_ring())[1 + nextval('tidewire.history_number_seq') % 8], history);
			PERFORM setval('tidewire.history_seq', next);
			history := next;
		END IF;
	EXCEPTION WHEN query_canceled OR OTHERS THEN
		PERFORM pg_advisory_unlock(1953064037, 5); -- else the session would keep the lock
		RAISE;
	END;
	PERFORM pg_advisory_unlock(1953064037, 5);
	PERFORM tidewire.note_growth();
	RETURN history >> 32 << 18;
END
$$;

-- enter_history begins a new history if the timeline or the cluster has changed since the last one, and writes the rows of all
-- known histories. It is the only function that does so, and nodes call it in separate transactions. It returns the base. On a
-- standby it only reads. READ COMMITTED.
CREATE FUNCTION tidewire.enter_history() RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	history bigint := pg_sequence_last_value('tidewire.history_seq');
	now_at bigint;
BEGIN
	IF pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean THEN
		RETURN history >> 32 << 18;
	END IF;
	now_at := tidewire.history_base();
	PERFORM FROM tidewire.history AS h WHERE h.base = now_at AND h.system <> tidewire.system_identifier();
	IF FOUND THEN
		now_at := tidewire.begin_history(pg_sequence_last_value('tidewire.history_seq'));
	END IF;
	PERFORM FROM tidewire.history AS h WHERE h.base = now_at;
	IF FOUND THEN
		RETURN now_at;
	END IF;
	INSERT INTO tidewire.history (base, timeline, system)
		SELECT h.history >> 32 << 18, h.history & 4294967295, NULL
			FROM (SELECT pg_sequence_last_value(s) AS history FROM unnest(tidewire.history_ring()) AS s) AS h WHERE h.history IS NOT NULL
		UNION ALL SELECT now_at, tidewire.timeline(), tidewire.system_identifier()
		ORDER BY 1 -- the same order in every session, so that equal rows cannot deadlock
		ON CONFLICT DO NOTHING;
	RETURN now_at;
END
$$;
