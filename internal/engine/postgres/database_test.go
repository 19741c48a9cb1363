package postgres

import (
	"context"
	"testing"
)

// TestDatabase: what PostgreSQL says of itself, and that its log grows with what is written.
func TestDatabase(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	database := startEngine(t, db).Serves().Database
	before, err := database(t.Context())
	if err != nil || before.Version == "" || before.Size < 1<<20 || before.WAL < 1 || before.Connections < 1 || before.MaxConnections < before.Connections {
		t.Fatalf("%+v, %v", before, err)
	}
	if _, err := db.Pool.Exec(t.Context(), "CREATE TABLE filler AS SELECT repeat('x', 100) AS a FROM generate_series(1, 1000)"); err != nil {
		t.Fatal(err)
	}
	after, err := database(t.Context())
	if err != nil || after.WAL < before.WAL+1000 || after.Size != before.Size {
		t.Errorf("before %+v, after %+v, %v: want more log, and the size of before", before, after, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if away, err := database(ended); err == nil || away.MaxConnections != before.MaxConnections {
		t.Errorf("without an answer: %+v, %v", away, err)
	}
}
