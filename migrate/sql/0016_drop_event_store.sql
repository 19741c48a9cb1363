-- drop_event_store as before, but for the search for the store's functions: as a
-- pattern of LIKE with escaped characters, and under standard_conforming_strings
-- = off, that found those of store 11 for store 1 as well.
CREATE OR REPLACE FUNCTION tidewire.drop_event_store(store_name text)
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
	DELETE FROM tidewire.producer_window WHERE stream = lock;
	IF FOUND THEN
		EXECUTE format('DROP TABLE tidewire.%I, tidewire.%I, tidewire.%I',
			'producer_' || lock || '_0', 'producer_' || lock || '_1', 'producer_' || lock || '_floor');
	END IF;
	RETURN true;
END
$$;
