-- The event stores. The id names a store's tables; 2^30 + id is the number of its lock.
CREATE TABLE tidewire.event_store (
	id int PRIMARY KEY DEFAULT tidewire.next_id('tidewire.event_store_id_seq'),
	name text COLLATE "C" NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 128),
	created_at timestamptz NOT NULL DEFAULT now()
);
ALTER SEQUENCE tidewire.event_store_id_seq OWNED BY tidewire.event_store.id;

-- Snapshots of projections. position is the position up to which the state includes all
-- events; it is not that of the last event that the projection selects, but how far it has
-- read. fingerprint is a hash of the projector's name, version and query, and checksum one
-- of the row: position, fingerprint and state.
--
-- One row for each projection, updated when it saves, which is rare.
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

-- create_event_tables makes the tables of one store. Text compares as bytes
-- (COLLATE "C"): that is faster, and no upgrade of locales can break an index.
--
-- events_N_tag is an inverted index: it has a row for each tag of each event,
-- which conditions and queries read. It holds hashes, which the writers supply,
-- so rows have 48 bytes whatever the tags are. A query that finds a row then
-- compares the event's own type and tags. The type comes before the position in
-- the index, so that "an event of this type with this tag" is one descent
-- however many events of other types have the tag. signature is a bloom filter:
-- it has three bits for each tag of the event. For an item with several tags one
-- tag is looked up, and the signature nearly always tells whether the event has
-- the others too. event is the physical location of the event in its table,
-- where nothing is ever updated: reading a hundred events by it takes a third of
-- the time of a hundred descents by position. It is a hint, because VACUUM FULL
-- and pg_restore move events: readers that use it compare positions.
--
-- events_N_batch has a row for each committed batch, which settles whether a
-- batch whose COMMIT was never answered took effect, and what its answer was.
-- Its last row identifies the history up to a position: a node that relies on
-- what it knows about that history names this row. The other rows are deleted
-- after some minutes.
CREATE FUNCTION tidewire.create_event_tables(store int) RETURNS void LANGUAGE plpgsql AS $create$
BEGIN
	EXECUTE replace($sql$
		CREATE TABLE tidewire.events_# (
			position bigint PRIMARY KEY,
			created_at timestamptz NOT NULL,
			is_json boolean NOT NULL,
			type text COLLATE "C" NOT NULL,
			id text COLLATE "C",
			tags text[] COLLATE "C" NOT NULL,
			data bytea NOT NULL,
			packed bytea -- see pack_event
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
$create$;

-- ensure_event_store returns the store of that name, existing or new. If
-- another session is making it, it waits, as tidewire.ensure_stream does.
CREATE FUNCTION tidewire.ensure_event_store(store_name text)
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
			PERFORM tidewire.define_event_checks(found_or_made.id);
			PERFORM tidewire.define_event_append(found_or_made.id);
			PERFORM tidewire.define_event_reads(found_or_made.id);
			PERFORM tidewire.close_functions();
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;

-- drop_event_store drops a store with all its events and the records of its clients, and returns whether
-- there was one. It gives up soon if another session reads or writes, and the caller tries again: an
-- exclusive lock that waits would block all later sessions.
--
-- The store's functions are not found with LIKE and escaped characters: with standard_conforming_strings = off
-- such a pattern for store 1 also matches those of store 11.
CREATE FUNCTION tidewire.drop_event_store(store_name text)
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
		WHERE pronamespace = 'tidewire'::regnamespace AND starts_with(proname::text, 'events_' || store || '_')
	LOOP
		EXECUTE format('DROP FUNCTION %s', made);
	END LOOP;
	EXECUTE replace('DROP TABLE tidewire.events_#, tidewire.events_#_tag, tidewire.events_#_batch', '#', store::text);
	DELETE FROM tidewire.request_window WHERE stream = lock;
	IF FOUND THEN
		EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I, tidewire.%I',
			'request_' || lock || '_0', 'request_' || lock || '_1', 'request_' || lock || '_floor');
	END IF;
	RETURN true;
END
$$;
