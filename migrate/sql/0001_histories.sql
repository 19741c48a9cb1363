-- A position never means two things, also if a standby takes over that lacks the last of what was committed.
--
-- A history is what was committed one after the other, without a failover in between. A new one begins when a
-- standby is promoted, or the database is recovered to a point in time: PostgreSQL gives the write-ahead log a new
-- timeline then. Commits of the old primary that the new one lacks are lost, and nobody can say here how
-- much that was. So positions go on much higher: after the base of the new history, which is made of the time at
-- which it began. The base is above all positions of all histories before, known or not, as long as a
-- stream has had fewer than 2^18 messages a second since its history began.
--
-- A base is the seconds from 2020 on, times 2^18. Clients read positions as JSON numbers, which are exact below 2^53: those of
-- streams and events are until 2088, when the seconds outgrow history_seq, and those of a queue with 64 partitions, which are 64
-- times as high, until 2037.

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
-- timeline. A sequence, because every snapshot sees where it stands now, and no rollback takes it back.
CREATE SEQUENCE tidewire.history_seq CACHE 1;
SELECT setval('tidewire.history_seq', tidewire.timeline());

-- Where the last histories began is in a ring of sequences: number n of all is in the one with n modulo their number. A transaction that begins a
-- history may roll back, or keep its transaction open, so nothing of that is in a table.
CREATE SEQUENCE tidewire.history_number_seq CACHE 1;
DO $$
BEGIN
	FOR n IN 0 .. 7 LOOP
		EXECUTE format('CREATE SEQUENCE tidewire.history_%s_seq CACHE 1', n);
		EXECUTE format('GRANT SELECT ON tidewire.history_%s_seq TO PUBLIC', n);
	END LOOP;
END
$$;

-- history_ring are the sequences of the ring.
CREATE FUNCTION tidewire.history_ring() RETURNS regclass[] LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg(('tidewire.history_' || n || '_seq')::regclass ORDER BY n) FROM generate_series(0, 7) AS n
$$;

-- history has a row for each that has begun and that a node has seen: positions after its base belong to it, or to a later one.
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

-- bases are those of all histories. One is forgotten if eight more begin before any node has looked.
CREATE FUNCTION tidewire.bases() RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
	SELECT base FROM tidewire.history
	UNION SELECT h.history >> 32 << 18 FROM (
		SELECT pg_sequence_last_value('tidewire.history_seq') AS history
		UNION ALL SELECT pg_sequence_last_value(s) FROM unnest(tidewire.history_ring()) AS s
	) AS h WHERE h.history IS NOT NULL
$$;

-- history_base returns the base of the history that goes on, and begins it if nobody has. All positions
-- that are given out are higher. A transaction that may only read begins no history, and is told the base that it would have.
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

-- Ids come from these. A standby that takes over has the sequence as it stood some ids ago: what is made there would have the id of
-- something that is lost, and whoever holds that would work on it. So ids leap when a history begins. Ids are never used
-- again: whoever holds what was dropped cannot reach another one of the same name.
--
-- The number of a stream is that of its lock as well. Numbers below 1000 are locks of Tidewire's own; from 2^30 on they are those of event stores, and negative
-- ones are those of queues.
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

-- next_id is nextval in the history that goes on.
--
-- Runs with the rights of who migrated, as an identity column does.
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

-- leap has a sequence of ids go on some 500,000 higher, or a thousandth of what is left if that is less. The number is random: after
-- two failovers in a row neither can know what the other gave out.
CREATE FUNCTION tidewire.leap(ids regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	last bigint;
	highest bigint;
BEGIN
	SELECT coalesce(s.last_value, s.start_value), s.max_value INTO last, highest
		FROM pg_sequences AS s WHERE format('%I.%I', s.schemaname, s.sequencename)::regclass = ids;
	PERFORM setval(ids, last + least(50000 + (random() * 950000)::bigint, (highest - last) / 1000));
END
$$;

-- begin_history begins a new history after the one that history_seq named, unless another has begun it, and returns the
-- base. It can be called by hand, as SELECT tidewire.begin_history(), after a dump was restored into the cluster that it
-- is from, or a disk was set back to a snapshot: PostgreSQL keeps its timeline then, and clients may know positions that
-- are not here.
--
-- Nothing of it is undone by a rollback, and nobody waits for the transaction: it moves sequences alone, under a lock that is given back at once.
--
-- Runs with the rights of who migrated, who owns the sequences. A role of its own
-- for Tidewire needs EXECUTE on this.
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
			-- A transaction with an old snapshot, which does not see where a stream ends, goes on after the base, too.
			IF pg_sequence_last_value('tidewire.shared_top_seq') < next >> 32 << 18 OR pg_sequence_last_value('tidewire.shared_top_seq') IS NULL THEN
				PERFORM setval('tidewire.shared_top_seq', next >> 32 << 18);
			END IF;
			FOREACH ids IN ARRAY tidewire.id_sequences() LOOP
				PERFORM tidewire.leap(ids);
			END LOOP;
			-- The history that ends is in the ring before it is nowhere else.
			PERFORM setval((tidewire.history_ring())[1 + nextval('tidewire.history_number_seq') % 8], history);
			PERFORM setval('tidewire.history_seq', next);
			history := next;
		END IF;
	EXCEPTION WHEN query_canceled OR OTHERS THEN
		PERFORM pg_advisory_unlock(1953064037, 5); -- which would stay with the session
		RAISE;
	END;
	PERFORM pg_advisory_unlock(1953064037, 5);
	PERFORM tidewire.note_growth();
	RETURN history >> 32 << 18;
END
$$;

-- enter_history begins a new history if the timeline, or the cluster, is another than that of the last one, and
-- writes the rows of all histories that are known. It is the only one to do so, and nodes call it in transactions of their own. It returns the base. On a standby it only looks.
-- READ COMMITTED.
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
		ORDER BY 1 -- as all do, so that equal rows cannot deadlock
		ON CONFLICT DO NOTHING;
	RETURN now_at;
END
$$;
