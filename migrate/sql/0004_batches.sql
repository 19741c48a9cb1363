-- One row for each committed batch of a writer: the unique (writer, number)
-- settles whether a batch whose COMMIT was never answered took effect, because
-- the repeated batch then violates the primary key. Rows are needed only for
-- the few minutes in which an attempt may still be under way; writers remove
-- older ones.
--
-- firsts is set for a transaction with batches of several streams: the first position
-- of each, or 0 if the batch was left out. NULL says that there is no such
-- transaction, and that there never will be.
CREATE TABLE tidewire.batch (
	writer bigint NOT NULL,
	number bigint NOT NULL,
	first_position bigint NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	firsts bigint[],
	PRIMARY KEY (writer, number)
);

-- begin_batch begins the write of one batch (group commit): it waits for the stream's lock,
-- which is held until the end of the transaction, marks the batch, and moves the sequence
-- past the positions head+1 … head+size, which the caller then writes itself. It fails with
-- TW001 if the value of the sequence is not head; the detail has the value.
--
-- Because of the lock, visible order equals position order: no writer takes positions before an earlier writer
-- has committed. It is a sequence and not a counter row, so that nothing is updated in place. Locks below 1000
-- are not those of streams: readers of those tables do not use positions, so histories and growth are
-- irrelevant to them.
CREATE FUNCTION tidewire.begin_batch(
	lock_id int, positions regclass, head bigint, size bigint, writer bigint, number bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	actual bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	actual := coalesce(pg_sequence_last_value(positions), 0);
	IF lock_id >= 1000 THEN
		actual := greatest(actual, tidewire.history_base());
	END IF;
	IF actual <> head THEN
		RAISE EXCEPTION 'stream head is %, not %', actual, head
			USING ERRCODE = 'TW001', DETAIL = actual::text;
	END IF;
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = lock_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(lock_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
	IF lock_id >= 1000 THEN
		PERFORM tidewire.note_growth();
	END IF;
END
$$;

-- take_positions is begin_batch for a caller that lets PostgreSQL fill in the
-- positions: it takes the size positions after the head, wherever that is, and
-- returns the first; currval() is then the last. It never fails with TW001: a
-- node far from PostgreSQL would otherwise always send a head that is one round
-- trip old, while a near one writes a batch in every gap.
CREATE FUNCTION tidewire.take_positions(
	lock_id int, positions regclass, size bigint, writer bigint, number bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	head bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(1953064037, lock_id);
	head := coalesce(pg_sequence_last_value(positions), 0);
	IF lock_id >= 1000 THEN
		head := greatest(head, tidewire.history_base());
	END IF;
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (writer, number, head + 1);
	IF head + size >= (SELECT grow_at FROM tidewire.segment WHERE stream = lock_id ORDER BY last DESC LIMIT 1) THEN
		PERFORM tidewire.make_room(lock_id, head, head + size);
	END IF;
	PERFORM setval(positions, head + size);
	IF lock_id >= 1000 THEN
		PERFORM tidewire.note_growth();
	END IF;
	RETURN head + 1;
END
$$;

-- settle_together returns the outcome of a transaction of append_together whose
-- answer was lost: its firsts, or NULL if nothing of it was stored, or ever will be.
-- If that transaction is still under way, it waits for it. If that one had not yet
-- written its mark, the mark that is written here makes it fail. READ COMMITTED.
--
-- A transaction that it finds may have been committed without the standbys: the wait for them was canceled, or PostgreSQL was
-- restarted meanwhile. So it writes a message to the write-ahead log: the COMMIT then waits until the standbys have it, and so
-- everything before it.
CREATE FUNCTION tidewire.settle_together(my_writer bigint, my_number bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (my_writer, my_number, 0) ON CONFLICT DO NOTHING;
	PERFORM pg_logical_emit_message(true, 'tidewire', '');
	RETURN (SELECT firsts FROM tidewire.batch WHERE writer = my_writer AND number = my_number);
END
$$;
