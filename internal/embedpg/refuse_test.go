package embedpg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStart_RefusesOtherMajor(t *testing.T) {
	t.Parallel()
	cfg := copied(t)
	srv := start(t, cfg)
	major := srv.bins.major
	stop(t, srv)
	before := snapshot(t, srv.dir.pgdata())

	cfg.Version = major + 1
	if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrOtherMajor) {
		t.Errorf("another version asked for: %v", err)
	}
	cfg.Version = 0
	if got := snapshot(t, srv.dir.pgdata()); got != before {
		t.Error("data was touched")
	}
	// As if made by a version that nobody has.
	version := filepath.Join(srv.dir.pgdata(), "PG_VERSION")
	if err := os.WriteFile(version, []byte("13\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before = snapshot(t, srv.dir.pgdata())
	for _, choice := range []string{Auto, System, Fetch} {
		cfg.Binaries = choice
		_, err := Start(t.Context(), cfg)
		if !errors.Is(err, ErrOtherMajor) || !strings.Contains(err.Error(), "13") {
			t.Errorf("%s: %v", choice, err)
		}
	}
	cfg.BinDir = srv.BinDir()
	if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrOtherMajor) {
		t.Errorf("BinDir: %v", err)
	}
	if got := snapshot(t, srv.dir.pgdata()); got != before {
		t.Error("data was touched")
	}
}

func TestStart_RefusesForeignDirectory(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"files": "thesis.txt", "PostgreSQL's": "PG_VERSION"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			if err := os.WriteFile(filepath.Join(dir, file), []byte("15\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, dir)
			if _, err := Start(t.Context(), Config{DataDir: dir, Getenv: os.Getenv}); !errors.Is(err, ErrForeignDir) {
				t.Errorf("Start: %v", err)
			}
			if err := StopDir(t.Context(), dir); !errors.Is(err, ErrForeignDir) {
				t.Errorf("StopDir: %v", err)
			}
			if got := snapshot(t, dir); got != before {
				t.Errorf("changed to\n%s", got)
			}
		})
	}
}

func TestStart_RefusesUnusableDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(tempDir(t), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// Root may not let PostgreSQL's user pass; others may not write.
	closed := filepath.Join(tempDir(t), "closed")
	mode := os.FileMode(0o500)
	if os.Geteuid() == 0 {
		mode = 0o700
	}
	if err := os.Mkdir(closed, mode); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(file, "db"), filepath.Join(closed, "db")} {
		_, err := Start(t.Context(), Config{DataDir: dir, Getenv: os.Getenv})
		if !errors.Is(err, ErrNotWritable) || !strings.Contains(err.Error(), filepath.Dir(dir)) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if entries, err := os.ReadDir(closed); err != nil || len(entries) > 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestStart_FailedInitdbLeavesNothing(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.BinDir = tempDir(t)
	writeScript(t, filepath.Join(cfg.BinDir, "postgres"), `echo "postgres (PostgreSQL) 15.1"`)
	writeScript(t, filepath.Join(cfg.BinDir, "initdb"), `touch "$2/half"; echo no space; exit 1`)
	_, err := Start(t.Context(), cfg)
	if !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), "no space") {
		t.Errorf("got %v", err)
	}

	// A crash in the middle, which clears nothing up.
	half := filepath.Join(cfg.DataDir, "pgdata.new-123")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	writeScript(t, filepath.Join(cfg.BinDir, "initdb"), `touch "$2/half"; echo started >&2; sleep 60 & sleep 60`)
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Progress = func(string) { cancel() }
	if _, err := Start(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(cfg.DataDir, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
	cfg.BinDir, cfg.Progress = "", nil
	start(t, cfg)
}

func TestConfig_Refuses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "db")
	for name, cfg := range map[string]Config{
		"Binaries": {Binaries: "some"},
		"Version":  {Version: 9},
		"DataDir":  {DataDir: dir + "\n"},
	} {
		if cfg.DataDir == "" {
			cfg.DataDir = dir
		}
		cfg.CacheDir = dir
		if _, err := Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func writeScript(t *testing.T, path, body string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755); err != nil { // whatever the umask
		t.Fatal(err)
	}
}
