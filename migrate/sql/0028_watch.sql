-- Change feeds of tables: triggers write each change of a table into a stream, in the transaction of the change, by the outbox (0016_outbox.sql).
--
-- The triggers are for each row. Transition tables of a statement-level trigger would cost less for large statements, but nothing pairs the old with the new
-- row of an update whose key changes, and such a trigger does not fire for a statement on a partition of the table. The options of a watch are the argument
-- of its triggers, and nowhere else: they follow a table that is renamed, dropped, dumped or restored.

-- watch_key returns the key of a row: the value of the one key column as text, or a JSON array of the values of several. Message keys have up to 1,024 bytes;
-- of a longer one the SHA-256 is taken.
CREATE FUNCTION tidewire.watch_key(changed jsonb, keys text[]) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	k text;
BEGIN
	IF changed IS NULL OR cardinality(keys) = 0 THEN
		RETURN NULL;
	ELSIF cardinality(keys) = 1 THEN
		k := changed ->> keys[1];
	ELSE
		k := (SELECT jsonb_agg(changed -> c ORDER BY n) FROM unnest(keys) WITH ORDINALITY AS t (c, n));
	END IF;
	RETURN CASE WHEN octet_length(k) > 1024 THEN 'sha256:' || encode(sha256(convert_to(k, 'UTF8')), 'hex') ELSE k END;
END
$$;

-- watch_columns returns some columns of a row.
CREATE FUNCTION tidewire.watch_columns(changed jsonb, names text[]) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
	SELECT jsonb_object_agg(c, changed -> c) FROM unnest(names) AS c WHERE changed ? c
$$;

-- primary_key returns the columns of a table's primary key, in its order, or an empty array.
CREATE FUNCTION tidewire.primary_key(relation oid) RETURNS text[] LANGUAGE sql STABLE AS $$
	SELECT ARRAY(SELECT a.attname::text FROM pg_catalog.pg_index AS i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (attnum, n)
		JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
		WHERE i.indrelid = relation AND i.indisprimary ORDER BY k.n)
$$;

