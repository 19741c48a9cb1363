package embedpg

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
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
	testkit.Eventually(t, "all processes of PostgreSQL end", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool {
			alive, err := servesDir(pid, srv.dir.pgdata(), srv.as.uid)
			return err == nil && alive
		})
	})
}

// TestStop_Frozen: a frozen PostgreSQL is ended by the deadline, with all its
// processes, and the data is whole.
func TestStop_Frozen(t *testing.T) {
	t.Parallel()
	cfg := copied(t)
	cfg.StopTimeout = 50 * time.Millisecond
	srv := start(t, cfg)
	pids := freeze(t, srv)
	if err := srv.Stop(t.Context()); !errors.Is(err, ErrNotClean) {
		t.Errorf("Stop: %v, want ErrNotClean", err)
	}
	awaitGone(t, srv, pids)
	cfg.StopTimeout = 0
	isKept(t, start(t, cfg))
}

// TestEndOwned_LeavesNothing: another process has a PostgreSQL that is frozen,
// and one that outlives it; its EndOwned ends the first alone.
func TestEndOwned_LeavesNothing(t *testing.T) {
	t.Parallel()
	dir := copied(t).DataDir
	owner, _ := startOwner(t, dir)
	state, err := Status(t.Context(), dir)
	if err != nil || !state.Running {
		t.Fatalf("%+v, %v", state, err)
	}
	layout, as := layoutOf(t, dir)
	srv := &Server{dir: layout, as: as, proc: &process{pid: state.PID, dir: layout}}
	pids := freeze(t, srv)
	if err := owner.Process.Signal(syscall.SIGUSR1); err != nil { // beOwner: EndOwned
		t.Fatal(err)
	}
	if err := owner.Wait(); err != nil {
		t.Errorf("the owner: %v", err)
	}
	awaitGone(t, srv, pids)

	detached := copied(t)
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
