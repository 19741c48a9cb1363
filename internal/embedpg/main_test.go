package embedpg

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// ownerEnv makes the test binary an owner of the directory it names, for tests
// of what another process sees of it.
const ownerEnv = "EMBEDPG_TEST_OWNER"

// detachEnv makes that owner's PostgreSQL outlive the owner.
const detachEnv = "EMBEDPG_TEST_DETACH"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerEnv); dir != "" {
		beOwner(dir)
	}
	goleak.VerifyTestMain(m)
}

func beOwner(dir string) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	srv, err := Start(context.Background(), Config{DataDir: dir, Getenv: os.Getenv, Detach: os.Getenv(detachEnv) != ""})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(srv.URL())
	go func() {
		<-signals
		if err := EndOwned(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}()
	io.Copy(io.Discard, os.Stdin) // until the test ends, or kills us
	srv.Stop(context.Background())
	os.Exit(0)
}

// startOwner starts another process as owner of dir.
func startOwner(t *testing.T, dir string, env ...string) (cmd *exec.Cmd, url string) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), ownerEnv+"="+dir), env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error") {
		t.Fatalf("owner said %q, %v", line, err)
	}
	return cmd, strings.TrimSpace(line)
}

// tempDir is a directory below which an unprivileged user can work, which
// t.TempDir is not when root runs the tests.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tw-embedpg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func testConfig(t *testing.T) Config {
	t.Helper()
	return Config{DataDir: filepath.Join(tempDir(t), "db"), Getenv: os.Getenv}
}

// start starts a server that is stopped with the test.
func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	srv, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, srv) })
	return srv
}

func stop(t *testing.T, srv *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := srv.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// query runs a statement with at most one row of one text column.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(got, ",")
}

// snapshot is all that is in a directory, to show that nothing was changed.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		uid, gid := ownerOf(info)
		fmt.Fprintln(&all, path, info.Mode(), uid, gid, info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
