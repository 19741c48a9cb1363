-- settle_together as before. A transaction that it finds may have been committed without the standbys that
-- commits wait for: that wait was canceled, or PostgreSQL was restarted meanwhile. The message is only in the write-ahead log. It
-- makes the COMMIT of the look wait until the standbys have it, and so all before it.
CREATE OR REPLACE FUNCTION tidewire.settle_together(my_writer bigint, my_number bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO tidewire.batch (writer, number, first_position) VALUES (my_writer, my_number, 0) ON CONFLICT DO NOTHING;
	PERFORM pg_logical_emit_message(true, 'tidewire', '');
	RETURN (SELECT firsts FROM tidewire.batch WHERE writer = my_writer AND number = my_number);
END
$$;
