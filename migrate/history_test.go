package migrate_test

import (
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// TestEnterHistory: a new history begins if the database was restored into another cluster, and not
// otherwise.
func TestEnterHistory(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	want := func(what string, histories int) (base int64) {
		t.Helper()
		for range 2 { // the second call begins none
			if _, err := migrate.EnterHistory(t.Context(), db.Pool); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		var n int
		if err := db.Pool.QueryRow(t.Context(), `SELECT count(*), max(base) FROM tidewire.history`).Scan(&n, &base); err != nil || n != histories {
			t.Errorf("%s: %d histories, %v, want %d", what, n, err, histories)
		}
		return base
	}
	want("made here", 1)
	exec(`UPDATE tidewire.history SET system = 1`)
	restored := want("restored", 2)
	exec(`SELECT tidewire.begin_history()`)
	byHand := want("begun by hand", 3)
	exec(`BEGIN; SELECT tidewire.begin_history(); ROLLBACK`)
	rolledBack := want("begun and rolled back", 4)
	exec(`BEGIN; SELECT tidewire.begin_history(); ROLLBACK; SELECT tidewire.begin_history()`)
	last := want("begun once more before EnterHistory", 6)
	if restored <= 0 || byHand <= restored || rolledBack <= byHand || last <= rolledBack || last >= 1<<47 {
		t.Errorf("bases %d, %d, %d, %d", restored, byHand, rolledBack, last)
	}
}

// TestEnterHistory_LeastRights: a dump is restored by a role that may use nothing but Tidewire's schema, beside an application
// with a sequence in a schema of its own.
func TestEnterHistory_LeastRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`DO $$ BEGIN EXECUTE format('CREATE ROLE least_%s', current_database()); EXECUTE format('CREATE SCHEMA tidewire AUTHORIZATION least_%s', current_database()); END $$`)
	defer exec(`DO $$ BEGIN RESET ROLE; EXECUTE format('DROP OWNED BY least_%s', current_database()); EXECUTE format('DROP ROLE least_%s', current_database()); END $$`)
	exec(`CREATE SCHEMA shop; CREATE TABLE shop.orders (id int GENERATED ALWAYS AS IDENTITY)`)
	exec(`SELECT set_config('role', 'least_' || current_database(), false)`)
	if _, err := migrate.Up(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	exec(`UPDATE tidewire.history SET system = 1`)
	if base, err := migrate.EnterHistory(t.Context(), conn); err != nil || base == 0 {
		t.Errorf("entered history %d (%v), want a new one", base, err)
	}
}
