package embedpg

import "golang.org/x/sys/unix"

// servesDir tells whether a process is a postgres of the data directory's owner.
// It cannot check the directory: macOS does not show another process's working
// directory without cgo. If one user runs two PostgreSQL, it may accept the wrong
// one; then the start fails, because that one does not answer on our socket.
func servesDir(pid int, _ string, owner uint32) (bool, error) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return false, nil // gone
	}
	return p.Eproc.Ucred.Uid == owner && unix.ByteSliceToString(p.Proc.P_comm[:]) == "postgres", nil
}

// children of a process.
func children(parent int) ([]int, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, p := range all {
		if int(p.Eproc.Ppid) == parent {
			pids = append(pids, int(p.Proc.P_pid))
		}
	}
	return pids, nil
}
