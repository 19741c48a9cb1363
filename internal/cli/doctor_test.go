package cli_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestDoctor: the findings, in text and in JSON, with the command and the exit code.
func TestDoctor(t *testing.T) {
	notShort(t)
	t.Parallel()
	server := pgtest.Start(t)
	tell := func(sql string) {
		t.Helper()
		if code, _, text := run(t, os.Getenv, "db", "psql", "--data-dir", server.DataDir(), "-c", sql); code != cli.ExitOK {
			t.Fatal(text)
		}
	}
	for _, c := range []struct {
		before string
		code   int
		level  string
		check  string
		text   string
	}{
		{"ALTER SYSTEM SET autovacuum = on", cli.ExitOK, "note", "schema", "    tidewire db migrate\n"},
		{"ALTER ROLE tidewire SET statement_timeout = '3s'", cli.ExitWarnings, "warning", "timeouts", "    ALTER ROLE \"tidewire\" IN DATABASE \"tidewire\" SET statement_timeout = '0';\n"},
		{"ALTER ROLE tidewire SET default_transaction_read_only = on", cli.ExitErrors, "error", "primary", "    ALTER ROLE \"tidewire\" IN DATABASE \"tidewire\" SET default_transaction_read_only = 'off';\n"},
	} {
		tell(c.before)
		private := c.code == cli.ExitOK // an old minor version is only a note there
		args := []string{"doctor", "--database-url", server.URL()}
		if private {
			args = []string{"doctor", "--data-dir", server.DataDir()}
		}
		code, out, text := run(t, nil, args...)
		worst := c.level
		if c.code == cli.ExitOK && strings.Contains(out, "gets no fixes any more") { // the tests run on PostgreSQL 14 too
			c.code, worst = cli.ExitWarnings, "warning"
		}
		if code != c.code || text != "" || !strings.Contains(out, c.text) || !strings.Contains(out, c.level+strings.Repeat(" ", 9-len(c.level))+c.check+" ") {
			t.Errorf("%s: exit code %d, %q, %s", c.before, code, text, out)
		}
		code, out, text = run(t, nil, append(args, "--json")...)
		var report struct {
			Server, Database, Role, Worst string
			Findings                      []struct {
				Check, Level, Text string
				Commands           []string
			}
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != c.code || report.Worst != worst || report.Database != "tidewire" {
			t.Fatalf("%s: exit code %d, %v, %q, %s", c.before, code, err, text, out)
		}
		found := false
		for _, f := range report.Findings {
			found = found || f.Check == c.check && f.Level == c.level && len(f.Commands) == 1 && strings.TrimSpace(c.text) == f.Commands[0]
		}
		if !found {
			t.Errorf("%s: %s", c.before, out)
		}
	}
}

// TestServe_Resembling: a server whose advisory locks do not lock is rejected before anything is created in
// it.
func TestServe_Resembling(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	execSQL(t, db, `CREATE OR REPLACE FUNCTION pg_catalog.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'`) // of this database
	code, _, text := run(t, nil, "serve", "--port", "0", "--database-url", db.URL)
	if code != cli.ExitDatabase || !strings.Contains(text, "only resembles PostgreSQL") || !strings.Contains(text, "--database-url") {
		t.Errorf("exit code %d, %q", code, text)
	}
	if n := schemaVersion(t, db); n != -1 {
		t.Errorf("the schema was made: version %d", n)
	}
}
