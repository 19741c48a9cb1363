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
	for _, c := range []struct {
		name string
		args []string
		env  map[string]string
		want int
		text string
	}{
		{"no such command", []string{"fly"}, nil, cli.ExitUsage, "fly"},
		{"unknown flag", []string{"serve", "--fast"}, nil, cli.ExitUsage, "--fast"},
		{"unknown mode", []string{"serve", "-mode", "fast"}, nil, cli.ExitUsage, "naive buffered bulk copy auto"},
		{"bad duration", []string{"serve", "--flush", "soon"}, nil, cli.ExitUsage, "300ms"},
		{"bad size", []string{"serve", "--max-inflight-bytes", "much"}, nil, cli.ExitUsage, "8MiB"},
		{"bad memory", []string{"serve", "--max-memory", "1MiB"}, nil, cli.ExitUsage, "64MiB or more"},
		{"bad share of memory", []string{"serve", "--max-memory", "120%"}, nil, cli.ExitUsage, "120%"},
		{"message above the memory", []string{"serve", "--only", "echo", "--port", "0", "--max-message", "10GB", "--max-memory", "4GiB"}, nil, cli.ExitUsage, "--max-message is 10737418240 bytes: want at most 528482304,"},
		{"message above its share", []string{"serve", "--only", "echo", "--port", "0", "--max-message", "6291457", "--max-memory", "64MiB"}, nil, cli.ExitUsage, "want at most 6291456, a quarter of the 25165824 bytes"},
		{"bad table", []string{"serve", "--table", "Messages"}, nil, cli.ExitUsage, "lower-case"},
		{"old version of the private PostgreSQL", []string{"db", "start", "--pg-version", "13", "--data-dir", filepath.Join(foreign, "none")}, nil, cli.ExitUsage, "--pg-version"},
		{"bad port", []string{"serve", "--port", "70000"}, nil, cli.ExitUsage, "65535"},
		{"bad batch", []string{"serve", "--port", "0", "--mode", "bulk", "--batch", "100000", "--database-url", db.URL}, nil, cli.ExitUsage, "65534"},
		{"recreate of everything", []string{"serve", "--recreate"}, nil, cli.ExitUsage, "--only ingest"},
		{"bench of an unknown mode", []string{"bench", "ingest", "--modes", "auto,fast"}, nil, cli.ExitUsage, "fast"},
		{"bench of nobody", []string{"bench", "ingest", "--clients", "0"}, nil, cli.ExitUsage, "--clients"},
		{"port in use", []string{"serve", "--only", "echo", "--port", port}, nil, cli.ExitListen, "--port"},
		{"foreign address", []string{"serve", "--only", "echo", "--port", "0", "--host", "203.0.113.1"}, nil, cli.ExitListen, "--host"},
		{"malformed URL", []string{"serve", "--port", "0", "--database-url", "postgres://%zz"}, nil, cli.ExitUsage, "postgres://USER"},
		{"unreachable database", []string{"stream", "list", "--database-url", "postgres://x@127.0.0.1:1/x"}, nil, cli.ExitDatabase, "--database-url"},
		{"unreachable by DATABASE_URL", []string{"db", "migrate"}, map[string]string{"DATABASE_URL": "postgres://x@127.0.0.1:1/x"}, cli.ExitDatabase, "127.0.0.1"},
		{"server of an unknown user", []string{"serve", "--port", "0", "--database-url", as(t, db.URL, "user=nobody", "")}, nil, cli.ExitDatabase, "PostgreSQL refuses the login"},
		{"server of an unknown database", []string{"serve", "--port", "0", "--database-url", as(t, db.URL, "", "/nowhere")}, nil, cli.ExitDatabase, "PostgreSQL refuses the login"},
		{"server with TLS that PostgreSQL lacks", []string{"serve", "--port", "0", "--database-url", "postgres://x@" + withoutTLS + "/x?sslmode=require"}, nil, cli.ExitDatabase, "refused TLS"},
		{"doctor of an unreachable database", []string{"doctor", "--database-url", "postgres://x@127.0.0.1:1/x"}, nil, cli.ExitDatabase, "--database-url"},
		{"doctor of a malformed URL", []string{"doctor", "--database-url", "postgres://%zz"}, nil, cli.ExitUsage, "postgres://USER"},
		{"unknown user", []string{"stream", "list", "--database-url", as(t, db.URL, "user=nobody", "")}, nil, cli.ExitDatabase, "PostgreSQL refuses the login"},
		{"unknown database", []string{"stream", "list", "--database-url", as(t, db.URL, "", "/nowhere")}, nil, cli.ExitDatabase, "PostgreSQL refuses the login"},
		{"foreign directory", []string{"serve", "--port", "0", "--data-dir", foreign}, nil, cli.ExitDataDir, foreign},
		{"data directory below a file", []string{"serve", "--port", "0", "--data-dir", filepath.Join(foreign, "thesis.txt", "db")}, nil, cli.ExitDataDir, "thesis.txt"},
		{"nothing runs", []string{"db", "url", "--data-dir", filepath.Join(foreign, "none")}, nil, cli.ExitDatabase, "tidewire db start"},
	} {
		getenv := func(name string) string {
			if name == "PATH" {
				return os.Getenv("PATH")
			}
			return c.env[name]
		}
		code, out, text := run(t, getenv, c.args...)
		if code != c.want || !strings.Contains(text, c.text) || strings.Contains(out, "listening") {
			t.Errorf("%s: exit code %d, %q %q, want %d and %q", c.name, code, out, text, c.want, c.text)
		}
		_, line, _ := strings.Cut(text, "tidewire:") // after the log
		if strings.Contains(strings.TrimSpace(line), "\n") || strings.Contains(text, "goroutine ") {
			t.Errorf("%s: not one clear line: %q", c.name, text)
		}
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
