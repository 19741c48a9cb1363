package pgtest

import (
	"os"
	"syscall"

	"github.com/tidewire/tidewire/internal/budget"
)

// memoryDir returns a directory of a file system in memory, if there is one with room for the
// databases of all packages that are tested at a time, or "": then they are on disk. A test makes
// a database of 350 files and drops it. On ext4, which does not use the inode of a deleted file
// again for a minute, the search for another one took more than half of the CPU of all tests.
func memoryDir() string {
	const dir, room = "/dev/shm", 8 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || int64(fs.Bavail)*int64(fs.Bsize) < room {
		return ""
	}
	if memory, _, err := budget.MachineMemory(); err != nil || memory < 2*room {
		return ""
	}
	probe, err := os.MkdirTemp(dir, "tw-pg-")
	if err != nil {
		return ""
	}
	os.Remove(probe)
	return dir
}
