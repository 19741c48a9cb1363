package migrate_test

import (
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// TestUp_BesideAWriterOfAJournal: a node of an earlier version writes to the journal of a queue while
// all journals move to one table: what it has committed moves, too.
func TestUp_BesideAWriterOfAJournal(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	if err := migrate.UpTo(t.Context(), db.Pool, 26); err != nil {
		t.Fatal(err)
	}
	var id int32
	if err := db.Pool.QueryRow(t.Context(), `SELECT (tidewire.ensure_queue(s.id, 5, '1 s', '1 min')).id FROM tidewire.ensure_stream('jobs', false) AS s`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1953064037, -$1::int)`, id); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `WITH head AS MATERIALIZED (SELECT sequence, top, base FROM tidewire.queue_1000_journal ORDER BY sequence DESC LIMIT 1)
		INSERT INTO tidewire.queue_1000_journal (sequence, kind, token, lo, hi, body, top, base) SELECT sequence + 1, 10, 7, 0, 0, NULL, top, base FROM head`); err != nil {
		t.Fatal(id, err)
	}
	migrated := make(chan error, 1)
	go func() { _, err := migrate.Up(t.Context(), db.Pool); migrated <- err }()
	// until the migration waits for a lock
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var waits int
		if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if waits > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the migration never waits")
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.queue_journal WHERE queue = $1`, id).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if rows != 2 {
		t.Errorf("%d rows after the upgrade, want 2: a committed one is lost", rows)
	}
}
