-- One row for each committed batch of a writer: the unique (writer, number)
-- settles whether a batch whose COMMIT was never answered took effect, because
-- the repeated batch then breaks the primary key. Rows are only of use for the
-- few minutes in which an attempt may still be under way; writers remove older
-- ones.
CREATE TABLE tidewire.batch (
	writer bigint NOT NULL,
	number bigint NOT NULL,
	first_position bigint NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (writer, number)
);

-- begin_batch opens the writing of one batch: it waits for the stream's lock,
-- which is held until the end of the transaction, marks the batch, and moves
-- the sequence past the positions head+1 … head+size, which the caller then
-- supplies itself. It fails with TW001 when the sequence does not stand at
-- head; the detail says where it stands.
--
-- The lock is what makes visible order equal position order: no writer takes
-- positions before the one ahead of it has committed. A sequence and not a
-- counter row, so that nothing is updated in place.
CREATE FUNCTION tidewire.begin_batch(
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
	PERFORM setval(positions, head + size);
END
$$;

-- reserve_positions gives size positions to a caller that writes them later
-- and in no promised order. It commits on its own; the lock keeps it apart
-- from begin_batch.
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

-- utf8_text is the text of valid UTF-8 and NULL otherwise. PostgreSQL's text
-- cannot hold a NUL byte, so a payload with one is not text either.
CREATE FUNCTION tidewire.utf8_text(payload bytea)
RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
	RETURN convert_from(payload, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
	RETURN NULL;
END
$$;

-- create_messages makes the table that the ingest endpoint fills.
--
-- BRIN and not a B-tree on position: rows arrive in position order, and the
-- B-tree would be half of the cost of loading them. The index serves readers
-- only as far as it is summarised, which the writer sees to every 50,000 rows;
-- 128 pages a range is about 7,000 rows of 100 bytes.
CREATE FUNCTION tidewire.create_messages() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	CREATE TABLE public.messages (
		position bigint NOT NULL,
		payload bytea NOT NULL,
		created_at timestamptz NOT NULL DEFAULT now()
	);
	COMMENT ON TABLE public.messages IS 'tidewire: messages as /ws/ingest received them';
	CREATE SEQUENCE public.messages_position_seq OWNED BY public.messages.position;
	CREATE INDEX messages_position_idx ON public.messages
		USING brin (position) WITH (pages_per_range = 128);
	CREATE VIEW public.messages_text AS
		SELECT position AS id, tidewire.utf8_text(payload) AS payload, created_at
		FROM public.messages;
END
$$;

DO $$
BEGIN
	IF to_regclass('public.messages') IS NOT NULL OR to_regclass('public.messages_text') IS NOT NULL THEN
		RAISE EXCEPTION 'public.messages or public.messages_text exists already'
			USING ERRCODE = 'TW002', HINT = 'Give Tidewire a database of its own.';
	END IF;
	PERFORM tidewire.create_messages();
END
$$;
