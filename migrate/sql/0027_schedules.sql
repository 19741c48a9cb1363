-- Schedules: messages that a server enqueues or publishes at times, once (at) or repeatedly (cron).
--
-- A server moves a schedule to its next due time, and writes the message, in one transaction. So each due time has one message, with any number of servers.
-- Schedules that happen once are deleted in that transaction. Only the programs of Tidewire can read cron expressions: for a schedule from SQL, due_at is
-- NULL until a server has computed it from since.
CREATE TABLE tidewire.schedules (
	name text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 255),
	cron text CHECK (octet_length(cron) BETWEEN 1 AND 255),
	time_zone text NOT NULL DEFAULT 'UTC' CHECK (octet_length(time_zone) BETWEEN 1 AND 255),
	at timestamptz CHECK (at >= '0001-01-01 UTC' AND at < '10000-01-01 UTC'),
	queue text COLLATE "C",
	stream text COLLATE "C",
	key text CHECK (octet_length(key) <= 1024),
	headers jsonb CHECK (jsonb_typeof(headers) = 'object'),
	payload bytea NOT NULL CHECK (octet_length(payload) <= 1048576),
	priority int NOT NULL DEFAULT 0,
	catch_up text NOT NULL DEFAULT 'latest' CHECK (catch_up IN ('latest', 'none', 'all')),
	paused boolean NOT NULL DEFAULT false,
	since timestamptz NOT NULL DEFAULT clock_timestamp(), -- due times are after it
	due_at timestamptz, -- the next due time that has no message
	look_at timestamptz, -- when a server looks at the schedule: at due_at, or later after a failure; NULL: paused
	last_due_at timestamptz, -- the last due time that has a message
	last_error text, -- of the last attempt, if it failed
	failures int NOT NULL DEFAULT 0, -- attempts that failed since the last success
	CHECK ((cron IS NULL) <> (at IS NULL)),
	CHECK ((queue IS NULL) <> (stream IS NULL)),
	CHECK (paused = (look_at IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Servers read the schedules in this order. name makes the order of equal times the same for all.
CREATE INDEX schedules_look_idx ON tidewire.schedules (look_at, name) WHERE look_at IS NOT NULL;

-- check_schedule_target raises an error that names the argument, if there is no such queue or stream, or if the message is not valid for it.
CREATE FUNCTION tidewire.check_schedule_target(queue text, stream text, key text, headers jsonb, payload bytea, priority int)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	priorities int;
BEGIN
	IF (queue IS NULL) = (stream IS NULL) THEN
		RAISE EXCEPTION 'queue and stream: want one of them' USING ERRCODE = 'TW004';
	ELSIF starts_with(coalesce(queue, stream), 'tidewire.') THEN
		RAISE EXCEPTION '%: names that begin with tidewire. are reserved', CASE WHEN queue IS NULL THEN 'stream' ELSE 'queue' END USING ERRCODE = 'TW004';
	ELSIF payload IS NULL OR octet_length(payload) > 1048576 THEN
		RAISE EXCEPTION 'payload: want 0 to 1048576 bytes' USING ERRCODE = 'TW004';
	ELSIF octet_length(key) > 1024 THEN
		RAISE EXCEPTION 'key: want at most 1024 bytes' USING ERRCODE = 'TW004';
	ELSIF jsonb_typeof(headers) <> 'object' OR octet_length(headers::text) > 60 * 1024 THEN
		RAISE EXCEPTION 'headers: want a JSON object of at most 61440 bytes' USING ERRCODE = 'TW004';
	END IF;
	IF stream IS NOT NULL THEN
		PERFORM FROM tidewire.stream AS s WHERE s.name = check_schedule_target.stream AND s.state = 'ready';
		IF NOT FOUND THEN
			RAISE EXCEPTION 'stream: there is no stream %', quote_nullable(stream) USING ERRCODE = 'TW003';
		END IF;
		PERFORM FROM tidewire.stream AS s JOIN tidewire.queue AS q ON q.id = s.id WHERE s.name = check_schedule_target.stream;
		IF FOUND THEN
			RAISE EXCEPTION 'stream: % holds the messages of a queue: use the argument queue', quote_nullable(stream) USING ERRCODE = 'TW004';
		END IF;
		priorities := 0;
	ELSE
		SELECT q.priorities INTO priorities FROM (
			SELECT f.priorities FROM tidewire.queue_family AS f WHERE f.name = check_schedule_target.queue AND NOT f.dropping
			UNION ALL SELECT 0 FROM tidewire.stream AS s JOIN tidewire.queue AS q ON q.id = s.id
				WHERE s.name = check_schedule_target.queue AND q.family IS NULL
		) AS q LIMIT 1;
		IF NOT FOUND THEN
			RAISE EXCEPTION 'queue: there is no queue %', quote_nullable(queue) USING ERRCODE = 'TW003';
		END IF;
	END IF;
	IF priority IS NULL OR priority < 0 OR priority >= greatest(priorities, 1) THEN
		RAISE EXCEPTION 'priority: want 0 to %', greatest(priorities, 1) - 1 USING ERRCODE = 'TW004';
	END IF;
END
$$;

-- schedule makes a schedule that repeats, or replaces the one of that name. If its times are the same as before, a due time that has no message yet stays due.
-- The cron expression and the time zone are only stored: a server reads them within seconds of the commit, and writes into last_error what is wrong with them.
-- SQLSTATE TW003: there is no such queue or stream; TW004: an argument is not valid.
CREATE FUNCTION tidewire.schedule(
	name text, cron text, payload bytea, queue text DEFAULT NULL, stream text DEFAULT NULL, time_zone text DEFAULT 'UTC',
	key text DEFAULT NULL, headers jsonb DEFAULT NULL, priority int DEFAULT 0, catch_up text DEFAULT 'latest'
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
	IF octet_length(schedule.name) BETWEEN 1 AND 255 IS NOT TRUE THEN
		RAISE EXCEPTION 'name: want 1 to 255 bytes' USING ERRCODE = 'TW004';
	ELSIF octet_length(schedule.cron) BETWEEN 1 AND 255 IS NOT TRUE THEN
		RAISE EXCEPTION 'cron: want an expression of 1 to 255 bytes, such as 0 3 * * *' USING ERRCODE = 'TW004';
	ELSIF octet_length(schedule.time_zone) BETWEEN 1 AND 255 IS NOT TRUE THEN
		RAISE EXCEPTION 'time_zone: want an IANA name such as Europe/Berlin' USING ERRCODE = 'TW004';
	ELSIF schedule.catch_up IN ('latest', 'none', 'all') IS NOT TRUE THEN
		RAISE EXCEPTION 'catch_up: want latest, none or all' USING ERRCODE = 'TW004';
	END IF;
	PERFORM tidewire.check_schedule_target(schedule.queue, schedule.stream, schedule.key, schedule.headers, schedule.payload, schedule.priority);
	PERFORM tidewire.put_schedule(schedule.name, schedule.cron, schedule.time_zone, NULL, schedule.queue, schedule.stream,
		nullif(schedule.key, ''), schedule.headers, schedule.payload, schedule.priority, schedule.catch_up, false);
END
$$;

-- put_schedule makes or replaces a schedule and tells the servers. The caller has validated it.
CREATE FUNCTION tidewire.put_schedule(
	name text, cron text, time_zone text, at timestamptz, queue text, stream text, key text, headers jsonb, payload bytea,
	priority int, catch_up text, paused boolean
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	look timestamptz := CASE WHEN put_schedule.paused THEN NULL ELSE coalesce(put_schedule.at, clock_timestamp()) END;
BEGIN
	INSERT INTO tidewire.schedules AS s (name, cron, time_zone, at, queue, stream, key, headers, payload, priority, catch_up, paused, due_at, look_at)
		VALUES (put_schedule.name, put_schedule.cron, put_schedule.time_zone, put_schedule.at, put_schedule.queue, put_schedule.stream, put_schedule.key,
			put_schedule.headers, put_schedule.payload, put_schedule.priority, put_schedule.catch_up, put_schedule.paused, put_schedule.at, look)
		ON CONFLICT (name) DO UPDATE SET cron = excluded.cron, time_zone = excluded.time_zone, at = excluded.at, queue = excluded.queue,
			stream = excluded.stream, key = excluded.key, headers = excluded.headers, payload = excluded.payload, priority = excluded.priority,
			catch_up = excluded.catch_up, paused = excluded.paused, last_error = NULL, failures = 0,
			since = CASE WHEN (s.cron, s.time_zone, s.at, s.paused) IS NOT DISTINCT FROM (excluded.cron, excluded.time_zone, excluded.at, excluded.paused)
				THEN s.since ELSE clock_timestamp() END,
			due_at = CASE WHEN (s.cron, s.time_zone, s.at, s.paused) IS NOT DISTINCT FROM (excluded.cron, excluded.time_zone, excluded.at, excluded.paused)
				THEN s.due_at ELSE excluded.due_at END,
			look_at = CASE WHEN excluded.paused THEN NULL WHEN (s.cron, s.time_zone, s.at, s.paused) IS NOT DISTINCT FROM (excluded.cron, excluded.time_zone, excluded.at, excluded.paused)
				THEN least(s.due_at, excluded.look_at) ELSE excluded.look_at END;
	PERFORM pg_notify('tidewire_schedules', '');
END
$$;

-- unschedule removes a schedule, and returns whether there was one.
CREATE FUNCTION tidewire.unschedule(name text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	DELETE FROM tidewire.schedules AS s WHERE s.name = unschedule.name;
	RETURN FOUND;
END
$$;

-- enqueue_at has a message enqueued once, at a time, and returns the name of the schedule, for unschedule. A time that is less than the poll of the servers
-- ahead, or in the past, may be late by one poll: a notification would serialize the commits of all callers. SQLSTATE 23505: there is a schedule of that name.
CREATE FUNCTION tidewire.enqueue_at(
	queue text, payload bytea, at timestamptz, key text DEFAULT NULL, headers jsonb DEFAULT NULL, priority int DEFAULT 0, name text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF queue IS NULL THEN
		RAISE EXCEPTION 'queue: want its name' USING ERRCODE = 'TW004';
	END IF;
	PERFORM tidewire.check_schedule_target(queue, NULL, key, headers, payload, priority);
	RETURN tidewire.add_once(name, at, queue, NULL, key, headers, payload, priority);
END
$$;

-- publish_at is enqueue_at for a stream.
CREATE FUNCTION tidewire.publish_at(
	stream text, payload bytea, at timestamptz, key text DEFAULT NULL, headers jsonb DEFAULT NULL, name text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF stream IS NULL THEN
		RAISE EXCEPTION 'stream: want its name' USING ERRCODE = 'TW004';
	END IF;
	PERFORM tidewire.check_schedule_target(NULL, stream, key, headers, payload, 0);
	RETURN tidewire.add_once(name, at, NULL, stream, key, headers, payload, 0);
END
$$;

CREATE FUNCTION tidewire.add_once(name text, at timestamptz, queue text, stream text, key text, headers jsonb, payload bytea, priority int)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF (at >= '0001-01-01 UTC' AND at < '10000-01-01 UTC') IS NOT TRUE THEN
		RAISE EXCEPTION 'at: want a time up to the year 9999' USING ERRCODE = 'TW004';
	ELSIF NOT octet_length(name) BETWEEN 1 AND 255 THEN
		RAISE EXCEPTION 'name: want 1 to 255 bytes' USING ERRCODE = 'TW004';
	END IF;
	name := coalesce(name, 'once/' || gen_random_uuid());
	INSERT INTO tidewire.schedules (name, at, queue, stream, key, headers, payload, priority, due_at, look_at)
		VALUES (add_once.name, add_once.at, add_once.queue, add_once.stream, nullif(add_once.key, ''), add_once.headers, add_once.payload, add_once.priority,
			add_once.at, add_once.at);
	RETURN name;
END
$$;
