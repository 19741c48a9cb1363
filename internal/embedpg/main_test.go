package embedpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
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
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if made != "" {
			os.RemoveAll(made)
		}
		os.Exit(code)
	}))
}

// made is what template has made.
var made string

// template returns a stopped server's directory, which initdb has filled.
var template = sync.OnceValues(func() (dir string, err error) {
	if made, err = os.MkdirTemp(inMemory(), "tw-embedpg-"); err != nil {
		return "", err
	}
	if err := os.Chmod(made, 0o755); err != nil {
		return "", err
	}
	dir = filepath.Join(made, "db")
	srv, err := Start(context.Background(), Config{DataDir: dir, Getenv: os.Getenv})
	if err != nil {
		return "", err
	}
	conn, err := pgx.Connect(context.Background(), srv.URL())
	if err == nil {
		_, err = conn.Exec(context.Background(), "CREATE TABLE kept AS SELECT 'here' AS v")
		conn.Close(context.Background())
	}
	return dir, errors.Join(err, srv.Stop(context.Background()))
})

// copied returns the configuration of a directory that is full: initdb takes longer than most tests.
func copied(t *testing.T) Config {
	t.Helper()
	if testing.Short() {
		t.Skip("starts PostgreSQL more than once")
	}
	from, err := template()
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t)
	if out, err := exec.Command("cp", "-a", from, cfg.DataDir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return cfg
}

func layoutOf(t *testing.T, dataDir string) (layout, account) {
	t.Helper()
	dir, _, err := openLayout(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	as, err := runAs(dir.pgdata())
	if err != nil {
		t.Fatal(err)
	}
	return dir, as
}

// isKept fails unless the row of template's table is there.
func isKept(t *testing.T, srv *Server) {
	t.Helper()
	if got := query(t, srv.URL(), "SELECT v FROM kept"); got != "here" {
		t.Errorf("got %q", got)
	}
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
	dir, err := os.MkdirTemp(inMemory(), "tw-embedpg-")
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

// inMemory returns a directory of a file system in memory that has much room, or "": to make a database's files on a disk takes more time than all else.
func inMemory() string {
	const dir, room = "/dev/shm", 8 << 30
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || int64(fs.Bavail)*int64(fs.Bsize) < room {
		return ""
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
