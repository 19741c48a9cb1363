package cli_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestCommands_HistoryLost: commands that name positions that a failover has lost say so, and how to go on. The failover is simulated.
func TestCommands_HistoryLost(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s := shell{t, db.URL}
	s.run("stream", "create", "s")
	for range 3 {
		s.run("stream", "publish", "s", "before")
		s.run("events", "append", "--type", "A")
	}
	execSQL(t, db, `SELECT tidewire.begin_history()`)
	_, fresh, _ := strings.Cut(s.run("stream", "publish", "s", "after"), "last position ")
	last, err := strconv.Atoi(strings.TrimSpace(fresh))
	if err != nil {
		t.Fatal(err)
	}
	if out := s.run("stream", "info", "s"); !strings.Contains(out, fmt.Sprintf("failover: no messages after position 3 and up to %d\n", last-1)) {
		t.Errorf("stream info:\n%s", out)
	}
	if _, errOut := s.in("", cli.ExitFailure, "stream", "tail", "s", "--after", "5"); !strings.Contains(errOut, "continue with --after 3") {
		t.Errorf("stream tail: %s", errOut)
	}
	if _, errOut := s.in("", cli.ExitFailure, "events", "query", "--after", "5"); !strings.Contains(errOut, "the last event before is at 3") {
		t.Errorf("events query: %s", errOut)
	}
}

// TestServe_Restored: serve logs that a restored dump begins a new history, and if it cannot see that; the dry run logs the second.
func TestServe_Restored(t *testing.T) {
	t.Parallel()
	const begun, unnoticed = "a new history of positions has begun", "GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO "
	db := pgtest.Open(t)
	as, role := appRole(t, db)
	execSQL(t, db, "CREATE SCHEMA tidewire AUTHORIZATION "+role)
	start := func() string {
		t.Helper()
		p := serve(t, "--table", "tidewire.messages", "--database-url", as)
		if code := p.Stop(t); code != cli.ExitOK {
			t.Errorf("exit code %d", code)
		}
		return p.Log()
	}
	for range 2 {
		if log := start(); strings.Contains(log, begun) || strings.Contains(log, unnoticed) {
			t.Errorf("not restored: %s", log)
		}
	}
	execSQL(t, db, "UPDATE tidewire.history SET system = 1")
	if log := start(); strings.Count(log, begun) != 1 {
		t.Errorf("restored: %s", log)
	}
	execSQL(t, db, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
	if log := start(); !strings.Contains(log, unnoticed) {
		t.Errorf("no identifier: %s", log)
	}
	if code, _, text := run(t, nil, "db", "migrate", "--dry-run", "--table", "tidewire.messages", "--database-url", as); code != cli.ExitOK || !strings.Contains(text, unnoticed) {
		t.Errorf("exit code %d, %s", code, text)
	}
}
