-- The servers that write into a presence stream, and when each was last alive.
--
-- A server writes its row every few seconds. A row that nobody has written for long is deleted by another server, in the transaction that tells the stream
-- that the server is gone: so it is told once. A server that is alive all the same finds that its row is gone, and then tells anew what is there.
CREATE TABLE tidewire.presence_nodes (
	node text COLLATE "C" PRIMARY KEY, -- random, of one process
	stream int NOT NULL, -- its id: a stream that was dropped and made again is another one
	seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
