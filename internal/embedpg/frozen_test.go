package embedpg

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// freeze stops the postmaster and all its children, as a debugger or a hung disk
// would, and returns their process ids.
func freeze(t *testing.T, srv *Server) []int {
	t.Helper()
	if err := syscall.Kill(srv.PID(), syscall.SIGSTOP); err != nil { // first: it starts no more
		t.Fatal(err)
	}
	pids, err := children(srv.PID())
	if err != nil || len(pids) == 0 {
		t.Fatalf("children of PostgreSQL: %v, %v", pids, err)
	}
	pids = append(pids, srv.PID())
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	return pids
}

// awaitGone fails unless all of the processes end.
func awaitGone(t *testing.T, srv *Server, pids []int) {
	t.Helper()
	uid := srv.as.uid
	for deadline := time.Now().Add(30 * time.Second); len(pids) > 0; {
		if alive, err := servesDir(pids[0], srv.dir.pgdata(), uid); err != nil || !alive {
			pids = pids[1:]
			continue
		}
		if time.Now().After(deadline) {
			t.Fatalf("processes %v of PostgreSQL still run", pids)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestStop_Frozen: a frozen PostgreSQL is ended by the deadline, with all its
// processes, and the data is whole.
func TestStop_Frozen(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	srv := start(t, cfg)
	query(t, srv.URL(), "CREATE TABLE kept AS SELECT 'here' AS v")
	pids := freeze(t, srv)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := srv.Stop(ctx); !errors.Is(err, ErrNotClean) {
		t.Errorf("Stop: %v, want ErrNotClean", err)
	}
	awaitGone(t, srv, pids)
	srv = start(t, cfg)
	if got := query(t, srv.URL(), "SELECT v FROM kept"); got != "here" {
		t.Errorf("got %q", got)
	}
}

// TestEndOwned_LeavesNothing: another process has a PostgreSQL that is frozen,
// and one that outlives it; its EndOwned ends the first alone.
func TestEndOwned_LeavesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "db")
	owner, _ := startOwner(t, dir)
	state, err := Status(t.Context(), dir)
	if err != nil || !state.Running {
		t.Fatalf("%+v, %v", state, err)
	}
	layout, _, err := openLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	as, err := runAs(layout.pgdata())
	if err != nil {
		t.Fatal(err)
	}
	srv := &Server{dir: layout, as: as, proc: &process{pid: state.PID, dir: layout}}
	pids := freeze(t, srv)
	if err := owner.Process.Signal(syscall.SIGUSR1); err != nil { // beOwner: EndOwned
		t.Fatal(err)
	}
	if err := owner.Wait(); err != nil {
		t.Errorf("the owner: %v", err)
	}
	awaitGone(t, srv, pids)

	detached := testConfig(t)
	detached.Detach = true
	cmd, _ := startOwner(t, detached.DataDir, detachEnv+"=1")
	state, err = Status(t.Context(), detached.DataDir)
	if err != nil || !state.Running {
		t.Fatalf("%+v, %v", state, err)
	}
	t.Cleanup(func() { StopDir(context.Background(), detached.DataDir) })
	if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if state, err = Status(t.Context(), detached.DataDir); err != nil || !state.Running {
		t.Errorf("one that is to outlive its owner: %+v, %v", state, err)
	}
}
