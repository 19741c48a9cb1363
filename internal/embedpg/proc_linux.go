package embedpg

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// servesDir tells whether a process is a postgres of a data directory: its
// working directory is there.
func servesDir(pid int, pgdata string, owner uint32) (bool, error) {
	proc := "/proc/" + strconv.Itoa(pid)
	info, err := os.Stat(proc)
	if err != nil {
		return false, nil // hidden from us, so another user's, or gone
	}
	if uid, _ := ownerOf(info); uid != owner {
		return false, nil
	}
	name, err := os.ReadFile(proc + "/comm")
	if err != nil || strings.TrimSpace(string(name)) != "postgres" {
		return false, nil
	}
	cwd, err := os.Stat(proc + "/cwd")
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // a zombie has none
	}
	if err != nil {
		return false, fmt.Errorf("is process %d a postgres of %s? %w", pid, pgdata, err)
	}
	dir, err := os.Stat(pgdata)
	if err != nil {
		return false, err
	}
	return os.SameFile(cwd, dir), nil
}

// children of a process.
func children(parent int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// "pid (name) state ppid …", where the name may hold anything
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
