package migrate_test

import (
	"errors"
	"fmt"
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

// TestDryRun_StartRights: it says what the role of a server lacks.
func TestDryRun_StartRights(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	role := "start_" + db.Pool.Config().ConnConfig.Database
	for _, sql := range []string{
		"CREATE ROLE " + role, "GRANT USAGE ON SCHEMA tidewire TO " + role, "GRANT SELECT ON ALL TABLES IN SCHEMA tidewire TO " + role,
		"REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA tidewire FROM PUBLIC",
	} {
		if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	defer db.Pool.Exec(t.Context(), fmt.Sprintf("DROP OWNED BY %s; DROP ROLE %[1]s", role))
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, grant := range []string{"ALL ON ALL TABLES", "ALL ON ALL SEQUENCES", "EXECUTE ON ALL FUNCTIONS"} {
		if _, err := conn.Exec(t.Context(), "SET ROLE "+role); err != nil {
			t.Fatal(err)
		}
		_, err := migrate.DryRun(t.Context(), conn, "")
		if lacks, ok := errors.AsType[*migrate.RightsError](err); !ok || !strings.Contains(strings.Join(lacks.SQL, " "), grant) {
			t.Errorf("without %s: %v", grant, err)
			continue
		}
		if _, err := conn.Exec(t.Context(), "RESET ROLE"); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), fmt.Sprintf("GRANT %s IN SCHEMA tidewire TO %s", grant, role)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), "SET ROLE "+role); err != nil {
		t.Fatal(err)
	}
	if _, err := migrate.DryRun(t.Context(), conn, ""); err != nil {
		t.Error(err)
	}
	conn.Exec(t.Context(), "RESET ROLE")
}
