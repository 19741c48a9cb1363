package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

// pgbouncer starts PgBouncer for a database, and returns the URL.
func pgbouncer(t *testing.T, db pgtest.DB, settings string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatal(err)
	default:
		t.Skip("there is no pgbouncer: ", err)
	}
	dir, err := os.MkdirTemp("", "tw-bouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o777) // PgBouncer does not run as root
	cfg := db.Pool.Config().ConnConfig
	server := pgtest.StartProxy(t, "unix", fmt.Sprintf("%s/.s.PGSQL.%d", cfg.Host, cfg.Port)) // PostgreSQL's directory is closed to PgBouncer's user
	file := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=%s\n[pgbouncer]\nauth_type = any\nlisten_addr =\nunix_socket_dir = %s\nlisten_port = 6432\n%s\n", server.Port, cfg.User, dir, settings)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{file}
	if os.Getuid() == 0 {
		args = []string{"-u", "nobody", file}
	}
	bouncer := exec.Command(program, args...)
	var said strings.Builder
	bouncer.Stdout, bouncer.Stderr = &said, &said
	if err := bouncer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		bouncer.Process.Kill()
		bouncer.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	url := fmt.Sprintf("postgres:///%s?host=%s&port=6432&user=%s", cfg.Database, dir, cfg.User)
	testkit.Eventually(t, "PgBouncer answers", func() bool {
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			conn.Close(t.Context())
		}
		return err == nil
	})
	return url
}

// TestServe_Pooler: sessions that are lent for a transaction, in whatever order, are refused with the reason. A session for each
// connection is enough.
func TestServe_Pooler(t *testing.T) {
	t.Parallel()
	for _, settings := range []string{"pool_mode = transaction", "pool_mode = transaction\nserver_round_robin = 1", "pool_mode = transaction\ndefault_pool_size = 1", "pool_mode = statement"} {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			url := pgbouncer(t, pgtest.Open(t), settings)
			if code, out, text := run(t, nil, "serve", "--port", "0", "--database-url", url); code != cli.ExitDatabase || out != "" || !strings.Contains(text, "pool_mode = session") {
				t.Errorf("serve: exit code %d, %q %q", code, out, text)
			}
			if code, out, _ := run(t, nil, "doctor", "--database-url", url); code != cli.ExitErrors || !strings.Contains(strings.Join(strings.Fields(out), " "), "error pooler a pooler lends") {
				t.Errorf("doctor: exit code %d, %s", code, out)
			}
		})
	}
	t.Run("pool_mode = session", func(t *testing.T) {
		t.Parallel()
		url := pgbouncer(t, pgtest.Open(t), "pool_mode = session\ndefault_pool_size = 50")
		p := serve(t, "--database-url", url)
		p.awaitReadyz(t, 200, "ok")
		request(t, "POST", p.Addr, "/v1/streams/s", "")
		w := wireDial(t, p.Addr)
		w.ask(`{"type":"publish","stream":"s","payload":"x","id":1}`)
		if code := p.Stop(t); code != cli.ExitOK {
			t.Errorf("exit code %d", code)
		}
		if code, out, _ := run(t, nil, "doctor", "--database-url", url); !strings.Contains(out, "note     pooler ") {
			t.Errorf("doctor: exit code %d, %s", code, out)
		}
	})
}

// TestCommands_Pooler: a command that fails because another has prepared its statement in the session names the pooler.
func TestCommands_Pooler(t *testing.T) {
	t.Parallel()
	url := pgbouncer(t, migrated(t), "pool_mode = transaction\ndefault_pool_size = 1")
	code, text := cli.ExitOK, ""
	for range 2 {
		code, _, text = run(t, nil, "db", "migrate", "--status", "--database-url", url)
	}
	switch {
	case code == cli.ExitOK:
		t.Skip("this PgBouncer keeps the prepared statements of its clients apart")
	case code != cli.ExitDatabase || !strings.Contains(text, "pool_mode = session"):
		t.Errorf("exit code %d, %q", code, text)
	}
}
