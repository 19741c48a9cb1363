-- Streams in partitions, and the sharing out of numbered things among the members of a group.

-- A partitioned stream is a row with that name, the number of its partitions
-- and no table, and the partitions, which are streams in all respects and
-- called <name>/0 to <name>/<n-1>. As there may be more of them than
-- PostgreSQL has room for locks in a transaction, they are made and dropped in
-- several: until all are there, and once some are gone, the state says so, and
-- the stream is not found.
ALTER TABLE tidewire.stream
	ADD COLUMN parent int REFERENCES tidewire.stream,
	ADD COLUMN partition int,
	ADD COLUMN partitions int NOT NULL DEFAULT 0 CHECK (partitions BETWEEN 0 AND 1024),
	ADD COLUMN state text NOT NULL DEFAULT 'ready' CHECK (state IN ('making', 'ready', 'dropping')),
	ADD UNIQUE (parent, partition);

-- partition_of is the partition that a key belongs to: the first four bytes of
-- its SHA-256, as a number, modulo the number of partitions. It never changes:
-- package stream, and clients, do the same.
CREATE FUNCTION tidewire.partition_of(key text, partitions int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS $$
	SELECT (('x' || encode(substr(sha256(convert_to(key, 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint % partitions)::int
$$;

-- ensure_partitioned returns the stream of that name, as it is or newly made
-- without any of its partitions. The loop is as in ensure_stream.
CREATE FUNCTION tidewire.ensure_partitioned(stream_name text, stream_keyed boolean, count int)
RETURNS tidewire.stream LANGUAGE plpgsql AS $$
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

-- make_partitions makes most of the partitions that a stream lacks, and returns
-- its state. Of several that make them, one at a time does: it has the row.
CREATE FUNCTION tidewire.make_partitions(stream_id int, most int) RETURNS text LANGUAGE plpgsql AS $$
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

-- begin_drop begins to drop a partitioned stream, which is not found from then
-- on. It returns its id, or NULL if there is no such stream.
CREATE FUNCTION tidewire.begin_drop(stream_name text) RETURNS int LANGUAGE sql AS $$
	UPDATE tidewire.stream SET state = 'dropping' WHERE name = stream_name AND partitions > 0 RETURNING id
$$;

-- last_partition returns the name of the last partition there still is.
CREATE FUNCTION tidewire.last_partition(stream_id int) RETURNS text LANGUAGE sql STABLE AS $$
	SELECT name FROM tidewire.stream WHERE parent = stream_id ORDER BY partition DESC LIMIT 1
$$;

-- drop_partition drops the last partition there is of a stream that is being
-- dropped, or, when there is none, its row, and tells whether that is gone. As
-- drop_stream it gives up soon.
CREATE FUNCTION tidewire.drop_partition(stream_id int)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
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

-- As before, and neither for a partition nor for a stream that has some.
CREATE OR REPLACE FUNCTION tidewire.drop_stream(stream_name text)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
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

-- refuse_partition fails with TW007 if the name is that of a partition, what is
-- to be done being for all of them.
CREATE FUNCTION tidewire.refuse_partition(stream_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM tidewire.stream WHERE name = stream_name AND parent IS NOT NULL;
	IF FOUND THEN
		RAISE EXCEPTION 'stream % is a partition of another', quote_ident(stream_name) USING ERRCODE = 'TW007';
	END IF;
END
$$;

-- As before. A partitioned stream keeps what is asked for, and each of its
-- partitions as long, and its share of the bytes.
CREATE OR REPLACE FUNCTION tidewire.set_retention(stream_name text, age interval, bytes bigint, when_consumed boolean)
RETURNS boolean LANGUAGE plpgsql AS $$
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

-- publish as before. To a partitioned stream it goes to the partition of its
-- key, or, without one, to the same as all such of the transaction.
CREATE OR REPLACE FUNCTION tidewire.publish(stream text, key text, headers jsonb, payload bytea)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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

-- The shares: things numbered from 0 on that the members of a name share out,
-- like the partitions of a stream among the members of a group. All that is
-- written here, but for the renewal of a lease, is written in transactions that
-- hold the share's lock, a class of its own with the share's id, and by the
-- clock as it is then. A share of a stream goes with it, the others with their
-- last member.
--
-- Rows here are updated in place: one a member every few seconds, when it says
-- that it lives, and one for each number that changes hands.
CREATE TABLE tidewire.share (
	id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text COLLATE "C" NOT NULL UNIQUE,
	stream int REFERENCES tidewire.stream ON DELETE CASCADE
);
CREATE INDEX share_stream_idx ON tidewire.share (stream) WHERE stream IS NOT NULL; -- for the cascade
CREATE TABLE tidewire.share_member (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	share int NOT NULL REFERENCES tidewire.share ON DELETE CASCADE,
	name text NOT NULL,
	until timestamptz NOT NULL, -- the lease of all numbers that it owns
	leaving boolean NOT NULL DEFAULT false
);
CREATE INDEX share_member_idx ON tidewire.share_member (share);
-- token names one ownership, and is never used again: what carries it can be
-- refused once the number has another owner.
CREATE TABLE tidewire.share_number (
	share int NOT NULL REFERENCES tidewire.share ON DELETE CASCADE,
	number int NOT NULL,
	owner bigint,
	token bigint UNIQUE,
	PRIMARY KEY (share, number)
);
CREATE SEQUENCE tidewire.share_token_seq CACHE 1;

-- hold_share takes the lock of a share, alone or with others. What comes behind
-- it has to see what was committed before it was granted: only READ COMMITTED
-- does. The class is the number behind that of the streams' locks.
CREATE FUNCTION tidewire.hold_share(share_id int, alone boolean) RETURNS void LANGUAGE plpgsql AS $$
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

-- end_leases takes their numbers from the members whose time is up, or from the
-- one that is named. A row that somebody has is being renewed, and its member
-- alive. The caller has the share's lock.
CREATE FUNCTION tidewire.end_leases(share_id int, member_id bigint) RETURNS void LANGUAGE plpgsql AS $$
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

-- share_quota counts how many numbers are a member's due, how many it owns, and
-- how many are free. It is due none if it is leaving.
--
-- Quotas differ by one at most; the larger ones are for those that have the
-- most already, so that as little as possible changes hands.
CREATE FUNCTION tidewire.share_quota(share_id int, member_id bigint, OUT quota int, OUT owned int, OUT free int)
LANGUAGE plpgsql AS $$
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

-- join_share makes a member, and the share if there is none. One that has no
-- members any more takes the number of things asked for. With members, and
-- another number, it fails with TW006.
--
-- Here and in leave_share the wait for the lock is short, for all who write as
-- owners wait behind it; the caller tries again.
CREATE FUNCTION tidewire.join_share(
	share_name text, stream_id int, count int, member_name text, lease interval,
	OUT share_id int, OUT member_id bigint
) LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
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

-- beat_share is all that a member asks, every few seconds: it says that it
-- lives, gives back the ownerships released, and gets what is free, up to its
-- quota. It returns whether it is a member still, its quota, and what it owns.
--
-- Who has more than its quota is to give something back, and nobody takes it
-- away before. A member that is leaving gets nothing any more, and does not
-- count.
--
-- The lease is renewed in any case. Then it looks without the lock whether
-- anything is to change hands, for that takes long where rows of members are
-- dead and cannot be removed, and mostly nothing is. For the lock it waits half a
-- second at most: somebody writes as an owner, and takes long. Then nothing
-- changes hands, the quota is NULL, and what was released is so the next time.
CREATE FUNCTION tidewire.beat_share(
	share_id int, member_id bigint, lease interval, released bigint[], is_leaving boolean,
	OUT alive boolean, OUT quota int, OUT numbers int[], OUT tokens bigint[]
) LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
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

-- leave_share ends a membership, and all it owns, at once.
CREATE FUNCTION tidewire.leave_share(share_id int, member_id bigint)
RETURNS void LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
BEGIN
	PERFORM tidewire.hold_share(share_id, true);
	PERFORM tidewire.end_leases(share_id, member_id);
	PERFORM FROM tidewire.share_member WHERE share = share_id;
	IF NOT FOUND THEN
		DELETE FROM tidewire.share WHERE id = share_id;
	END IF;
END
$$;

-- hold_ownerships tells which of the ownerships last, and has them last until
-- the end of the transaction: nobody gets the number meanwhile. What is written
-- in that transaction the next owner finds, and what comes later is refused.
-- The transaction should be short: until its end nothing of the share changes
-- hands, and no member joins or leaves.
CREATE FUNCTION tidewire.hold_ownerships(tokens bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	share_id int;
BEGIN
	FOR share_id IN SELECT DISTINCT share FROM tidewire.share_number WHERE token = ANY (tokens) ORDER BY share LOOP
		PERFORM tidewire.hold_share(share_id, false);
	END LOOP;
	RETURN ARRAY(SELECT token FROM tidewire.share_number WHERE token = ANY (tokens));
END
$$;

-- commit_owned is commit_offsets for readers that own what they read: position
-- n counts if ownership tokens[n] lasts. Those of the others are not returned.
CREATE FUNCTION tidewire.commit_owned(ids int[], positions bigint[], tokens bigint[])
RETURNS TABLE (id int, committed bigint, written boolean, token bigint) LANGUAGE plpgsql AS $$
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
