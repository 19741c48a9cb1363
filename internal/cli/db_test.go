package cli_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestDB_LifeCycle: the private PostgreSQL is started, asked and stopped by commands.
func TestDB_LifeCycle(t *testing.T) {
	notShort(t)
	t.Parallel()
	data := dataDir(t)
	noPsql := func(string) string { return "" }
	withPath := func(name string) string {
		if name == "PATH" {
			return os.Getenv("PATH")
		}
		return ""
	}
	expect := func(getenv func(string) string, want int, text string, args ...string) {
		t.Helper()
		code, out, errOut := run(t, getenv, append(args, "--data-dir", data)...)
		if code != want || !strings.Contains(out+errOut, text) {
			t.Fatalf("%v: exit code %d, %q %q, want %d and %q", args, code, out, errOut, want, text)
		}
	}
	expect(withPath, cli.ExitDatabase, "no database there yet", "db", "status")
	expect(noPsql, cli.ExitOK, "-c SQL", "db", "psql", "--help")
	expect(withPath, cli.ExitOK, "-c SQL", "db", "psql", "--help")
	expect(withPath, cli.ExitOK, "is running", "db", "start")
	expect(withPath, cli.ExitOK, "runs, pid", "db", "status")
	expect(withPath, cli.ExitOK, "postgres://", "db", "url")
	expect(noPsql, cli.ExitOK, "1|two|\n", "db", "psql", "-c", "SELECT 1, 'two', NULL")
	expect(noPsql, cli.ExitFailure, "nothing_there", "db", "psql", "-c", "SELECT * FROM nothing_there")
	expect(noPsql, cli.ExitOK, "3\n4\n", "db", "psql", "-At", "-c", "SELECT 3", "--command=SELECT 4")
	expect(noPsql, cli.ExitPostgreSQL, "no psql", "db", "psql")
	expect(noPsql, cli.ExitPostgreSQL, "--csv", "db", "psql", "--csv", "-c", "SELECT 1")
	if _, err := exec.LookPath("psql"); err == nil {
		expect(withPath, cli.ExitOK, "forty-two", "db", "psql", "-Atc", "SELECT 'forty-' || 'two'")
	}
	p := serve(t, "--data-dir", data)
	if code := p.Stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	expect(withPath, cli.ExitOK, "runs, pid", "db", "status") // serve left it running
	expect(withPath, cli.ExitOK, "stopped", "db", "stop")
	expect(withPath, cli.ExitDatabase, "not running", "db", "status")
}
