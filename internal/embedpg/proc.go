package embedpg

import (
	"errors"
	"fmt"
	"os"

	gopsutil "github.com/shirou/gopsutil/v4/process"
)

// servesDir tells whether a process is a postgres of a data directory: its
// working directory is there.
func servesDir(pid int, pgdata string, owner uint32) (bool, error) {
	p := gopsutil.Process{Pid: int32(pid)}
	uids, err := p.Uids() // real and effective; macOS has one
	if err != nil || len(uids) == 0 || uids[min(1, len(uids)-1)] != owner {
		return false, nil // hidden from us, so another user's, or gone
	}
	if name, err := p.Name(); err != nil || name != "postgres" {
		return false, nil
	}
	path, err := p.Cwd()
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // a zombie has none
	}
	if err != nil {
		return false, fmt.Errorf("is process %d a postgres of %s? %w", pid, pgdata, err)
	}
	cwd, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // its directory was removed
	}
	if err != nil {
		return false, err
	}
	dir, err := os.Stat(pgdata)
	if err != nil {
		return false, err
	}
	return os.SameFile(cwd, dir), nil
}

// children returns the processes that a process has started.
func children(parent int) ([]int, error) {
	p := gopsutil.Process{Pid: int32(parent)}
	all, err := p.Children()
	pids := make([]int, len(all))
	for i, child := range all {
		pids[i] = int(child.Pid)
	}
	return pids, err
}
