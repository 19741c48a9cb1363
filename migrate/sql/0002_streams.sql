-- The named streams. The id names a stream's tables and sequences.
--
-- A partitioned stream is a row with that name, the number of its partitions
-- and no table, and the partitions, which are streams in all respects and
-- called <name>/0 to <name>/<n-1>. As there may be more of them than
-- PostgreSQL has room for locks in a transaction, they are made and dropped in
-- several: until all are there, and once some are gone, the state says so, and
-- the stream is not found.
--
-- shared: its messages are in tidewire.shared_message, and it has no tables of its own.
CREATE TABLE tidewire.stream (
	id int PRIMARY KEY DEFAULT tidewire.next_id('tidewire.stream_id_seq'),
	name text COLLATE "C" NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 128),
	keyed boolean NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	parent int REFERENCES tidewire.stream,
	partition int,
	partitions int NOT NULL DEFAULT 0 CHECK (partitions BETWEEN 0 AND 1024),
	state text NOT NULL DEFAULT 'ready' CHECK (state IN ('making', 'ready', 'dropping')),
	shared boolean NOT NULL DEFAULT false,
	UNIQUE (parent, partition)
);
ALTER SEQUENCE tidewire.stream_id_seq OWNED BY tidewire.stream.id;

-- growth_seq moves whenever a transaction takes positions of a stream, or drops one: one look tells a node that no stream has grown.
CREATE SEQUENCE tidewire.growth_seq CACHE 1;

-- note_growth is called by all that gives out positions of a stream, or drops one. The transaction has a number of its own by
-- then, so that whoever sees the sequence there can tell whether it is still under way.
CREATE FUNCTION tidewire.note_growth() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM pg_current_xact_id();
	PERFORM nextval('tidewire.growth_seq');
END
$$;

-- ensure_stream returns the stream of that name, as it is or newly made. It waits for another one that makes it: INSERT does, on the unique name.
CREATE FUNCTION tidewire.ensure_stream(stream_name text, stream_keyed boolean, own boolean DEFAULT false)
RETURNS tidewire.stream LANGUAGE plpgsql AS $$
DECLARE
	found_or_made tidewire.stream;
BEGIN
	LOOP
		SELECT * INTO found_or_made FROM tidewire.stream WHERE name = stream_name;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
		INSERT INTO tidewire.stream (name, keyed, shared) VALUES (stream_name, stream_keyed, NOT own)
			ON CONFLICT (name) DO NOTHING RETURNING * INTO found_or_made;
		IF FOUND THEN
			IF own THEN
				PERFORM tidewire.create_stream_table(found_or_made.id, stream_keyed);
			END IF;
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;

-- drop_stream drops a stream with all it holds and tells whether there was
-- one; neither a partition nor a stream that has some. It takes the stream's lock first, as writers do, so that they cannot
-- deadlock with it. Everybody who comes to the table waits after one who waits to
-- drop it: it gives up soon, and the caller tries again.
--
-- It takes some five locks for each segment, and PostgreSQL has room for 6,400 by default: of a
-- stream with many, package stream drops the older ones first.
CREATE FUNCTION tidewire.drop_stream(stream_name text)
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

-- drop_stream_tables drops what a stream has beside its row. The stream's lock
-- comes first: a writer that has it may be making tables.
CREATE FUNCTION tidewire.drop_stream_tables(stream_id int) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	PERFORM tidewire.note_growth();
	DELETE FROM tidewire.shared_message WHERE stream = stream_id;
	DELETE FROM tidewire.shared_floor WHERE stream = stream_id;
	PERFORM tidewire.drop_shared_requests(stream_id);
	EXECUTE format('DROP TABLE IF EXISTS tidewire.%I', 'stream_' || stream_id);
	DELETE FROM tidewire.segment WHERE stream = stream_id;
	DELETE FROM tidewire.request_window WHERE stream = stream_id;
	IF FOUND THEN
		EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I, tidewire.%I', 'request_' || stream_id || '_0',
			'request_' || stream_id || '_1', 'request_' || stream_id || '_floor');
	END IF;
END
$$;
