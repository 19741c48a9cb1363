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
	db := pgtest.Open(t)
	if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
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
