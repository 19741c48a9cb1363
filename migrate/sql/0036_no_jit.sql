-- A function that forbids sequential scans makes one cost 10^10 where there is no other way, as in a table of one row. From
-- a cost of 10^5 on, PostgreSQL compiles a query (jit), which takes 25 to 120 ms here: so these functions forbid that too.
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN
		SELECT p.oid FROM pg_proc AS p
		WHERE p.pronamespace = 'tidewire'::regnamespace AND 'enable_seqscan=off' = ANY (p.proconfig)
	LOOP
		EXECUTE format('ALTER FUNCTION %s SET jit = off', f);
	END LOOP;
END
$$;
