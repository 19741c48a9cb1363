-- reserve_positions assigns size positions to a caller that writes them later
-- and in any order. It commits separately; the lock excludes begin_batch.
CREATE FUNCTION tidewire.reserve_positions(lock_id int, positions regclass, size bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	head bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	head := coalesce(pg_sequence_last_value(positions), 0);
	PERFORM setval(positions, head + size);
	RETURN head + 1;
END
$$;

-- utf8_text returns the text if the bytes are valid UTF-8, and NULL otherwise.
-- PostgreSQL's text cannot hold a NUL byte, so a payload with one is not text
-- either. A role that reads the view of an ingest table needs EXECUTE on it.
CREATE FUNCTION tidewire.utf8_text(payload bytea)
RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
	RETURN convert_from(payload, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
	RETURN NULL;
END
$$;

-- ensure_ingest_table makes the table that the ingest endpoint fills, unless it
-- exists, and returns whether it did. It fails with TW002 if another object has the
-- name of the table or of its view. An existing table is Tidewire's if it has the
-- columns and the sequence of positions, and belongs to the caller or to the role that
-- migrated: the triggers of another role's table would run with the caller's rights.
--
-- BRIN and not a B-tree on position: rows arrive in position order, and the
-- B-tree would be half of the cost of loading them. The index serves readers
-- only as far as it is summarised, which the writer does every 50,000 rows; 128
-- pages a range is about 7,000 rows of 100 bytes.
CREATE FUNCTION tidewire.ensure_ingest_table(in_schema text, name text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	existing regclass := to_regclass(format('%I.%I', in_schema, name));
BEGIN
	IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = existing AND (pg_get_userbyid(c.relowner) = current_user
			OR c.relowner = (SELECT m.relowner FROM pg_class AS m WHERE m.oid = 'tidewire.migration'::regclass)))
		AND to_regclass(format('%I.%I', in_schema, name || '_position_seq')) IS NOT NULL
		AND 2 = (SELECT count(*) FROM pg_attribute AS a WHERE a.attrelid = existing AND NOT a.attisdropped
			AND (a.attname, a.atttypid) IN (('position', 'bigint'::regtype), ('payload', 'bytea'::regtype)))
	THEN
		RETURN false;
	END IF;
	IF existing IS NOT NULL OR to_regclass(format('%I.%I', in_schema, name || '_text')) IS NOT NULL THEN
		RAISE EXCEPTION '%.% or %.%_text exists already', in_schema, name, in_schema, name
			USING ERRCODE = 'TW002', HINT = 'Choose another name for the table of what is ingested.';
	END IF;
	EXECUTE format($sql$
		CREATE TABLE %1$I.%2$I (
			position bigint NOT NULL,
			payload bytea NOT NULL,
			created_at timestamptz NOT NULL DEFAULT now()
		);
		COMMENT ON TABLE %1$I.%2$I IS 'tidewire: messages as /ws/ingest received them';
		ALTER TABLE %1$I.%2$I REPLICA IDENTITY FULL; -- it has no key, and rows may be deleted while it is in a publication
		CREATE SEQUENCE %1$I.%3$I OWNED BY %1$I.%2$I.position;
		CREATE INDEX %4$I ON %1$I.%2$I USING brin (position) WITH (pages_per_range = 128);
		CREATE VIEW %1$I.%5$I AS
			SELECT position AS id, tidewire.utf8_text(payload) AS payload, created_at FROM %1$I.%2$I$sql$,
		in_schema, name, name || '_position_seq', name || '_position_idx', name || '_text');
	RETURN true;
END
$$;
