package pg

import (
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestSweepBatches: each slice scans only its own blocks, and nothing is deleted while
// another process sweeps.
func TestSweepBatches(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	// As migrate makes it, which cannot be imported here.
	exec(`CREATE SCHEMA tidewire`)
	exec(`CREATE TABLE tidewire.batch (writer bigint NOT NULL, number bigint NOT NULL, first_position bigint NOT NULL,
		created_at timestamptz NOT NULL DEFAULT now(), firsts bigint[], PRIMARY KEY (writer, number))`)
	exec(`INSERT INTO tidewire.batch SELECT n % 7, n, n, now() - CASE WHEN n % 10 = 0 THEN interval '1 hour' ELSE '2 days' END
		FROM generate_series(1, 30000) AS n`)
	marks := func() (n int) {
		t.Helper()
		if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.batch`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1953064037, 4)`); err != nil {
		t.Fatal(err)
	}
	if err := SweepBatches(t.Context(), db.Pool); err != nil || marks() != 30000 {
		t.Fatalf("%v, %d marks beside another one that sweeps, want all", err, marks())
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if alone, blocks, err := sweepSlice(t.Context(), db.Pool, 0); err != nil || !alone || blocks < 2*sweepBlocks {
		t.Fatalf("a slice: %t, %d blocks, %v", alone, blocks, err)
	}
	if left := marks(); left < 10000 || left > 25000 {
		t.Errorf("after one slice there are %d marks, want some of the old ones", left)
	}
	if err := SweepBatches(t.Context(), db.Pool); err != nil || marks() != 3000 {
		t.Errorf("%v, %d marks after the sweep, want 3000", err, marks())
	}
}
