package embedpg

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestStart_SecondOwner(t *testing.T) {
	t.Parallel()
	cfg := copied(t)
	owner, url := startOwner(t, cfg.DataDir)
	_, err := Start(t.Context(), cfg)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), strconv.Itoa(owner.Process.Pid)) {
		t.Errorf("Start: %v, want ErrInUse with pid %d", err, owner.Process.Pid)
	}
	if err := StopDir(t.Context(), cfg.DataDir); !errors.Is(err, ErrInUse) {
		t.Errorf("StopDir: %v", err)
	}
	st, err := Status(t.Context(), cfg.DataDir)
	if err != nil || !st.Owned || st.OwnerPID != owner.Process.Pid || !st.Ready || st.URL != url || st.Version == "" {
		t.Errorf("Status: %+v, %v", st, err)
	}
	query(t, url, "SELECT 'still there'")
}

func TestStart_AdoptsOrphan(t *testing.T) {
	t.Parallel()
	cfg := copied(t)
	owner, _ := startOwner(t, cfg.DataDir)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	owner.Wait()
	st, err := Status(t.Context(), cfg.DataDir)
	if err != nil || st.Owned || !st.Running {
		t.Fatalf("Status: %+v, %v", st, err)
	}
	srv := start(t, cfg)
	if !srv.Attached() || srv.PID() != st.PID || srv.BinDir() == "" {
		t.Errorf("attached %v, pid %d, want %d, binaries in %q", srv.Attached(), srv.PID(), st.PID, srv.BinDir())
	}
	isKept(t, srv)
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	isKept(t, srv)
	stop(t, srv)
	if alive, err := srv.dir.isPostmaster(st.PID); err != nil || alive || srv.Running() {
		t.Errorf("the orphan outlives its new owner: %v", err)
	}
}

func TestStart_RecoversFromKilledPostmasterOfKilledOwner(t *testing.T) {
	t.Parallel()
	cfg := copied(t)
	owner, _ := startOwner(t, cfg.DataDir)
	st, err := Status(t.Context(), cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	owner.Wait()
	postmaster, err := os.FindProcess(st.PID)
	if err != nil {
		t.Fatal(err)
	}
	// Its children live a moment longer, and so does their shared memory.
	if err := postmaster.Kill(); err != nil {
		t.Fatal(err)
	}
	isKept(t, start(t, cfg))
}

func TestDetach_OutlivesOwners(t *testing.T) {
	t.Parallel()
	cfg := copied(t)
	cfg.Detach = true
	srv := start(t, cfg)
	pid := srv.PID()
	t.Cleanup(func() { StopDir(t.Context(), cfg.DataDir) })
	stop(t, srv)

	cfg.Detach = false
	srv = start(t, cfg)
	if !srv.Attached() || srv.PID() != pid {
		t.Errorf("attached %v, pid %d, want %d", srv.Attached(), srv.PID(), pid)
	}
	stop(t, srv)
	st, err := Status(t.Context(), cfg.DataDir)
	if err != nil || !st.Ready || !st.Detached || st.PID != pid || st.Owned {
		t.Errorf("Status: %+v, %v", st, err)
	}
	if err := StopDir(t.Context(), cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	if err := StopDir(t.Context(), cfg.DataDir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("StopDir of a stopped one: %v", err)
	}
	srv = start(t, cfg) // a plain one now
	stop(t, srv)
	if srv.Running() {
		t.Error("still detached after StopDir")
	}
}

func TestStatus_OfNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "none")
	st, err := Status(t.Context(), dir)
	if err != nil || st.Running || st.Major != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := StopDir(t.Context(), dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("StopDir: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("looking made the directory")
	}
}
