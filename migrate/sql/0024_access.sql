-- Who may use the server: API keys, tokens that were revoked before their end, and the audit log.
--
-- Each server holds all keys and revocations in memory, so that no request waits for the database to check one. It reads them again when a
-- notification comes on the channel tidewire_access, after it was without the connection that listens, and every 30 s.

-- API keys. A key is tw_<id>_<secret>; digest is the SHA-256 of the secret, which is stored nowhere.
CREATE TABLE tidewire.api_keys (
	id text COLLATE "C" PRIMARY KEY,
	name text COLLATE "C" NOT NULL, -- several keys may have one name: a new key takes the place of a former one
	digest bytea NOT NULL CHECK (octet_length(digest) = 32),
	allow text[] NOT NULL, -- the rights of the key: rules without placeholders
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	expires_at timestamptz,
	revoked_at timestamptz
);

-- Revocations. One of kind jti is of the token with that jti, one of kind user of all tokens of a user (the claim sub) that were issued before a time.
-- Rows whose ends_at has passed are deleted an hour later: the tokens have expired by then, also for a server with a leeway.
CREATE TABLE tidewire.revoked_tokens (
	kind text COLLATE "C" NOT NULL CHECK (kind IN ('jti', 'user')),
	name text COLLATE "C" NOT NULL,
	issued_before timestamptz CHECK ((kind = 'user') = (issued_before IS NOT NULL)),
	ends_at timestamptz,
	revoked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (kind, name)
);

-- The audit log: a row for each act of an administrator, written in the transaction of the act. Nothing deletes rows.
--
-- Ids are in the order of commits: record_access_act draws them under a lock that is held to the commit. So a server that remembers the last id that it
-- has seen misses no act. They leap when a history begins, like all ids (0001_histories.sql): an act after a failover has a higher id than all lost ones.
CREATE TABLE tidewire.access_acts (
	id bigint PRIMARY KEY,
	at timestamptz NOT NULL DEFAULT clock_timestamp(),
	actor text NOT NULL, -- the user of the request, or cli: and the user of the operating system
	act text NOT NULL, -- key_created, key_revoked, token_revoked, user_revoked, user_disconnected
	target text NOT NULL, -- the id of a key, a jti, or a user
	detail jsonb NOT NULL
);
CREATE SEQUENCE tidewire.access_act_id_seq CACHE 1 OWNED BY tidewire.access_acts.id;

CREATE OR REPLACE FUNCTION tidewire.id_sequences() RETURNS regclass[] LANGUAGE sql IMMUTABLE AS $$
	SELECT ARRAY['tidewire.stream_id_seq', 'tidewire.stream_group_id_seq', 'tidewire.share_id_seq', 'tidewire.share_member_id_seq',
		'tidewire.queue_family_id_seq', 'tidewire.event_store_id_seq', 'tidewire.share_token_seq', 'tidewire.access_act_id_seq']::regclass[]
$$;

-- lock_access takes the lock of all acts, until the end of the transaction. It is the first statement of an act, which needs READ COMMITTED: counts of rows
-- are right then.
CREATE FUNCTION tidewire.lock_access() RETURNS void LANGUAGE sql AS $$
	SELECT pg_advisory_xact_lock(1953064037, 6)
$$;

-- record_access_act writes an act into the audit log, tells all servers, and returns its id. The notification is {"act":<id>}; one of an application, which
-- says that the rights of a user have changed, is {"user":"<name>"}.
CREATE FUNCTION tidewire.record_access_act(actor text, act text, target text, detail jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	new_id bigint;
BEGIN
	PERFORM tidewire.lock_access();
	new_id := tidewire.next_id('tidewire.access_act_id_seq');
	INSERT INTO tidewire.access_acts (id, actor, act, target, detail) VALUES (new_id, actor, act, target, detail);
	PERFORM pg_notify('tidewire_access', json_build_object('act', new_id)::text);
	RETURN new_id;
END
$$;
