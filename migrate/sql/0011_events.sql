-- The event stores. The id names a store's tables; 2^30 + id is the number of
-- its lock. Ids are never used again, so that a writer of a dropped store
-- cannot reach a new one of the same name.
CREATE TABLE tidewire.event_store (
	id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text COLLATE "C" NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 128),
	created_at timestamptz NOT NULL DEFAULT now()
);

-- create_event_tables makes the tables of one store. Text compares as bytes
-- (COLLATE "C"): faster, and no upgrade of locales can break an index.
--
-- events_N_tag has a row for each tag of each event, and is what conditions
-- and queries look at. It holds hashes, which the writers supply: rows of 48
-- bytes whatever the tags are. Whoever finds a row compares the event's own
-- type and tags behind it. The type comes before the position in the index,
-- so that "an event of this type with this tag" is one descent however many
-- events of other types have the tag. signature has three bits for each tag of
-- the event: of an item with several tags one is looked up, and the signature
-- says, nearly always, whether the others are there too. event is where the
-- event is in its table, where nothing is ever updated: reading a hundred
-- events by it takes a third of the time of a hundred descents by position.
-- It is a hint, for VACUUM FULL and pg_restore move events: whoever reads by it
-- compares positions.
--
-- events_N_batch has a row for each committed batch, which settles whether a
-- batch whose COMMIT was never answered took effect, and what was answered
-- then. Its last row names the history up to a position: a node that relies on
-- what it knows about that history says so by this row. The others go after
-- some minutes.
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
$create$;

-- ensure_event_store returns the store of that name, as it is or newly made,
-- and waits, as tidewire.ensure_stream does, for another one that makes it.
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
			PERFORM tidewire.define_event_functions(found_or_made.id);
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;

-- drop_event_store drops a store with all its events, and tells whether there
-- was one. It gives up soon if somebody reads or writes, and the caller tries
-- again: an exclusive lock that waits would stop everybody behind it.
CREATE FUNCTION tidewire.drop_event_store(store_name text)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
	store int;
	made regprocedure;
BEGIN
	DELETE FROM tidewire.event_store WHERE name = store_name RETURNING id INTO store;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, 1073741824 + store);
	FOR made IN SELECT oid FROM pg_proc
		WHERE pronamespace = 'tidewire'::regnamespace AND proname LIKE 'events\_' || store || '\_%'
	LOOP
		EXECUTE format('DROP FUNCTION %s', made);
	END LOOP;
	EXECUTE replace('DROP TABLE tidewire.events_#, tidewire.events_#_tag, tidewire.events_#_batch', '#', store::text);
	RETURN true;
END
$$;
