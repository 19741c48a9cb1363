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
