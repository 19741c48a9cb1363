package bench

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData is what PostgreSQL's wal_sync_method fdatasync does.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
