-- last_kept returns the position of the last message up to that position that a stream keeps, or of the last
-- dropped one. If messages of a later history come after it, that history continues from there.
CREATE FUNCTION tidewire.last_kept(stream_id int, upto bigint) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
	low bigint;
	last bigint;
	s record;
BEGIN
	SELECT coalesce((SELECT f.floor FROM tidewire.shared_floor AS f WHERE f.stream = stream_id ORDER BY f.floor DESC LIMIT 1), 0)
		INTO low FROM tidewire.stream WHERE id = stream_id AND shared;
	IF FOUND THEN
		RETURN greatest(low, (SELECT m.position FROM tidewire.shared_message AS m
			WHERE m.stream = stream_id AND m.position > low AND m.position <= upto ORDER BY m.position DESC LIMIT 1));
	END IF;
	-- Blocks a drop, which could remove the sequences meanwhile.
	EXECUTE format('LOCK TABLE ONLY tidewire.%I IN ACCESS SHARE MODE', 'stream_' || stream_id);
	low := coalesce(pg_sequence_last_value(('tidewire.stream_' || stream_id || '_oldest_seq')::regclass), 1) - 1;
	FOR s IN SELECT g.last FROM tidewire.segment AS g WHERE g.stream = stream_id AND g.first <= upto AND g.last > low ORDER BY g.last DESC LOOP
		EXECUTE format('SELECT position FROM tidewire.%I WHERE position <= $1 ORDER BY position DESC LIMIT 1', 'stream_' || stream_id || '_' || s.last)
			INTO last USING upto;
		EXIT WHEN last IS NOT NULL;
	END LOOP;
	RETURN greatest(low, last);
END
$$;

-- lost_since returns the position of the last message up to after that the stream has, if later messages up to after are lost:
-- that is, if another history began between after, where there is no message any more, and next, where there is one, or the end
-- of the stream. Otherwise, and always on a standby, which may lag, it returns NULL. A message after a position in the same
-- history shows that the history has reached that position.
CREATE FUNCTION tidewire.lost_since(stream_id int, after bigint, next bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	base bigint;
	last bigint;
BEGIN
	IF pg_is_in_recovery() THEN
		RETURN NULL;
	END IF;
	base := (SELECT min(b) FROM (SELECT tidewire.history_base() AS b UNION ALL SELECT tidewire.bases()) AS every WHERE b > after);
	IF next > after AND (base IS NULL OR base >= next) OR base IS NOT NULL AND tidewire.last_kept(stream_id, base) > after THEN
		RETURN NULL;
	END IF;
	last := tidewire.last_kept(stream_id, after);
	RETURN CASE WHEN last < after THEN last END;
END
$$;

-- gaps returns the ranges of positions that failovers have left empty, after one position and up to another. Two histories
-- without a message in between leave two adjacent gaps.
CREATE FUNCTION tidewire.gaps(stream_id int) RETURNS TABLE (after bigint, upto bigint) LANGUAGE plpgsql AS $$
BEGIN
	IF pg_sequence_last_value('tidewire.history_seq') >> 32 > 0 THEN
		RETURN QUERY SELECT k.after, k.base FROM (
			SELECT greatest(tidewire.last_kept(stream_id, base), lag(base) OVER (ORDER BY base)) AS after, base FROM tidewire.bases() AS base
			WHERE base > 0 AND base < (SELECT s.head FROM tidewire.stream_state(stream_id) AS s)
		) AS k WHERE k.after < k.base ORDER BY k.base;
	END IF;
END
$$;
