-- Shares (group assignment): a share divides numbers, from 0 on, among its
-- members, for example the partitions of a stream among the members of a group.
-- Everything that is written here, except the renewal of a lease, is written in
-- transactions that hold the share's lock, which has a separate lock class and
-- the share's id, and uses the clock after the lock was granted. A share that
-- belongs to a stream is deleted with the stream, other shares with their last
-- member.
--
-- Rows here are updated in place: one for each member every few seconds, as its
-- heartbeat, and one for each number that changes its owner.
CREATE TABLE tidewire.share (
	id int PRIMARY KEY DEFAULT tidewire.next_id('tidewire.share_id_seq'),
	name text COLLATE "C" NOT NULL UNIQUE,
	stream int REFERENCES tidewire.stream ON DELETE CASCADE
);
ALTER SEQUENCE tidewire.share_id_seq OWNED BY tidewire.share.id;
CREATE INDEX share_stream_idx ON tidewire.share (stream) WHERE stream IS NOT NULL; -- for the cascade
CREATE TABLE tidewire.share_member (
	id bigint PRIMARY KEY DEFAULT tidewire.next_id('tidewire.share_member_id_seq'),
	share int NOT NULL REFERENCES tidewire.share ON DELETE CASCADE,
	name text NOT NULL,
	until timestamptz NOT NULL, -- end of the lease on all numbers that it owns
	leaving boolean NOT NULL DEFAULT false
);
ALTER SEQUENCE tidewire.share_member_id_seq OWNED BY tidewire.share_member.id;
CREATE INDEX share_member_idx ON tidewire.share_member (share);

-- token identifies one ownership, and is never used again (a fencing token): writes that carry
-- it are rejected once the number has another owner.
CREATE TABLE tidewire.share_number (
	share int NOT NULL REFERENCES tidewire.share ON DELETE CASCADE,
	number int NOT NULL,
	owner bigint,
	token bigint UNIQUE,
	PRIMARY KEY (share, number)
);

-- hold_share takes the lock of a share, exclusive or shared. READ COMMITTED is
-- required, so that later statements see everything that was committed before the
-- lock was granted. Its lock class is the next number after that of the streams'
-- locks.
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

-- end_leases removes the ownerships of the members whose lease is over, or of
-- the named member. A row that is locked is being renewed, so its member is
-- alive. The caller holds the share's lock.
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

-- share_quota returns how many numbers a member should have, how many it owns,
-- and how many are free. A leaving member should have none.
--
-- Quotas differ by one at most. The members that own the most get the larger
-- ones, so that as few numbers as possible change their owner.
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

-- join_share makes a member, and the share if there is none. A share without
-- members takes over the requested count of numbers. If the share has members
-- and another count, it fails with TW006.
--
-- Here and in leave_share the wait for the lock is short, because all sessions
-- that write as owners queue up after it; the caller tries again.
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
		EXIT WHEN FOUND; -- else its last member has left while this session waited for the lock
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

-- beat_share is the heartbeat of a member, every few seconds: it renews the
-- lease, releases ownerships, and takes free numbers, up to the quota. It
-- returns whether the caller is still a member, its quota, and what it owns.
--
-- A member with more than its quota has to release something; until then it is not
-- taken away. A leaving member gets nothing, and does not count for the quotas.
--
-- The lease is always renewed. Then it checks without the lock whether any number
-- has to change its owner, because the locked check takes long if there are many
-- dead rows of members that cannot be removed, and usually nothing changes. It
-- waits for the lock for half a second at most: a session may be writing as an
-- owner, and take long. After that nothing changes, the quota is NULL, and the
-- releases take effect the next time.
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
		UPDATE tidewire.share_number SET owner = member_id, token = tidewire.next_id('tidewire.share_token_seq')
			WHERE share = share_id AND number IN (
				SELECT number FROM tidewire.share_number WHERE share = share_id AND owner IS NULL ORDER BY number LIMIT quota - standing.owned);
	END IF;
	SELECT coalesce(array_agg(number ORDER BY number), '{}'), coalesce(array_agg(token ORDER BY number), '{}') INTO numbers, tokens
		FROM tidewire.share_number WHERE share = share_id AND owner = member_id;
END
$$;

-- leave_share ends a membership, and all its ownerships, at once.
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

-- hold_ownerships returns which of the ownerships are valid, and keeps them valid until
-- the end of the transaction: no other member gets the numbers meanwhile. The next owner
-- sees all writes of that transaction, and later writes with the old token are rejected.
-- The transaction should be short: until its end no number of the share changes its
-- owner, and no member joins or leaves.
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

-- commit_owned is commit_offsets for readers that own what they read: position n is committed
-- only if ownership tokens[n] is valid (a fencing token). Offsets of invalid ones are not
-- returned.
CREATE FUNCTION tidewire.commit_owned(ids int[], positions bigint[], tokens bigint[])
RETURNS TABLE (id int, committed bigint, written boolean, token bigint) LANGUAGE plpgsql AS $$
DECLARE
	lasting bigint[] := tidewire.hold_ownerships(tokens);
BEGIN
	RETURN QUERY
		WITH given AS (
			SELECT * FROM unnest(ids, positions, tokens) AS t (g, p, o) WHERE o = ANY (lasting)
		)
		SELECT c.id, c.committed, c.written, owner.o
		FROM tidewire.commit_offsets(ARRAY(SELECT g FROM given ORDER BY g, p), ARRAY(SELECT p FROM given ORDER BY g, p)) AS c
		JOIN (SELECT DISTINCT g, o FROM given) AS owner ON owner.g = c.id;
END
$$;
