-- One look tells a node that no stream has grown: it asks for all of them only if one has.

-- growth_seq moves whenever a transaction takes positions of a stream, or drops one.
CREATE SEQUENCE tidewire.growth_seq CACHE 1;

-- note_growth is called by all of these. The transaction has a number of its own by
-- then, so that whoever sees the sequence there can tell whether it is still under way.
CREATE FUNCTION tidewire.note_growth() RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM pg_current_xact_id();
	PERFORM nextval('tidewire.growth_seq');
END
$$;

-- The functions below are as before, and note growth. Locks below 1000 are no streams'.
CREATE OR REPLACE FUNCTION tidewire.take_positions(
	lock_id int, positions regclass, size bigint, writer bigint, number bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	head bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	head := coalesce(pg_sequence_last_value(positions), 0);
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = lock_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(lock_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
	IF lock_id >= 1000 THEN
		PERFORM tidewire.note_growth();
	END IF;
	RETURN head + 1;
END
$$;

CREATE OR REPLACE FUNCTION tidewire.begin_batch(
	lock_id int, positions regclass, head bigint, size bigint, writer bigint, number bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	actual bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	actual := coalesce(pg_sequence_last_value(positions), 0);
	IF actual <> head THEN
		RAISE EXCEPTION 'stream head is %, not %', actual, head
			USING ERRCODE = 'TW001', DETAIL = actual::text;
	END IF;
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = lock_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(lock_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
	IF lock_id >= 1000 THEN
		PERFORM tidewire.note_growth();
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION tidewire.move_outbox() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	target record;
	positions regclass;
	head bigint;
BEGIN
	-- First, and the messages last: what is published after this, by another
	-- trigger or with constraints set immediate, is due again.
	DELETE FROM pg_temp.tidewire_outbox_due;
	PERFORM tidewire.note_growth();
	FOR target IN SELECT stream, count(*) AS size FROM pg_temp.tidewire_outbox GROUP BY stream ORDER BY stream LOOP
		PERFORM pg_advisory_xact_lock(1953064037, target.stream);
		BEGIN
			positions := ('tidewire.stream_' || target.stream || '_position_seq')::regclass;
			head := coalesce(pg_sequence_last_value(positions), 0);
		EXCEPTION WHEN undefined_table OR internal_error THEN -- the latter while it was waited for
			RAISE EXCEPTION 'stream % was dropped', target.stream USING ERRCODE = 'TW003';
		END;
		PERFORM tidewire.make_room(target.stream, head, head + target.size);
		PERFORM setval(positions, head + target.size);
		EXECUTE format($sql$
			INSERT INTO tidewire.%I (position, created_at, key, headers, payload)
			SELECT $1 + row_number() OVER (ORDER BY number), $2, key, headers, payload
			FROM pg_temp.tidewire_outbox WHERE stream = $3$sql$, 'stream_' || target.stream)
			USING head, clock_timestamp(), target.stream;
	END LOOP;
	DELETE FROM pg_temp.tidewire_outbox;
	RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION tidewire.drop_stream_tables(stream_id int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, stream_id);
	PERFORM tidewire.note_growth();
	EXECUTE format('DROP TABLE tidewire.%I', 'stream_' || stream_id);
	DELETE FROM tidewire.segment WHERE stream = stream_id;
	DELETE FROM tidewire.producer_window WHERE stream = stream_id;
	IF FOUND THEN
		EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I, tidewire.%I', 'producer_' || stream_id || '_0',
			'producer_' || stream_id || '_1', 'producer_' || stream_id || '_floor');
	END IF;
END
$$;

-- stream_heads as before. Of a stream that cannot be looked at now, because somebody
-- alters or drops it, it returns that it stands at -1, so that whoever asks does so again.
CREATE OR REPLACE FUNCTION tidewire.stream_heads(ids int[], settled bigint[])
RETURNS TABLE (id int, reserved bigint, head bigint)
LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE
	positions regclass;
BEGIN
	FOR i IN 1 .. cardinality(ids) LOOP
		BEGIN
			id := ids[i];
			head := NULL;
			positions := to_regclass('tidewire.stream_' || id || '_position_seq');
			IF positions IS NOT NULL THEN
				reserved := coalesce(pg_sequence_last_value(positions), 0);
				CONTINUE WHEN reserved = settled[i];
				SELECT s.head INTO head FROM tidewire.stream_state(id) AS s;
			END IF;
			RETURN NEXT;
		EXCEPTION WHEN undefined_table OR lock_not_available OR internal_error THEN
			reserved := -1;
			head := 0;
			RETURN NEXT;
		END;
	END LOOP;
END
$$;
