//go:build unix

package cli

import (
	"math"
	"syscall"
)

// maxFiles returns how many file descriptors the process may have. Go has raised its soft limit to the hard one.
func maxFiles() (int, bool) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)), true
}
