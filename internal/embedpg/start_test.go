package embedpg

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestStart_KeepsDataOverRestartAndStop(t *testing.T) {
	t.Parallel()
	cfg := copied(t)
	srv := start(t, cfg)
	url, pid := srv.URL(), srv.PID()

	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if srv.PID() == pid || srv.URL() != url {
		t.Errorf("after Restart: pid %d, was %d; URL %s, was %s", srv.PID(), pid, srv.URL(), url)
	}
	isKept(t, srv)
	stop(t, srv)
	if srv.Running() {
		t.Error("runs after Stop")
	}
	if err := srv.Restart(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Restart after Stop: %v", err)
	}
	isKept(t, start(t, cfg))
}

func TestStart_IsPrivateAndDefault(t *testing.T) {
	t.Parallel()
	srv := start(t, testConfig(t))
	for sql, want := range map[string]string{
		"SELECT current_user::text":       "tidewire",
		"SELECT current_database()::text": "tidewire",
		"SHOW listen_addresses":           "",
		"SHOW fsync":                      "on",
		"SHOW synchronous_commit":         "on",
		"SHOW shared_buffers":             "128MB",
		"SHOW server_encoding":            "UTF8",
		"SELECT datcollate::text FROM pg_database WHERE datname = current_database()": "C",
		"SELECT DISTINCT auth_method FROM pg_hba_file_rules":                          "peer",
		"SELECT split_part(current_setting('server_version'), ' ', 1)":                srv.Version(),
	} {
		if got := query(t, srv.URL(), sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	info, err := os.Stat(filepath.Join(srv.DataDir(), "run"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("socket directory: %v, %v", info.Mode(), err)
	}
	// A terminal's Ctrl-C goes to a process group.
	if pgid, err := syscall.Getpgid(srv.PID()); err != nil || pgid == syscall.Getpgrp() {
		t.Errorf("process group %d, %v: ours", pgid, err)
	}
	if _, err := os.Stat(filepath.Join(srv.BinDir(), "postgres")); err != nil {
		t.Error(err)
	}
}

// TestKill: a killed server recovers. After Stop no shared memory of it is left: once its directory is removed, nobody would free it.
func TestKill(t *testing.T) {
	t.Parallel()
	srv := start(t, copied(t))
	if err := srv.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if srv.Running() {
		t.Error("runs after Kill")
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	isKept(t, srv)
	p, ok, err := srv.dir.readPID()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	id, ok := p.segment()
	if !ok {
		t.Fatalf("no segment in %q", p.rest)
	}
	var info unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &info); err != nil {
		t.Fatalf("the segment of a server that runs: %v", err)
	}
	if err := srv.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop(t, srv)
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &info); err == nil {
		t.Errorf("segment %d is left", id)
	}
}

func TestStart_StalePIDFileNamesAnotherProcess(t *testing.T) {
	t.Parallel()
	cfg := copied(t)
	srv := start(t, cfg)
	pidFile, err := os.ReadFile(srv.dir.pidPath())
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop(t, srv)

	// Of PostgreSQL's own user, or PostgreSQL would ignore it.
	other := srv.as.command(t.Context(), nil, "/bin/sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	_, rest, _ := strings.Cut(string(pidFile), "\n")
	number := strconv.Itoa(other.Process.Pid) + "\n"
	for path, text := range map[string]string{
		srv.dir.pidPath(): number + rest,
		filepath.Join(srv.dir.run(), ".s.PGSQL.5432.lock"): number + rest,
	} {
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), srv.as.give(path)); err != nil {
			t.Fatal(err)
		}
	}
	srv = start(t, cfg)
	if srv.Attached() {
		t.Error("took a foreign process for PostgreSQL")
	}
	isKept(t, srv)
	if !exists(other.Process.Pid) {
		t.Error("the foreign process is gone")
	}
}

func TestStart_EmptyPIDFile(t *testing.T) {
	t.Parallel()
	cfg := copied(t)
	dir, as := layoutOf(t, cfg.DataDir)
	if err := errors.Join(os.WriteFile(dir.pidPath(), nil, 0o600), as.give(dir.pidPath())); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrStart) {
		t.Errorf("a fresh one: %v", err)
	}
	before := time.Now().Add(-time.Minute)
	if err := os.Chtimes(dir.pidPath(), before, before); err != nil {
		t.Fatal(err)
	}
	start(t, cfg)
}

func TestStart_LongPath(t *testing.T) {
	t.Parallel()
	cfg := copied(t)
	long := filepath.Join(filepath.Dir(cfg.DataDir), strings.Repeat("long, \"quoted\" ", 8))
	if err := errors.Join(os.Mkdir(long, 0o755), os.Rename(cfg.DataDir, filepath.Join(long, "db"))); err != nil {
		t.Fatal(err)
	}
	cfg.DataDir = filepath.Join(long, "db")
	srv := start(t, cfg)
	isKept(t, srv)
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	isKept(t, srv)
	stop(t, srv)
	if _, err := os.Stat(srv.dir.socketPath()); srv.dir.socketPath() == srv.dir.run() || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", srv.dir.socketPath(), err)
	}
}

func TestStart_SaysWhyPostgresFailed(t *testing.T) {
	t.Parallel()
	cfg := copied(t)
	cfg.Settings = map[string]string{"shared_buffers": "nonsense"}
	_, err := Start(t.Context(), cfg)
	if !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got %v", err)
	}
	cfg.Settings = nil
	start(t, cfg) // what was made by then is whole
}
