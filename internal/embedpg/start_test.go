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
)

func TestStart_KeepsDataOverRestartAndStop(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	srv := start(t, cfg)
	url, pid := srv.URL(), srv.PID()
	query(t, url, "CREATE TABLE kept AS SELECT 'here' AS v")

	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if srv.PID() == pid || srv.URL() != url {
		t.Errorf("after Restart: pid %d, was %d; URL %s, was %s", srv.PID(), pid, srv.URL(), url)
	}
	if got := query(t, url, "SELECT v FROM kept"); got != "here" {
		t.Errorf("after Restart: %q", got)
	}
	stop(t, srv)
	if srv.Running() {
		t.Error("runs after Stop")
	}
	if err := srv.Restart(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Restart after Stop: %v", err)
	}
	srv = start(t, cfg)
	if got := query(t, srv.URL(), "SELECT v FROM kept"); got != "here" {
		t.Errorf("after Stop and Start: %q", got)
	}
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

func TestKill_RestartRecovers(t *testing.T) {
	t.Parallel()
	srv := start(t, testConfig(t))
	query(t, srv.URL(), "CREATE TABLE kept AS SELECT 'here' AS v")
	if err := srv.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if srv.Running() {
		t.Error("runs after Kill")
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query(t, srv.URL(), "SELECT v FROM kept"); got != "here" {
		t.Errorf("after Kill and Restart: %q", got)
	}
}

func TestStart_StalePIDFileNamesAnotherProcess(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	srv := start(t, cfg)
	query(t, srv.URL(), "CREATE TABLE kept AS SELECT 'here' AS v")
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
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := srv.as.give(path); err != nil {
			t.Fatal(err)
		}
	}
	srv = start(t, cfg)
	if srv.Attached() {
		t.Error("took a foreign process for PostgreSQL")
	}
	if got := query(t, srv.URL(), "SELECT v FROM kept"); got != "here" {
		t.Errorf("got %q", got)
	}
	if !exists(other.Process.Pid) {
		t.Error("the foreign process is gone")
	}
}

func TestStart_EmptyPIDFile(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	srv := start(t, cfg)
	stop(t, srv)
	if err := os.WriteFile(srv.dir.pidPath(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := srv.as.give(srv.dir.pidPath()); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrStart) {
		t.Errorf("a fresh one: %v", err)
	}
	before := time.Now().Add(-time.Minute)
	if err := os.Chtimes(srv.dir.pidPath(), before, before); err != nil {
		t.Fatal(err)
	}
	start(t, cfg)
}

func TestStart_LongPath(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.DataDir = filepath.Join(cfg.DataDir, strings.Repeat("long, \"quoted\" ", 8), "db")
	srv := start(t, cfg)
	query(t, srv.URL(), "SELECT 'x'")
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, srv.URL(), "SELECT 'x'")
	stop(t, srv)
	if _, err := os.Stat(srv.dir.socketPath()); srv.dir.socketPath() == srv.dir.run() || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", srv.dir.socketPath(), err)
	}
}

func TestStart_SaysWhyPostgresFailed(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Settings = map[string]string{"shared_buffers": "nonsense"}
	_, err := Start(t.Context(), cfg)
	if !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got %v", err)
	}
	cfg.Settings = nil
	start(t, cfg) // what was made by then is whole
}

func TestProcess_StopPastItsBound(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.StopTimeout = 50 * time.Millisecond
	srv := start(t, cfg)
	query(t, srv.URL(), "CREATE TABLE kept AS SELECT 'here' AS v")
	if err := syscall.Kill(srv.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// A frozen process reacts only to SIGKILL, until it is resumed after the bound.
	pid := srv.PID()
	wake := time.AfterFunc(200*time.Millisecond, func() { syscall.Kill(pid, syscall.SIGCONT) })
	defer wake.Stop()
	if err := srv.Stop(t.Context()); !errors.Is(err, ErrNotClean) {
		t.Errorf("Stop: %v, want ErrNotClean", err)
	}
	cfg.StopTimeout = 0
	srv = start(t, cfg)
	if got := query(t, srv.URL(), "SELECT v FROM kept"); got != "here" {
		t.Errorf("got %q", got)
	}
}
