-- partition_of is the partition that a key belongs to: the first four bytes of
-- its SHA-256, as a number, modulo the number of partitions. It never changes:
-- package stream, and clients, do the same.
CREATE FUNCTION tidewire.partition_of(key text, partitions int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS $$
	SELECT (('x' || encode(substr(sha256(convert_to(key, 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint % partitions)::int
$$;

-- ensure_partitioned returns the stream of that name, existing or new. A new one gets that number of partitions, which
-- make_partitions makes.
CREATE FUNCTION tidewire.ensure_partitioned(stream_name text, stream_keyed boolean, count int, own boolean DEFAULT false)
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
		INSERT INTO tidewire.stream (name, keyed, partitions, state, shared) VALUES (stream_name, stream_keyed, count, 'making', NOT own)
			ON CONFLICT (name) DO NOTHING RETURNING * INTO found_or_made;
		IF FOUND THEN
			RETURN found_or_made;
		END IF;
	END LOOP;
END
$$;

-- make_partitions makes up to "most" of the partitions that a stream lacks, and
-- returns its state. Concurrent calls take turns: each locks the row.
CREATE FUNCTION tidewire.make_partitions(stream_id int, most int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	whole tidewire.stream;
	made int;
	id int;
BEGIN
	SELECT * INTO whole FROM tidewire.stream AS s WHERE s.id = stream_id FOR UPDATE;
	IF NOT FOUND OR whole.state <> 'making' THEN
		RETURN coalesce(whole.state, 'dropping'); -- another session has dropped it
	END IF;
	SELECT count(*) INTO made FROM tidewire.stream AS s WHERE s.parent = stream_id;
	FOR n IN made .. least(made + most, whole.partitions) - 1 LOOP
		INSERT INTO tidewire.stream (name, keyed, parent, partition, shared)
			VALUES (whole.name || '/' || n, whole.keyed, stream_id, n, whole.shared) RETURNING tidewire.stream.id INTO id;
		IF NOT whole.shared THEN
			PERFORM tidewire.create_stream_table(id, whole.keyed);
		END IF;
	END LOOP;
	IF made + most < whole.partitions THEN
		RETURN 'making';
	END IF;
	UPDATE tidewire.stream AS s SET state = 'ready' WHERE s.id = stream_id;
	RETURN 'ready';
END
$$;

-- begin_drop begins to drop a partitioned stream, which from then on is not
-- found. It returns its id, or NULL if there is no such stream.
CREATE FUNCTION tidewire.begin_drop(stream_name text) RETURNS int LANGUAGE sql AS $$
	UPDATE tidewire.stream SET state = 'dropping' WHERE name = stream_name AND partitions > 0 RETURNING id
$$;

-- last_partition returns the name of the last partition that still exists.
CREATE FUNCTION tidewire.last_partition(stream_id int) RETURNS text LANGUAGE sql STABLE AS $$
	SELECT name FROM tidewire.stream WHERE parent = stream_id ORDER BY partition DESC LIMIT 1
$$;

-- drop_partition drops the last existing partition of a stream that is being
-- dropped, or, when there is none, the stream's row, and returns whether that
-- is gone. Like drop_stream it gives up soon.
CREATE FUNCTION tidewire.drop_partition(stream_id int)
RETURNS boolean LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
	last_id int;
BEGIN
	PERFORM FROM tidewire.stream WHERE id = stream_id AND state = 'dropping' FOR UPDATE;
	IF NOT FOUND THEN
		RETURN true; -- another session was faster
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

-- refuse_partition fails with TW007 if the name is that of a partition: such an
-- operation must be done on the whole stream.
CREATE FUNCTION tidewire.refuse_partition(stream_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM tidewire.stream WHERE name = stream_name AND parent IS NOT NULL;
	IF FOUND THEN
		RAISE EXCEPTION 'stream % is a partition of another', quote_ident(stream_name) USING ERRCODE = 'TW007';
	END IF;
END
$$;
