-- The named streams. The id names a stream's tables and sequences.
--
-- A partitioned stream has a row with its name, the number of its partitions
-- and no table. Its partitions are ordinary streams named <name>/0 to
-- <name>/<n-1>. As there may be more of them than PostgreSQL has room for locks
-- in a transaction, several transactions make and drop them: until all are
-- there, and once some are gone, the state says so, and the stream is not
-- found.
--
-- shared: the messages are in tidewire.shared_message, and the stream has no own tables.
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

-- growth_seq advances whenever a transaction takes positions of a stream, or drops one: one query tells a node that no stream has
-- grown.
CREATE SEQUENCE tidewire.growth_seq CACHE 1;

-- note_growth must be called by everything that takes positions of a stream, or drops one. It makes sure that the transaction
-- has an id first, so that a session that sees the sequence moved can tell whether the transaction is still under way.
CREATE FUNCTION tidewire.note_growth() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM pg_current_xact_id();
	PERFORM nextval('tidewire.growth_seq');
END
$$;

-- ensure_stream returns the stream of that name, existing or new. If another session is making it, it waits: INSERT does, on the
-- unique name.
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

-- drop_stream drops a stream with all its messages and returns whether there was one. It drops neither a partition nor a
-- stream that has partitions. It takes the stream's lock first, as writers do, so that they cannot deadlock. While it waits
-- for the table's exclusive lock, every later session waits too: so it gives up soon, and the caller tries again.
--
-- It takes about five locks for each segment, and PostgreSQL has room for 6,400 by default: if
-- a stream has many segments, package stream drops the older ones first.
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

-- drop_stream_tables drops everything that a stream has except its row. It
-- takes the stream's lock first: a writer that holds it may be making tables.
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
