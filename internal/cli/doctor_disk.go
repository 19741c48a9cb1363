package cli

import (
	"syscall"

	"github.com/tidewire/tidewire/internal/doctor"
)

// diskOf describes the file system of a data directory, or returns nil if that is not known.
func diskOf(dir string) *doctor.Disk {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return nil
	}
	return &doctor.Disk{Free: int64(fs.Bavail) * int64(fs.Bsize), Total: int64(fs.Blocks) * int64(fs.Bsize)}
}
