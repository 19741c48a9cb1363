-- The servers that form a cluster, and how they find each other.
--
-- A server writes its row before it reads the others. So of two servers that start at the same time at least one finds the other. It writes it again every
-- five seconds; rows that nobody has written for a minute are deleted by the others.

-- clusters has the password with which the servers of a cluster know each other. The first one makes it.
CREATE TABLE tidewire.clusters (
	name text COLLATE "C" PRIMARY KEY,
	secret text NOT NULL
);

CREATE TABLE tidewire.nodes (
	id text COLLATE "C" PRIMARY KEY, -- random, of one process
	cluster text COLLATE "C" NOT NULL REFERENCES tidewire.clusters (name),
	address text NOT NULL, -- where other servers reach it, as host:port; empty if an operator's NATS connects them
	host text NOT NULL, -- the name of its machine
	version text NOT NULL,
	started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
