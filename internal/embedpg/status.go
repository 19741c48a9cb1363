package embedpg

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// State is the state of a data directory.
type State struct {
	DataDir  string
	Major    int    // of the data; 0 if there is none yet
	Running  bool   // PostgreSQL runs
	Ready    bool   // PostgreSQL accepts connections
	PID      int    // of the postmaster, if it runs
	URL      string // if it runs
	Version  string // if it answers
	Owned    bool   // a process such as `tidewire serve` owns the directory
	OwnerPID int    // of that process
	Detached bool   // PostgreSQL outlives its owner
}

// Status reads the state of a data directory and changes nothing. If the directory does
// not exist, only DataDir is set.
func Status(ctx context.Context, dataDir string) (State, error) {
	dir, major, err := openLayout(dataDir)
	if err != nil {
		return State{}, err
	}
	st := State{DataDir: dir.dir, Major: major, Detached: dir.isDetached()}
	if st.Owned, err = dir.owned(); err != nil {
		return State{}, dir.notWritable(err)
	}
	if st.Owned {
		st.OwnerPID = dir.ownerPID()
	}
	if major == 0 {
		return st, nil
	}
	p, running, err := dir.running()
	if err != nil {
		return State{}, dir.notWritable(err)
	}
	if !running {
		return st, nil
	}
	st.Running, st.Ready, st.PID, st.URL = true, p.status == "ready", p.pid, p.url()
	if st.Ready {
		st.Version, err = askVersion(ctx, p.url())
	}
	return st, err
}

// StopDir stops a PostgreSQL that runs without an owner: a detached one, or one
// that a killed owner has left. It fails with ErrInUse if there is an owner, and with
// ErrNotRunning if none runs. A clean stop may take a minute; see Server.Stop.
func StopDir(ctx context.Context, dataDir string) error {
	dir, major, err := openLayout(dataDir)
	if err != nil {
		return err
	}
	if major == 0 {
		return fmt.Errorf("%w: there is no database in %s", ErrNotRunning, dir.dir)
	}
	lock, err := dir.own(ctx)
	if err != nil {
		return err
	}
	return errors.Join(dir.stopOwned(ctx), release(lock))
}

func (l layout) stopOwned(ctx context.Context) error {
	p, running, err := l.running()
	if err != nil {
		return l.notWritable(err)
	}
	if err := l.setDetached(false); err != nil {
		return err
	}
	if !running {
		return fmt.Errorf("%w in %s", ErrNotRunning, l.dir)
	}
	return l.end(ctx, &process{pid: p.pid, dir: l}, time.Minute)
}

// end stops a postmaster, and removes its shared memory segment and socket directory.
func (l layout) end(ctx context.Context, proc *process, bound time.Duration) error {
	err := proc.stop(ctx, bound)
	if err != nil && !errors.Is(err, ErrNotClean) {
		return err
	}
	return errors.Join(err, l.dropSegment(), l.dropSocketDir())
}