-- is_safe_type returns whether to_jsonb calls no function of a stranger for a value of the type: a type of PostgreSQL itself, one of a superuser, such as those
-- of extensions, a domain on such a type, or an array of it.
CREATE FUNCTION tidewire.is_safe_type(type oid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
	t record;
BEGIN
	IF type < 16384 THEN -- FirstNormalObjectId
		RETURN true;
	END IF;
	SELECT p.typtype, p.typbasetype, p.typcategory, p.typelem, r.rolsuper INTO t
		FROM pg_type AS p LEFT JOIN pg_roles AS r ON r.oid = p.typowner WHERE p.oid = type;
	RETURN CASE WHEN t.typtype = 'd' THEN tidewire.is_safe_type(t.typbasetype)
		WHEN t.typtype = 'b' AND t.typcategory = 'A' THEN tidewire.is_safe_type(t.typelem)
		ELSE t.typtype = 'b' AND t.rolsuper END IS TRUE;
END
$$;

-- has_safe_columns returns whether to_jsonb calls no function of a stranger for a row of the table. READ COMMITTED.
CREATE FUNCTION tidewire.has_safe_columns(relation oid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
	PERFORM FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384 AND NOT tidewire.is_safe_type(a.atttypid);
	RETURN NOT FOUND;
END
$$;

-- column_json is to_jsonb for one value, without functions of strangers: a value of another type is its text, as the output function of the type makes it, and
-- an array of such values an array of texts. Enumerations and ranges are texts for to_jsonb, too. The type of the value is that of today, whatever the
-- snapshot shows.
CREATE FUNCTION tidewire.column_json(value anyelement) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF num_nulls(value) = 1 THEN
		RETURN 'null';
	ELSIF tidewire.is_safe_type(pg_typeof(value)::oid) THEN
		RETURN to_jsonb(value);
	END IF;
	PERFORM FROM pg_type AS t WHERE t.oid = pg_typeof(value) AND t.typcategory = 'A';
	RETURN CASE WHEN FOUND THEN to_jsonb(format('%s', value)::text[]) ELSE to_jsonb(format('%s', value)) END;
END
$$;

-- row_query returns a query that makes JSON of a row of the table, its parameter, by column_json.
CREATE FUNCTION tidewire.row_query(relation oid) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
	columns text;
	last int;
BEGIN
	SELECT string_agg(format('(%L, tidewire.column_json(($1).%I))', a.attname, a.attname), ', ') FILTER (WHERE NOT a.attisdropped), max(a.attnum) INTO columns, last
		FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attnum > 0;
	IF has_column_privilege(relation, (last + 1)::smallint, 'SELECT') IS NOT NULL THEN -- it asks today's catalogue
		RAISE EXCEPTION 'could not serialize access: table % has a column that is newer than the snapshot', relation::regclass USING ERRCODE = 'serialization_failure';
	END IF;
	RETURN 'SELECT jsonb_object_agg(name, value) FROM (VALUES ' || columns || ') AS c (name, value)';
END
$$;

-- write_change is the trigger of all watches. Its argument is JSON: stream; columns, if not all; key, the columns of the message key; primary, if these are
-- the primary key; old, whether old rows are included; max, the largest size of a message in bytes; partitioned, if the table is.
--
-- It runs with the rights of the role that migrated, so that who writes to the table needs no rights here. It must not call functions of others with these
-- rights: to_jsonb does so for a type with a cast to json, which the owner of the type can make at any moment. The table is locked against new columns. But
-- only in READ COMMITTED a query of the catalogue sees all of today's columns.
CREATE FUNCTION tidewire.write_change() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET intervalstyle = 'iso_8601' SET extra_float_digits = 1 SET bytea_output = 'hex' AS $$
DECLARE
	watch jsonb := TG_ARGV[0]::jsonb;
	names text[];
	keys text[] := watch ->> 'key';
	old_key text;
	new_key text;
	to_json text;
	before jsonb;
	after jsonb;
BEGIN
	IF (watch ->> 'partitioned')::boolean THEN
		SELECT watch || jsonb_build_object('schema', n.nspname, 'table', c.relname) INTO watch
			FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = pg_partition_root(TG_RELID);
	ELSE
		watch := watch || jsonb_build_object('schema', TG_TABLE_SCHEMA, 'table', TG_TABLE_NAME);
	END IF;
	IF TG_OP = 'TRUNCATE' THEN
		PERFORM tidewire.publish_change(watch, 'truncate', NULL, NULL, '{}', NULL);
		RETURN NULL;
	END IF;
	IF current_setting('transaction_isolation') = 'read committed' AND tidewire.has_safe_columns(TG_RELID) THEN
		IF TG_OP <> 'INSERT' THEN
			before := to_jsonb(OLD);
		END IF;
		IF TG_OP <> 'DELETE' THEN
			after := to_jsonb(NEW);
		END IF;
	ELSE
		to_json := tidewire.row_query(TG_RELID);
		IF TG_OP <> 'INSERT' THEN
			EXECUTE to_json INTO before USING OLD;
		END IF;
		IF TG_OP <> 'DELETE' THEN
			EXECUTE to_json INTO after USING NEW;
		END IF;
	END IF;
	IF NOT coalesce(after, before) ?& keys AND (watch ->> 'primary')::boolean THEN -- a column was renamed
		keys := tidewire.primary_key(TG_RELID);
	END IF;
	IF watch ? 'columns' THEN
		names := (watch ->> 'columns')::text[] || keys;
		before := tidewire.watch_columns(before, names);
		after := tidewire.watch_columns(after, names);
		IF before = after THEN
			RETURN NULL;
		END IF;
	END IF;
	old_key := tidewire.watch_key(before, keys);
	new_key := tidewire.watch_key(after, keys);
	IF TG_OP = 'UPDATE' AND old_key IS DISTINCT FROM new_key THEN
		PERFORM tidewire.publish_change(watch, 'delete', before, NULL, keys, old_key);
		PERFORM tidewire.publish_change(watch, 'insert', NULL, after, keys, new_key);
	ELSE
		PERFORM tidewire.publish_change(watch, lower(TG_OP), before, after, keys, coalesce(new_key, old_key));
	END IF;
	RETURN NULL;
END
$$;

-- publish_change publishes one change, as tidewire.publish does, with fewer statements for each. A truncate goes to all partitions of a stream: it is about
-- all keys.
CREATE FUNCTION tidewire.publish_change(watch jsonb, op text, before jsonb, after jsonb, keys text[], key text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	target tidewire.stream;
	message jsonb;
	payload bytea;
	ids int[];
BEGIN
	IF NOT (watch ->> 'old')::boolean THEN
		before := CASE WHEN after IS NULL THEN tidewire.watch_columns(before, keys) END;
	END IF;
	message := jsonb_build_object('op', op, 'schema', watch -> 'schema', 'table', watch -> 'table', 'old', before, 'new', after);
	payload := convert_to(message::text, 'UTF8');
	IF octet_length(payload) > least((watch ->> 'max')::int, 1024 * 1024) THEN
		payload := convert_to((message || jsonb_build_object('large', true,
			'old', tidewire.watch_columns(before, keys), 'new', tidewire.watch_columns(after, keys)))::text, 'UTF8');
	END IF;
	IF octet_length(payload) > 1024 * 1024 THEN -- a key of that size
		payload := convert_to((message || '{"large": true, "old": null, "new": null}')::text, 'UTF8');
	END IF;
	PERFORM tidewire.refuse_reserved(watch ->> 'stream'); -- the owner of a table can make the trigger without tidewire.watch
	SELECT * INTO target FROM tidewire.stream AS s WHERE s.name = watch ->> 'stream' AND s.state = 'ready';
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no stream %, into which the changes of table % go: create it, or end the watch with tidewire.unwatch',
			quote_nullable(watch ->> 'stream'), watch ->> 'table' USING ERRCODE = 'TW003';
	END IF;
	ids := ARRAY[target.id];
	IF target.partitions > 0 THEN
		ids := ARRAY(SELECT s.id FROM tidewire.stream AS s WHERE s.parent = target.id
			AND (op = 'truncate' OR s.partition = coalesce(tidewire.partition_of(nullif(key, ''), target.partitions), 0)) ORDER BY s.partition);
	END IF;
	FOR i IN 1 .. cardinality(ids) LOOP
		PERFORM tidewire.add_to_outbox(ids[i], ARRAY[publish_change.key], ARRAY[NULL::jsonb], ARRAY[payload]);
	END LOOP;
END
$$;

-- watched_partitions returns how many partitions a stream has that may be watched into. It runs with the rights of the role that migrated.
CREATE FUNCTION tidewire.watched_partitions(stream text) RETURNS int LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	target tidewire.stream;
BEGIN
	PERFORM tidewire.refuse_reserved(stream);
	SELECT * INTO target FROM tidewire.stream AS s WHERE s.name = watched_partitions.stream AND s.state = 'ready';
	IF NOT FOUND THEN
		RAISE EXCEPTION 'stream: there is no stream %', quote_nullable(stream) USING ERRCODE = 'TW003',
			HINT = 'Create it first, for example with: tidewire stream create NAME';
	END IF;
	PERFORM FROM tidewire.queue AS q WHERE q.id = target.id;
	IF FOUND THEN
		RAISE EXCEPTION 'stream: % holds the messages of a queue', quote_nullable(stream) USING ERRCODE = 'TW004';
	END IF;
	RETURN target.partitions;
END
$$;

-- watch has the changes of a table written into a stream, from the end of this transaction on, and returns the name of the stream. A second call replaces the
-- first one. The caller needs the right TRIGGER on the table, and to own it if it is watched already. SQLSTATE TW003: there is no such stream; TW004: an
-- argument is not valid.
CREATE FUNCTION tidewire.watch(
	"table" regclass, stream text DEFAULT NULL, columns text[] DEFAULT NULL, events text[] DEFAULT '{insert,update,delete,truncate}',
	key text[] DEFAULT NULL, old_rows boolean DEFAULT true, max_bytes int DEFAULT 1048576
) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	relation record;
	keys text[] := coalesce(watch.key, tidewire.primary_key(watch."table"));
	row_events text[];
	unknown text;
	options jsonb;
BEGIN
	SELECT c.relname, c.relkind, c.relpersistence, n.nspname INTO relation
		FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = watch."table";
	IF relation.nspname = 'tidewire' THEN -- each message would be a change itself
		RAISE EXCEPTION 'table: % is in the schema tidewire, which is for the tables of Tidewire: make yours in another one, such as public', relation.relname
			USING ERRCODE = 'TW004';
	ELSIF NOT FOUND OR relation.relkind NOT IN ('r', 'p') OR relation.relpersistence = 't' OR relation.nspname = 'pg_catalog' THEN
		RAISE EXCEPTION 'table: want a table of yours, not a view, a foreign or a temporary table' USING ERRCODE = 'TW004';
	END IF;
	stream := coalesce(stream, relation.relname);
	SELECT c INTO unknown FROM unnest(coalesce(columns, '{}') || keys) AS c WHERE NOT EXISTS (
		SELECT FROM pg_attribute AS a WHERE a.attrelid = watch."table" AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = c);
	IF FOUND THEN
		RAISE EXCEPTION '%: table % has no column %', CASE WHEN unknown = ANY (keys) THEN 'key' ELSE 'columns' END, relation.relname, quote_nullable(unknown)
			USING ERRCODE = 'TW004';
	ELSIF events IS NULL OR cardinality(events) = 0 OR NOT events <@ '{insert,update,delete,truncate}'::text[] THEN
		RAISE EXCEPTION 'events: want some of insert, update, delete, truncate' USING ERRCODE = 'TW004';
	ELSIF old_rows IS NULL THEN
		RAISE EXCEPTION 'old_rows: want true or false' USING ERRCODE = 'TW004';
	ELSIF (max_bytes BETWEEN 1024 AND 1048576) IS NOT TRUE THEN
		RAISE EXCEPTION 'max_bytes: want 1024 to 1048576' USING ERRCODE = 'TW004';
	ELSIF tidewire.watched_partitions(stream) > 0 AND cardinality(keys) = 0 THEN
		RAISE EXCEPTION 'key: the stream has partitions, and table % has no primary key: name the columns that identify a row', relation.relname
			USING ERRCODE = 'TW004';
	END IF;
	options := jsonb_build_object('stream', stream, 'key', keys::text, 'primary', watch.key IS NULL, 'old', old_rows, 'max', max_bytes,
		'partitioned', relation.relkind = 'p') || CASE WHEN columns IS NULL THEN '{}' ELSE jsonb_build_object('columns', columns::text) END;
	PERFORM tidewire.unwatch("table");
	row_events := ARRAY(SELECT DISTINCT e FROM unnest(events) AS e WHERE e <> 'truncate');
	IF cardinality(row_events) > 0 THEN
		EXECUTE format('CREATE TRIGGER tidewire_watch AFTER %s ON %I.%I FOR EACH ROW EXECUTE FUNCTION tidewire.write_change(%L)',
			array_to_string(row_events, ' OR '), relation.nspname, relation.relname, options);
	END IF;
	IF 'truncate' = ANY (events) THEN
		EXECUTE format('CREATE TRIGGER tidewire_watch_truncate AFTER TRUNCATE ON %I.%I FOR EACH STATEMENT EXECUTE FUNCTION tidewire.write_change(%L)',
			relation.nspname, relation.relname, options);
	END IF;
	RETURN stream;
END
$$;

-- unwatch ends the watch of a table, and returns whether there was one. The caller has to own the table.
CREATE FUNCTION tidewire.unwatch("table" regclass) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	found_one record;
	any_found boolean := false;
BEGIN
	FOR found_one IN SELECT t.tgname, n.nspname, c.relname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE t.tgrelid = unwatch."table" AND t.tgparentid = 0 AND t.tgfoid = 'tidewire.write_change'::regproc
	LOOP
		EXECUTE format('DROP TRIGGER %I ON %I.%I', found_one.tgname, found_one.nspname, found_one.relname);
		any_found := true;
	END LOOP;
	RETURN any_found;
END
$$;

-- watches has a row for each watched table.
CREATE VIEW tidewire.watches AS
	SELECT w.tgrelid::regclass AS "table", w.options ->> 'stream' AS stream,
		(w.options ->> 'columns')::text[] AS columns,
		array_remove(ARRAY[CASE WHEN bit_or(w.tgtype) & 4 > 0 THEN 'insert' END, CASE WHEN bit_or(w.tgtype) & 16 > 0 THEN 'update' END,
			CASE WHEN bit_or(w.tgtype) & 8 > 0 THEN 'delete' END, CASE WHEN bit_or(w.tgtype) & 32 > 0 THEN 'truncate' END], NULL) AS events,
		(w.options ->> 'key')::text[] AS key,
		(w.options ->> 'old')::boolean AS old_rows, (w.options ->> 'max')::int AS max_bytes, bool_and(w.tgenabled <> 'D') AS enabled
	FROM (
		SELECT t.tgrelid, t.tgtype, t.tgenabled,
			convert_from(substring(t.tgargs FROM 1 FOR length(t.tgargs) - 1), getdatabaseencoding())::jsonb AS options
		FROM pg_catalog.pg_trigger AS t WHERE t.tgfoid = 'tidewire.write_change'::regproc AND t.tgparentid = 0 AND t.tgnargs = 1
	) AS w GROUP BY w.tgrelid, w.options;
GRANT SELECT ON tidewire.watches TO PUBLIC; -- every role can read pg_trigger
