package engine

// Database is the state of an engine's database.
type Database struct {
	Version string
	// Size is that of the database on its disk, in bytes.
	Size int64
	// WAL is how many bytes it has written to its log since it was made; 0 if that is unknown.
	WAL int64
	// Standbys are the servers that get its log now.
	Standbys int
	// Connections are those that this server has open to it, of MaxConnections.
	Connections, MaxConnections int
}
