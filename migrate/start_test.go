package migrate_test

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/migrate"
)

// TestDryRun_Start: a dry run fails if a server would not start, and changes nothing, not even a sequence.
func TestDryRun_Start(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	state := func() (text string) {
		t.Helper()
		if err := db.Pool.QueryRow(t.Context(), `SELECT (SELECT string_agg(format('%s %s', sequencename, last_value), ' ' ORDER BY 1) FROM pg_sequences)
			|| (SELECT string_agg(h::text, ' ' ORDER BY base) FROM tidewire.history AS h)`).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	exec(`SELECT nextval('tidewire.stream_id_seq'), nextval('tidewire.shared_top_seq')`)
	exec(`UPDATE tidewire.history SET system = 1`) // as in a restored dump: a start begins a history
	before := state()
	if _, err := migrate.DryRun(t.Context(), db.Pool, "inbox"); err != nil {
		t.Error(err)
	}
	if after := state(); after != before {
		t.Errorf("%s\nbefore the dry run, and after it\n%s", before, after)
	}
	exec(`CREATE OR REPLACE FUNCTION tidewire.leap(ids regclass) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no leap'; END $$`)
	if _, err := migrate.DryRun(t.Context(), db.Pool, ""); err == nil || !strings.Contains(err.Error(), "no leap") {
		t.Errorf("a history that cannot begin: %v", err)
	}
	if _, err := migrate.EnterHistory(t.Context(), db.Pool); err == nil {
		t.Error("a start succeeds: the test shows nothing")
	}
}
