package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testbin"
	"github.com/tidewire/tidewire/internal/testkit"
)

// run runs a command inside this process, with an environment that has nothing but these settings.
func run(t *testing.T, getenv func(string) string, args ...string) (code int, out, errOut string) {
	t.Helper()
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	return runOn(t, getenv, "", args...)
}

// runOn is run with a standard input.
func runOn(t *testing.T, getenv func(string) string, input string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Run(t.Context(), cli.Env{Args: args, Getenv: getenv, In: strings.NewReader(input), Out: &stdout, Err: &stderr, Program: tidewire(t)})
	if strings.Contains(stderr.String(), "%!") { // of a text that is not formatted as it was meant
		t.Errorf("%v: %s", args, stderr.String())
	}
	return code, stdout.String(), stderr.String()
}

// notShort skips a test that starts a PostgreSQL, waits for leases or timeouts, or runs many commands, in short runs.
func notShort(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
}

// refusal is a command line that is refused with an exit code, and a text that the error has.
type refusal struct {
	line string
	code int
	says string
}

// refused wants that commands are refused, with one clear line after the log.
func refused(t *testing.T, all []refusal) {
	t.Helper()
	for _, c := range all {
		code, out, errOut := run(t, nil, wordsOf(c.line)...)
		if code != c.code || !strings.Contains(errOut, c.says) {
			t.Errorf("%s: exit code %d, want %d and %q: %s%s", c.line, code, c.code, c.says, out, errOut)
		}
		_, line, _ := strings.Cut(errOut, "tidewire:")
		if strings.Contains(strings.TrimSpace(line), "\n") || strings.Contains(errOut, "goroutine ") || strings.Contains(out, "listening") {
			t.Errorf("%s: not one clear line: %q", c.line, errOut)
		}
	}
}

// command runs a command as a process.
func command(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), tidewire(t), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "TIDEWIRE_") || strings.HasPrefix(v, "DATABASE_") || strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "XDG_")
	})
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("%v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// dataDir returns a new directory for a private PostgreSQL, which may run as
// another user. It does not use t.TempDir, since a socket's path must be short.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(pgtest.MemoryDir(), "tw-cli-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	t.Cleanup(func() { embedpg.StopDir(context.Background(), data) }) // that a killed server may have left
	return data
}

// program is a tidewire process.
type program struct{ *testbin.Process }

// tidewire returns the path of the program.
func tidewire(t testing.TB) string {
	t.Helper()
	path, err := testbin.Tidewire()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// serve starts `tidewire serve` on a free port and waits until it listens. A short run has no servers with a database, except that of TestConformance.
func serve(t *testing.T, args ...string) *program {
	t.Helper()
	if testing.Short() && slices.Contains(args, "--database-url") {
		t.Skip("starts a server with a database")
	}
	return &program{testbin.Serve(t, exec.Command(tidewire(t), append([]string{"serve", "--port", "0"}, args...)...))}
}

// awaitMetric waits until /metrics has a line.
func (p *program) awaitMetric(t *testing.T, line string) {
	t.Helper()
	testkit.Eventually(t, "the metrics have "+line, func() bool {
		_, text := request(t, "GET", p.Addr, "/metrics", "")
		return strings.Contains(text, "\n"+line+"\n")
	})
}

// awaitReadyz waits until /readyz has an answer.
func (p *program) awaitReadyz(t *testing.T, status int, text string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("/readyz answers %d %s", status, text), func() bool {
		got, said := request(t, "GET", p.Addr, "/readyz", "")
		return got == status && strings.Contains(said, text)
	})
}

func rows(t *testing.T, url, sql string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// runSQL runs a statement that cannot run in a transaction.
func runSQL(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func execSQL(t *testing.T, db pgtest.DB, sql string) {
	t.Helper()
	if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// shell runs commands on one database, inside this process.
type shell struct {
	t   *testing.T
	url string
}

// in runs a command with a standard input and wants an exit code.
func (s shell) in(input string, want int, args ...string) (out, errOut string) {
	s.t.Helper()
	code, out, errOut := runOn(s.t, os.Getenv, input, append(args, "--database-url", s.url)...)
	if code != want {
		s.t.Fatalf("%v: exit code %d, want %d\n%s%s", args, code, want, out, errOut)
	}
	return out, errOut
}

func (s shell) run(args ...string) string {
	s.t.Helper()
	out, _ := s.in("", cli.ExitOK, args...)
	return out
}
