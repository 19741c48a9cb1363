package cli_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestExitCodes: each kind of failure has its exit code, and a line that says what to change.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	socket := db.Pool.Config().ConnConfig
	withoutTLS := fmt.Sprint("127.0.0.1:", pgtest.StartProxy(t, "unix", fmt.Sprintf("%s/.s.PGSQL.%d", socket.Host, socket.Port)).Port)
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.txt"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, []refusal{
		{"fly", cli.ExitUsage, "fly"},
		{"serve --fast", cli.ExitUsage, "--fast"},
		{"serve -mode fast", cli.ExitUsage, "naive buffered bulk copy auto"},
		{"serve --flush soon", cli.ExitUsage, "300ms"},
		{"serve --max-inflight-bytes much", cli.ExitUsage, "8MiB"},
		{"serve --max-memory 1MiB", cli.ExitUsage, "64MiB or more"},
		{"serve --max-memory 120%", cli.ExitUsage, "120%"},
		{"serve --only echo --port 0 --max-message 10GB --max-memory 4GiB", cli.ExitUsage, "--max-message is 10737418240 bytes: want at most 528482304,"},
		{"serve --only echo --port 0 --max-message 6291457 --max-memory 64MiB", cli.ExitUsage, "want at most 6291456, a quarter of the 25165824 bytes"},
		{"serve --table Messages", cli.ExitUsage, "lower-case"},
		{"db start --pg-version 13 --data-dir " + filepath.Join(foreign, "none"), cli.ExitUsage, "--pg-version"},
		{"serve --port 70000", cli.ExitUsage, "65535"},
		{"serve --port 0 --mode bulk --batch 100000 --database-url " + db.URL, cli.ExitUsage, "65534"},
		{"serve --recreate", cli.ExitUsage, "--only ingest"},
		{"bench ingest --modes auto,fast", cli.ExitUsage, "fast"},
		{"bench ingest --clients 0", cli.ExitUsage, "--clients"},
		{"serve --only echo --port " + port, cli.ExitListen, "--port"},
		{"serve --only echo --port 0 --host 203.0.113.1", cli.ExitListen, "--host"},
		{"serve --port 0 --database-url postgres://%zz", cli.ExitUsage, "postgres://USER"},
		{"stream list --database-url postgres://x@127.0.0.1:1/x", cli.ExitDatabase, "--database-url"},
		{"serve --port 0 --database-url " + as(t, db.URL, "user=nobody", ""), cli.ExitDatabase, "PostgreSQL refuses the login"},
		{"serve --port 0 --database-url " + as(t, db.URL, "", "/nowhere"), cli.ExitDatabase, "PostgreSQL refuses the login"},
		{"serve --port 0 --database-url postgres://x@" + withoutTLS + "/x?sslmode=require", cli.ExitDatabase, "refused TLS"},
		{"doctor --database-url postgres://x@127.0.0.1:1/x", cli.ExitDatabase, "--database-url"},
		{"doctor --database-url postgres://%zz", cli.ExitUsage, "postgres://USER"},
		{"stream list --database-url " + as(t, db.URL, "user=nobody", ""), cli.ExitDatabase, "PostgreSQL refuses the login"},
		{"stream list --database-url " + as(t, db.URL, "", "/nowhere"), cli.ExitDatabase, "PostgreSQL refuses the login"},
		{"serve --port 0 --data-dir " + foreign, cli.ExitDataDir, foreign},
		{"serve --port 0 --data-dir " + filepath.Join(foreign, "thesis.txt", "db"), cli.ExitDataDir, "thesis.txt"},
		{"db url --data-dir " + filepath.Join(foreign, "none"), cli.ExitDatabase, "tidewire db start"},
	})
	if code, _, text := run(t, onlyEnv("DATABASE_URL", "postgres://x@127.0.0.1:1/x"), "db", "migrate"); code != cli.ExitDatabase || !strings.Contains(text, "127.0.0.1") {
		t.Errorf("unreachable by DATABASE_URL: exit code %d, %q", code, text)
	}
	if kept, err := os.ReadFile(filepath.Join(foreign, "thesis.txt")); err != nil || string(kept) != "mine" {
		t.Errorf("foreign file: %q, %v", kept, err)
	}
}

// as returns the URL with another user or another database.
func as(t *testing.T, raw, user, path string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		u.RawQuery = strings.Replace(u.RawQuery, "user=tidewire", user, 1)
	}
	if path != "" {
		u.Path = path
	}
	return u.String()
}
