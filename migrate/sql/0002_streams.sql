-- take_positions is begin_batch for a caller that leaves it to PostgreSQL to
-- fill in the positions: it takes the size positions behind the head, wherever
-- that stands, and returns the first; currval() is then the last. Never stale:
-- a node far from PostgreSQL would otherwise always come with the head of a
-- round trip ago, while a near one writes a batch in every gap.
CREATE FUNCTION tidewire.take_positions(
	lock_id int, positions regclass, size bigint, writer bigint, number bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	head bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	head := coalesce(pg_sequence_last_value(positions), 0);
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	PERFORM setval(positions, head + size);
	RETURN head + 1;
END
$$;

-- The named streams. The id names a stream's table and sequence and is the
-- number of its lock; numbers below 1000 are locks of Tidewire's own tables.
-- Ids are never used again, so that a writer of a dropped stream cannot reach
-- a new one of the same name.
CREATE TABLE tidewire.stream (
	id int GENERATED ALWAYS AS IDENTITY (START WITH 1000) PRIMARY KEY,
	name text COLLATE "C" NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 128),
	keyed boolean NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now()
);

-- create_stream_table makes the table of a stream.
--
-- A B-tree on position, and not BRIN as on public.messages: a stream is read
-- by position again and again, a few rows behind the last ones, and that has
-- to take the same time wherever in the stream a reader stands. It is also
-- what a later partitioning by ranges of position needs: nothing here is
-- unique without it, and this table can become the first partition as it is.
--
-- Keys compare as bytes (COLLATE "C"): that is faster to insert, and an
-- upgrade of the system's locales cannot break the index. Fixed-width columns
-- come first, which spares the padding in front of them.
CREATE FUNCTION tidewire.create_stream_table(stream_id int, keyed boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	name text := 'stream_' || stream_id;
BEGIN
	EXECUTE format($sql$
		CREATE TABLE tidewire.%1$I (
			position bigint NOT NULL,
			created_at timestamptz NOT NULL DEFAULT now(),
			key text COLLATE "C",
			headers jsonb,
			payload bytea NOT NULL,
			CONSTRAINT %2$I PRIMARY KEY (position)
		)$sql$, name, name || '_pkey');
	EXECUTE format('CREATE SEQUENCE tidewire.%I CACHE 1 OWNED BY tidewire.%I.position',
		name || '_position_seq', name);
	IF keyed THEN
		EXECUTE format('CREATE INDEX %I ON tidewire.%I (key, position) WHERE key IS NOT NULL',
			name || '_key_idx', name);
	END IF;
END
$$;

-- ensure_stream returns the stream of that name, as it is or newly made. Of
-- two that make it at once, the second waits in its INSERT for the first to
-- commit, and then finds the row: each statement here reads what was committed
-- before it began, which takes READ COMMITTED. The loop is for a stream that
-- is dropped in between.
CREATE FUNCTION tidewire.ensure_stream(stream_name text, stream_keyed boolean)
RETURNS tidewire.stream LANGUAGE plpgsql AS $$
DECLARE
	found_or_made tidewire.stream;
BEGIN
	LOOP
		SELECT * INTO found_or_made FROM tidewire.stream WHERE name = stream_name;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
		INSERT INTO tidewire.stream (name, keyed) VALUES (stream_name, stream_keyed)
			ON CONFLICT (name) DO NOTHING RETURNING * INTO found_or_made;
		IF FOUND THEN
			PERFORM tidewire.create_stream_table(found_or_made.id, stream_keyed);
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;

-- drop_stream drops a stream with all it holds and tells whether there was
-- one. It takes the stream's lock first, as writers do, so that they cannot
-- deadlock with it. Everybody who comes to the table waits behind one who waits to
-- drop it: it gives up soon, and the caller tries again.
CREATE FUNCTION tidewire.drop_stream(stream_name text)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
	stream_id int;
BEGIN
	DELETE FROM tidewire.stream WHERE name = stream_name RETURNING id INTO stream_id;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	EXECUTE format('DROP TABLE tidewire.%I', 'stream_' || stream_id);
	RETURN true;
END
$$;
