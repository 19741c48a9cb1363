-- The time for which requests can be repeated does not run while nobody can.

-- seen is when somebody looked whether records are old enough, the last time: a node
-- does every minute while it records requests.
ALTER TABLE tidewire.producer_window ADD COLUMN seen timestamptz NOT NULL DEFAULT clock_timestamp();

-- fold_requests as before, but of the time between two looks no more than two minutes
-- count. While PostgreSQL was away, no producer could repeat anything: its records
-- are as old afterwards as they were before, and two minutes.
CREATE OR REPLACE FUNCTION tidewire.fold_requests(stream_id int, keep interval)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	at timestamptz := clock_timestamp();
	w tidewire.producer_window;
	old text;
BEGIN
	SELECT * INTO w FROM tidewire.producer_window WHERE stream = stream_id FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	IF at > w.seen + interval '20 s' THEN -- another node looked just now, else
		UPDATE tidewire.producer_window
			SET since = w.since + greatest(at - greatest(w.seen, w.since) - interval '2 min', interval '0'), seen = at
			WHERE stream = stream_id RETURNING since INTO w.since;
	END IF;
	IF w.since > at - keep THEN
		RETURN false;
	END IF;
	IF NOT w.folded THEN
		old := 'producer_' || stream_id || '_' || 1 - w.current;
		EXECUTE format($sql$
			INSERT INTO tidewire.%1$I AS f (producer, sequence)
			SELECT producer, max(sequence) FROM tidewire.%2$I GROUP BY producer
			ON CONFLICT (producer) DO UPDATE SET sequence = excluded.sequence WHERE f.sequence < excluded.sequence$sql$,
			'producer_' || stream_id || '_floor', old);
		EXECUTE format('DELETE FROM tidewire.%I', old);
		UPDATE tidewire.producer_window SET folded = true WHERE stream = stream_id;
	END IF;
	RETURN true;
END
$$;
