-- stream_reserved as before. It waits for a stream's table for 0.1 s, and goes then by what was given out: a commit of
-- the offsets of many groups asks for all of their streams, and one that is locked would hold up all. So while the table is
-- locked, a commit in the rest of a sealed segment is accepted.
CREATE OR REPLACE FUNCTION tidewire.stream_reserved(stream_id int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	position bigint;
	begins bigint;
	patience text := current_setting('lock_timeout');
BEGIN
	SELECT tidewire.shared_head(id) INTO position FROM tidewire.stream WHERE id = stream_id AND shared;
	IF FOUND THEN
		RETURN position;
	END IF;
	IF to_regclass('tidewire.stream_' || stream_id || '_position_seq') IS NULL THEN
		EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS SHARE MODE', 'stream_' || stream_id);
	END IF;
	position := coalesce(pg_sequence_last_value(('tidewire.stream_' || stream_id || '_position_seq')::regclass), 0);
	SELECT s.first INTO begins FROM tidewire.segment AS s WHERE s.stream = stream_id AND s.last > position ORDER BY s.last LIMIT 1;
	IF begins > position THEN
		BEGIN
			PERFORM set_config('lock_timeout', '100ms', true);
			position := (SELECT s.head FROM tidewire.stream_state(stream_id) AS s);
			PERFORM set_config('lock_timeout', patience, true);
		EXCEPTION WHEN lock_not_available THEN -- which sets the timeout back
		END;
	END IF;
	RETURN position;
EXCEPTION WHEN undefined_table OR internal_error THEN
	RETURN 0; -- dropped
END
$$;
